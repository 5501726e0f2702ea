package e2e

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

const (
	wait      = storagev1.VolumeBindingWaitForFirstConsumer
	immediate = storagev1.VolumeBindingImmediate
)

// The main job: a pod is scheduled, its claim gets a volume on that node, nothing else is there.
func TestWaitForFirstConsumer(t *testing.T) {
	w, h := running(t)
	class := w.Class("c", wait)
	claim, pv := w.wanted("data", class, "10Mi", h.node), w.Bound("data")

	if want := "pvc-" + string(claim.UID); pv.Name != want {
		t.Errorf("the volume is named %s, want %s", pv.Name, want)
	}
	source := pv.Spec.Local
	if source == nil || source.Path != h.mount+"/"+pv.Name {
		t.Errorf("source %+v", pv.Spec.PersistentVolumeSource)
	}
	if got := pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values; got[0] != "host-of-"+h.node {
		t.Errorf("affinity %v, want the value of the node's hostname label", got)
	}
	info := need(os.Stat(source.Path))(w)
	if info.Mode() != os.ModeDir|0o777 {
		t.Errorf("mode %s", info.Mode())
	}
	h.wantTree(pool.Of(pv.Name)...)
	event := w.event(claim, "ProvisioningSucceeded")
	if want := "volume " + pv.Name + " is on node " + h.node + " in pool fast"; event.Message != want || event.Type != corev1.EventTypeNormal {
		t.Errorf("event %s %q", event.Type, event.Message)
	}
	if _, err := w.WaitPodScheduled(w.Soon(), w.Namespace, "data"); err != nil {
		t.Error(err)
	}
}

// Each refusal is explained on the claim, the claim stays Pending and the disk is untouched.
func TestRefusals(t *testing.T) {
	w := newEnvironment(t)
	w.newHost("b") // on a single node each access mode is accepted
	h := w.newHost("a").run()
	group, block := "example.com", corev1.PersistentVolumeBlock
	cases := []struct {
		name    string
		params  []string
		size    string
		change  func(*corev1.PersistentVolumeClaim)
		reason  string
		message string
	}{
		{"block", nil, "1Mi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block }, "BlockModeUnsupported", "use volumeMode Filesystem"},
		{"rwx", nil, "1Mi", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}, "AccessModeUnsupported", "use ReadWriteOnce"},
		{"source", nil, "1Mi", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
		}, "DataSourceUnsupported", "use an empty claim"},
		{"large", nil, "1Ti", nil, "NotEnoughSpace", "the claim requests 1Ti, and"},
		{"param", []string{"size", "big"}, "1Mi", nil, "UnknownParameter", `unknown parameter "size"; known are`},
		{"pool", []string{"pool", "slow"}, "1Mi", nil, "UnknownPool", `no pool "slow"; it has fast (` + h.mount + ")"},
		{"pvdir", []string{"pvDir", "/etc"}, "1Mi", nil, "UnknownPool", `no pool at "/etc"`},
		{"mode", []string{"mode", "rwx"}, "1Mi", nil, "BadParameter", `"rwx" is not an octal mode`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			class := w.Class(c.name, immediate, fixture.Parameters(c.params...))
			change := c.change
			if change == nil {
				change = func(*corev1.PersistentVolumeClaim) {}
			}
			claim := w.claim(c.name, class, c.size, change, annotate("kubevirt.io/provisionOnNode", h.node))
			w.refused(claim, c.reason, c.message)
		})
	}
	// A populator's claim is not refused: it waits for what the populator makes.
	claim := w.claim("populated", w.Class("populated", immediate), "1Mi", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &group, Kind: "Filler", Name: "other"}
	}, annotate("kubevirt.io/provisionOnNode", h.node))
	event := w.event(claim, "WaitForPopulator")
	if event.Type != corev1.EventTypeNormal || !strings.Contains(event.Message, `waits for the populator of "Filler" "other"`) {
		t.Errorf("event %s %q", event.Type, event.Message)
	}
	h.wantTree()
}

// What is made or removed while volumes reads pool and API is not called lost or orphaned.
func TestVolumesWhileClaimsComeAndGo(t *testing.T) {
	w := newEnvironment(t)
	h, class := w.newHost("a").quiet().run(), w.Class("c", immediate)
	going, calls := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { calls <- n }()
		for ; ; n++ {
			select {
			case <-going:
				return
			default:
			}
			h.call("volumes").Ends(0).Lacks("missing", "orphaned")
		}
	}()
	names := numbered("data", 80)
	for _, name := range names {
		w.claim(name, class, "1Mi", annotate(provisionOnNode, h.node))
	}
	var last string
	for _, name := range names {
		last = w.Bound(name).Name
		w.DeleteClaim(name)
	}
	w.Must(w.WaitVolumeGone(w.Soon(), last))
	close(going)
	if n := <-calls; n < 10 {
		t.Errorf("only %d calls", n)
	}
}
