package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
)

// asKubelet is a volume with source csi as kubelet asks the node service for it.
func asKubelet(pv *corev1.PersistentVolume) csinode.Volume {
	return csinode.Volume{PV: pv.Name, Attributes: pv.Spec.CSI.VolumeAttributes}
}

// A claim with source csi is made from one with source local and the other way round, and pods
// find the data in each.
func TestCloneOfCSI(t *testing.T) {
	w := withDriver(t)
	h := w.newHost("a", `clones = "copy"`).run()
	s := w.nodeService(h.Daemon, w.Provisioner)
	host, csi := w.Class("host", immediate), w.Class("csi", immediate, fixture.Parameters("source", "csi"))
	h.writeAll(w.bound("data", host, "10Mi"))
	into := w.bound("into", csi, "10Mi", from("data"))
	w.claim("again", csi, "10Mi", from("into"))
	w.claim("back", host, "10Mi", from("into"))
	for _, pv := range []*corev1.PersistentVolume{into, w.Bound("again")} {
		h.wantClone(pv)
		w.Must(s.Publish(w.Soon(), "pod", asKubelet(pv)))
		if text, err := os.ReadFile(filepath.Join(s.Target("pod", pv.Name), "below/file")); err != nil || string(text) != "data" {
			t.Errorf("the pod reads %q, %v", text, err)
		}
		w.Must(s.Unpublish(w.Soon(), "pod", pv.Name))
	}
	back := w.Bound("back")
	if h.wantClone(back); back.Spec.Local == nil {
		t.Errorf("the clone's source is %+v", back.Spec.PersistentVolumeSource)
	}
}

// A volume with source csi in a shared pool is mounted on each node, whichever daemon made it, and
// pods of two nodes see each other's writes.
func TestSharedCSI(t *testing.T) {
	w := withDriver(t)
	nodes := w.sharedBy([]string{"a", "b", "c"}, `source = "csi"`)
	runAll(nodes)
	pv := w.bound("data", w.Class("c", immediate), "10Mi", mode(corev1.ReadWriteMany))
	if pv.Spec.CSI == nil || pv.Spec.NodeAffinity != nil {
		t.Fatalf("%+v", pv.Spec)
	}
	var services []*csinode.Service
	for _, n := range nodes[:2] {
		s := w.nodeService(n.Daemon, w.Provisioner)
		w.Must(s.Publish(w.Soon(), "pod", asKubelet(pv)))
		services = append(services, s)
	}
	file := func(s *csinode.Service) string { // as the node has it
		return filepath.Join(fmt.Sprintf("/proc/%d/root", s.PID()), s.Target("pod", pv.Name), "file")
	}
	w.Must(os.WriteFile(file(services[0]), []byte("shared"), 0o600))
	if text, err := os.ReadFile(file(services[1])); err != nil || string(text) != "shared" {
		t.Errorf("the other node's pod reads %q, %v", text, err)
	}
	for _, s := range services {
		w.Must(s.Unpublish(w.Soon(), "pod", pv.Name))
	}
	w.Removes("data", pv.Name)
	nodes[0].wantTree()
}
