package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An object that lost its labels, or has another node's, is its volume's all the same: it is listed
// as what it is, and told, whether the daemon made it so, a backup program brought it back, or its
// claim is gone. With its labels all goes on.
func TestLabelsLost(t *testing.T) {
	w, h, class := oneHost(t)
	relabel := func(pv *corev1.PersistentVolume, node string) {
		labels := `{"hostpath-provisioner/node":` + node + `,"hostpath-provisioner/pool":"fast"}`
		w.PatchVolume(pv.Name, types.MergePatchType, `{"metadata":{"labels":`+labels+`}}`)
	}
	stripped, theirs := h.made("stripped", class), h.made("theirs", class)
	released, kept := h.made("released", class), h.made("kept", class)
	w.PatchVolume(stripped.Name, types.MergePatchType, `{"metadata":{"labels":null}}`)
	relabel(theirs, `"another"`)
	relabel(released, "null")
	w.Releases("released", released.Name)
	w.Retain(kept.Name)
	w.DeleteClaim("kept")
	w.RemovesVolume(kept.Name)
	kept.Labels = nil
	h.useAgain(kept, class)
	w.Must(h.Signal(syscall.SIGHUP))
	for _, pv := range []*corev1.PersistentVolume{stripped, theirs, released, kept} {
		w.event(w.Volume(pv.Name), "LabelsMissing")
	}
	out, warned := h.Call("volumes")
	for pv, state := range map[*corev1.PersistentVolume]string{
		stripped: "bound (not watched)", theirs: "bound (of node another)",
		released: "released (not watched)", kept: "bound (not watched)",
	} {
		got := strings.TrimSpace(line(out, pv.Name))
		if !strings.HasSuffix(got, state) {
			t.Errorf("not %s: %s", state, got)
		}
	}
	if strings.Contains(out, "orphaned") {
		t.Errorf("%s\n%v", out, warned)
	}
	relabel(released, fmt.Sprintf("%q", h.node))
	w.Must(w.WaitVolumeGone(w.Soon(), released.Name))
}

// An object that lost the annotation by which kube-controller-manager leaves it to its provisioner
// is told, while it is bound and when its claim is gone; and set right, it is removed.
func TestProvisionerLost(t *testing.T) {
	w, h, class := oneHost(t)
	annotate := func(pv *corev1.PersistentVolume, by string) {
		w.PatchVolume(pv.Name, types.MergePatchType,
			`{"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":`+by+`}}}`)
	}
	bound, failed := h.made("bound", class), h.made("failed", class)
	annotate(bound, "null")
	w.event(w.Volume(bound.Name), "LabelsMissing")
	annotate(failed, "null")
	w.DeleteClaim("failed")
	w.Phase(failed.Name, corev1.VolumeFailed)
	w.event(w.Volume(failed.Name), "LabelsMissing")
	for _, pv := range []*corev1.PersistentVolume{bound, failed} {
		annotate(pv, fmt.Sprintf("%q", w.Provisioner))
	}
	w.DeleteClaim("bound")
	for _, pv := range []*corev1.PersistentVolume{bound, failed} {
		w.Must(w.WaitVolumeGone(w.Soon(), pv.Name))
	}
}

// A node whose hostname label changes gets no pod of the volumes that are on it: they say so, and
// what is made later is right.
func TestNodeRelabelled(t *testing.T) {
	w, h, class := oneHost(t)
	pv := h.made("before", class)
	relabel := func(hostname string) {
		patchIn(w, w.nodes(), h.node, `{"metadata":{"labels":{"kubernetes.io/hostname":"`+hostname+`"}}}`)
	}
	relabel("renamed-" + h.node)
	w.event(w.Volume(pv.Name), "NodeRelabelled")
	w.Confine(h.Daemon) // where the policies list hostnames, this one, too
	later := h.made("later", class)
	term := later.Spec.NodeAffinity.Required.NodeSelectorTerms[0]
	if got := term.MatchExpressions[0].Values[0]; got != "renamed-"+h.node {
		t.Errorf("the affinity of a volume that was made later is %q", got)
	}
}
