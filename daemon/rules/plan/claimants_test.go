package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

func TestClaimants(t *testing.T) {
	r := record.Record{PV: "pvc-u-1", Namespace: "n", Claim: "c", ClaimUID: "u-1", Directory: "n-c"}
	for name, c := range map[string]struct {
		object string
		ref    *corev1.ObjectReference
		want   string
	}{
		"no claim":                         {"v", nil, ""},
		"the claim":                        {"v", &corev1.ObjectReference{Namespace: "n", Name: "c", UID: "u-1"}, "v"},
		"the claim, and the record's name": {"pvc-u-1", &corev1.ObjectReference{Namespace: "n", Name: "c", UID: "u-1"}, ""},
		"the claim's UID alone":            {"v", &corev1.ObjectReference{Namespace: "m", Name: "d", UID: "u-1"}, "v"},
		"bound by hand, without a UID":     {"v", &corev1.ObjectReference{Namespace: "n", Name: "c"}, "v"},
		"bound by hand to another claim":   {"v", &corev1.ObjectReference{Namespace: "m", Name: "c"}, ""},
		"a later claim of the same name":   {"v", &corev1.ObjectReference{Namespace: "n", Name: "c", UID: "u-2"}, ""},
	} {
		var all Claimants
		if got := all.Of(r); got != "" {
			t.Errorf("of no objects, %q", got)
		}
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: c.object}, Spec: corev1.PersistentVolumeSpec{ClaimRef: c.ref}}
		v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/srv/fast/n-c"}
		all.Add(v)
		if got := all.Of(r); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// An object of another name counts if it may be of the record's directory. That of a volume that
// was kept for the claim, and that was bound to it while the directory was made, is of something
// else.
func TestClaimantsElsewhere(t *testing.T) {
	r := record.Record{PV: "pvc-u-1", Namespace: "n", Claim: "c", ClaimUID: "u-1", Directory: "csi/n-c"}
	csi := func(handle, at string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: DefaultProvisioner, VolumeHandle: handle, VolumeAttributes: map[string]string{AttributePath: at}}}
	}
	hostPath := func(at string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: at}}
	}
	nfs := func(at string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Path: at}}
	}
	for name, c := range map[string]struct {
		source corev1.PersistentVolumeSource
		want   string
	}{
		"the directory":                    {hostPath("/srv/fast/csi/n-c"), "v"},
		"the directory by another path":    {hostPath("/mnt/n-c"), "v"},
		"as a local volume":                {corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/srv/fast/csi/n-c"}}, "v"},
		"over NFS":                         {nfs("/export/n-c"), "v"},
		"by its handle":                    {csi("pvc-u-1", ""), "v"},
		"by its path in the attributes":    {csi("other", "/srv/fast/csi/n-c"), "v"},
		"another directory":                {hostPath("/srv/kept"), ""},
		"another one over NFS":             {nfs("/export/kept"), ""},
		"another driver's volume":          {csi("vol-1", ""), ""},
		"a volume that is no directory":    {corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{}}, ""},
		"a directory beneath the volume's": {hostPath("/srv/fast/csi/n-c/below"), ""},
	} {
		var all Claimants
		all.Add(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Namespace: "n", Name: "c", UID: "u-1"}, PersistentVolumeSource: c.source,
		}})
		if got := all.Of(r); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
