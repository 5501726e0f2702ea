package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// A snapshot is made of a volume whose pod stands still for the last of it, and goes on. Without
// the node service there is none, nor while a process writes that is in no such pod, and it is said
// why.
func TestPausedSnapshot(t *testing.T) {
	w := withDriver(t)
	s := w.snapshots()
	root := w.kubeletRoot()
	h := w.newHostOn(hosttest.Mkfs(w, "xfs", 320), "a", `source = "csi"`, `snapshots = "paused"`).configureFirst(fmt.Sprintf("kubelet_root = %q", root)).run()
	pv := w.bound("data", w.Class("c", immediate), "10Mi")
	dir := h.writeAll(pv)

	content := s.ask("early", pv, w.Provisioner, "Delete")
	s.says(content, "its pods could not be paused: the CSI node service does not listen at "+root)
	s.remove("early", content)

	node := w.startNodeService(csinode.Options{Root: root, Driver: w.Provisioner, Command: h.Command, Log: h.Path("csi.log"), Pauses: true})
	pod := "u-" + w.Namespace
	w.Must(node.Publish(w.Soon(), pod, asKubelet(pv)))
	cgroup := hosttest.Cgroup(t, "hostpath-e2e-"+pod+"/kubepods.slice/kubepods-pod"+strings.ReplaceAll(pod, "-", "_")+".slice")
	writer := need(process.Start(hosttest.InCgroup(t, cgroup, exec.Command("sh", "-c", "while :; do echo x > "+node.Target(pod, pv.Name)+"/busy; done"))))(w)
	host := need(process.Start(exec.Command("sh", "-c", "while :; do echo x > "+dir+"/host"+"; done")))(w)
	t.Cleanup(func() { _ = host.Kill() })
	s.refusedFor(pv, `"host": something that is not stopped writes to the volume`)
	w.Must(host.Kill())

	content, _ = s.take("snap", pv)
	h.said("nothing ran in the pods that have the volume mounted (1)", 1)
	if text, err := os.ReadFile(filepath.Join(cgroup, "cgroup.freeze")); err != nil || strings.TrimSpace(string(text)) != "0" {
		t.Errorf("cgroup.freeze %q, %v", text, err)
	}
	w.Must(errors.Join(writer.Kill(), node.Unpublish(w.Soon(), pod, pv.Name)))
	s.remove("snap", content)
}

// refusedFor asks for snapshots until one is refused with these words: a writer that gets no
// processor within a pause, which lasts some milliseconds, is no reason to refuse.
func (s *snapshots) refusedFor(pv *corev1.PersistentVolume, words string) {
	s.Helper()
	s.Eventually("a snapshot is refused: "+words, func() bool {
		content := s.ask("written", pv, s.Provisioner, "Delete")
		s.Eventually("the snapshot is ready, or refused: "+words, func() bool { return s.told(content, words) || s.status(content)["readyToUse"] == true })
		refused := s.told(content, words)
		s.remove("written", content)
		return refused
	})
}
