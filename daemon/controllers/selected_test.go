package controllers

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// watchedClass is a store of one class, or of none, and whether its watch is under way.
type watchedClass struct {
	class   *storagev1.StorageClass
	watched bool
}

func (w watchedClass) Get(string) (*storagev1.StorageClass, bool) { return w.class, w.class != nil }
func (w watchedClass) List() []*storagev1.StorageClass            { return nil }
func (w watchedClass) Watched() bool                              { return w.watched }

// asClass is an API server with a class of this provisioner.
type asClass struct {
	*creator
	provisioner string
	asked       int
}

func (a *asClass) ClassProvisioner(context.Context, string) (string, error) {
	a.asked++
	return a.provisioner, a.err()
}

// Between the decision about a claim for which no provisioner was asked and its object the class
// may go, or become another provisioner's: then there is no object, and the directory stays for the
// comparison of records. A claim for which this provisioner was asked gets its object whatever
// became of the class.
func TestClassReplacedMeanwhile(t *testing.T) {
	made := func(uid types.UID) *storagev1.StorageClass {
		class := &storagev1.StorageClass{Provisioner: "p"}
		class.Name, class.UID = "class", uid
		return class
	}
	for name, c := range map[string]struct {
		annotations map[string]string
		classes     watchedClass
		provisioner string // of the class in the API server
		away        bool
		object      bool
		requests    int
	}{
		"unchanged":                          {nil, watchedClass{made("1"), true}, "p", false, true, 0},
		"deleted, or another provisioner's":  {nil, watchedClass{nil, true}, "p", false, false, 0},
		"deleted and made anew":              {nil, watchedClass{made("2"), true}, "p", false, false, 0},
		"remembered, the same":               {nil, watchedClass{made("1"), false}, "p", false, true, 1},
		"remembered, another provisioner's":  {nil, watchedClass{made("1"), false}, "x", false, false, 1},
		"remembered, deleted":                {nil, watchedClass{made("1"), false}, "", false, false, 1},
		"remembered, and no response":        {nil, watchedClass{made("1"), false}, "p", true, false, 1},
		"a provisioner was asked, deleted":   {map[string]string{plan.StorageProvisioner: "p"}, watchedClass{nil, true}, "", false, true, 0},
		"the author named a node, and it is": {map[string]string{plan.ProvisionOnNode: "node-a"}, watchedClass{nil, true}, "", false, true, 0},
	} {
		server := &asClass{creator: &creator{}, provisioner: c.provisioner}
		ctl, w, facts, _ := provisioning(server.creator)
		server.away, ctl.API = c.away, server
		ctl.Listers.Classes, ctl.Listers.Claims = c.classes, many{"ns/c": facts.Claim}
		facts.Claim.Annotations = c.annotations
		facts.Class.UID = "1"
		h, _ := w.disk.Open(t.Context())
		after, err := ctl.attempt(t.Context(), h, facts)
		want := "directory pvc-u"
		if c.object {
			want += ", object pvc-u"
		}
		if did := server.done.String(); did != want || (err != nil) != c.away || server.asked != c.requests {
			t.Errorf("%s: did %q, %v, after asking %d times; want %q", name, did, err, server.asked, want)
		}
		if again := after > 0 || err != nil; !again && !c.object || (ctl.inFlight.abandon("u") != "") == c.object {
			t.Errorf("%s: again after %s, or the directory is not noted as unpublished", name, after)
		}
	}
}

// A claim for which no provisioner was asked costs no request if it is not to be provisioned, even
// where the nodes were never counted: there may be many of other provisioners' classes.
func TestSelectedClaimOfOtherClassCostsNothing(t *testing.T) {
	server := &api{}
	ctl, _ := stand(server, &shelf{})
	ctl.Provisioner, ctl.nodes.number = plan.DefaultProvisioner, 1
	ctl.Listers.Classes = none[*storagev1.StorageClass]{}
	claim := &corev1.PersistentVolumeClaim{}
	claim.UID, claim.Annotations = "u", map[string]string{plan.SelectedNode: ctl.Node}
	_, _, verdict, err := ctl.decide(t.Context(), claim)
	if err != nil || verdict != (plan.Verdict{Action: plan.Ignore}) || server.counts+len(server.asked) > 0 {
		t.Errorf("%+v, %v, after %d counts and %q", verdict, err, server.counts, server.asked)
	}
}

// A volume's claim is found by UID, and has another volume only if one is named there.
func TestClaimOfVolume(t *testing.T) {
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: "u"}}}
	pv.Name = "pvc-u"
	for _, c := range []struct {
		uid               types.UID
		volume            string
		exists, elsewhere bool
	}{{"u", "", true, false}, {"u", "pvc-u", true, false}, {"u", "by-hand", true, true}, {"v", "by-hand", false, false}, {"", "", false, false}} {
		server := &api{claim: &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: c.volume}}}
		if server.claim.UID = c.uid; c.uid == "" {
			server.claim = nil
		}
		ctl, _ := stand(server, &shelf{})
		if exists, elsewhere, err := ctl.claimExists(t.Context(), pv); exists != c.exists || elsewhere != c.elsewhere || err != nil {
			t.Errorf("UID %q, volume %q: exists %t, elsewhere %t, %v", c.uid, c.volume, exists, elsewhere, err)
		}
	}
}
