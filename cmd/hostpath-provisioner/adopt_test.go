package main

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// What adopt says before it comes to the cluster. What it says of volumes is in test/e2e/testdata,
// by a real API server.
func TestAdoptWithoutACluster(t *testing.T) {
	h := newHost(t, "kubeconfig = 'BASE/kubeconfig'\naliases = ['hostpath']\n"+minimal+"require_mount = false\n")
	s := &story{h: h}
	s.says("a pool that is not there")
	s.call("adopt", "fast")
	s.call("prepare", "fast")
	s.says("no kubeconfig")
	s.call("adopt", "fast")
	s.call("adopt", "fast", "--undo")
	s.says("words that contradict each other")
	s.call("adopt", "fast", "--undo", "--released")
	s.call("adopt", "fast", "--undo", "--from-csi", "d")
	s.call("adopt", "fast", "--from-csi", "d", "--stopped", "d")
	golden(t, "adopt-no-cluster", s.b.String())
}

// Every reason that has a hint is one that a volume can have, and all of them have one.
func TestAdoptHints(t *testing.T) {
	want := []string{adoptrules.ReasonNotAlias, adoptrules.ReasonNoAffinity, adoptrules.ReasonRunning, adoptrules.ReasonNotKnown, adoptrules.ReasonOutside, adoptrules.ReasonReleased, adoptrules.ReasonCSI,
		adoptrules.ReasonDriverRuns, adoptrules.ReasonDriverNotKnown, adoptrules.ReasonUsed, adoptrules.ReasonDenied}
	known := map[string]bool{}
	for _, h := range adoptReasonHints {
		known[h.reason] = true
	}
	for _, reason := range want {
		if !known[reason] {
			t.Errorf("%s has no hint", reason)
		}
	}
	if len(known) != len(want) {
		t.Errorf("%v", known)
	}
	for row, want := range map[*adopt.Row]string{
		{Action: adoptrules.Adopt}:                              "adopt",
		{Action: adoptrules.Adopt, Done: true}:                  "adopted",
		{Action: adoptrules.Undo, Done: true}:                   "undone",
		{Action: adoptrules.Ours}:                               "ours",
		{Action: plan.Refuse, Message: "it is so", Done: false}: "refused: it is so",
	} {
		if got := adoptVerdict(*row); got != want {
			t.Errorf("%+v: %q, want %q", row, got, want)
		}
	}
}
