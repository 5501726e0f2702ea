package adopt

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// servedSite is csiSite on a node whose own service is in the driver's place.
func servedSite(t *testing.T) (Options, *cluster) {
	t.Helper()
	o, c := csiSite(t)
	o.Driver, o.Served = "", []string{plan.KubevirtCSI}
	return o, c
}

const inPlace = `of the driver for 1, Delete, map["hostpath-provisioner/node":"node-a" "hostpath-provisioner/pool":"fast" "team":"shop"] ` +
	`map["hostpath-provisioner/adopted":"with-finalizer" "hostpath-provisioner/path":"POOL/pvc-1" "pv.kubernetes.io/provisioned-by":"kubevirt.io.hostpath-provisioner"] ` +
	`["external-provisioner.volume.kubernetes.io/finalizer" "kubernetes.io/pv-protection"]` +
	"\nrecord pvc-1 of claim 1 in pool, replaced: false"

// Where the node's service is in the driver's place the object stays, pods go on, and a record and
// marks are all that comes. Back it is as it was.
func TestInPlace(t *testing.T) {
	o, c := servedSite(t)
	c.inPods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "db"}}}}}}}
	mountedByKubelet(&o, c)
	c.drivers = []string{plan.KubevirtCSI} // it is the service
	if row := one(t, Run, o); row.Action != adoptrules.Adopt || !row.Done || row.Path != o.Pool.Path+"/pvc-1" {
		t.Errorf("%+v", row)
	}
	wantCSI(t, o, c, "adopted in place", strings.ReplaceAll(inPlace, "POOL", o.Pool.Path))
	if at := plan.PathOf(c.volumes["pvc-1"]); at != o.Pool.Path+"/pvc-1" {
		t.Errorf("its path is %q, by which the daemon compares it with the record", at)
	}
	if row := one(t, Run, o); row.Action != adoptrules.Ours {
		t.Errorf("%+v", row)
	}
	inventory, err := o.Store.List(t.Context(), o.Identity)
	if err != nil || inventory.Volumes[0].Source != plan.SourceCSI || inventory.Volumes[0].Provisioner != plan.KubevirtCSI {
		t.Errorf("%+v, %v", inventory.Volumes, err)
	}
	o.Served = nil // the configuration may be the old one again
	if row := one(t, Undo, o); !row.Done {
		t.Errorf("%+v", row)
	}
	wantCSI(t, o, c, "given back", drivers)
}

// A call that was cut off before the record is undone, too.
func TestInPlaceCutOff(t *testing.T) {
	o, c := servedSite(t)
	annotate(c.volumes["pvc-1"], adoptrules.AdoptingAnnotation, "node-a")
	if row := one(t, Undo, o); !row.Done {
		t.Errorf("%+v", row)
	}
	wantCSI(t, o, c, "given back", drivers)
}

func TestInPlaceRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options, *cluster)
		reason string
		says   string
	}{
		"the node's service is not in its place": {func(o *Options, _ *cluster) { o.Served = nil }, adoptrules.ReasonCSI, "asks driver kubevirt.io.hostpath-provisioner"},
		"the driver's pod runs": {func(_ *Options, c *cluster) {
			c.inPods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "csi"}, Spec: corev1.PodSpec{NodeName: "node-b", Containers: []corev1.Container{{Image: "quay.io/kubevirt/hostpath-csi-driver:v1"}}}}}
		}, adoptrules.ReasonRunning, `pod default/csi on node "node-b"`},
		"a handle that is not its name": {func(_ *Options, c *cluster) {
			c.volumes["pvc-1"].Name = "pvc-2"
			c.volumes["pvc-2"] = c.volumes["pvc-1"]
			delete(c.volumes, "pvc-1")
		}, adoptrules.ReasonCSI, "asks driver"},
	} {
		t.Run(name, func(t *testing.T) {
			o, api := servedSite(t)
			c.change(&o, api)
			before := csiState(t, o, api)
			if row := one(t, Run, o); row.Action != plan.Refuse || row.Reason != c.reason || !strings.Contains(row.Message, c.says) {
				t.Errorf("%+v", row)
			}
			wantCSI(t, o, api, name, before)
		})
	}
}
