package plan

import (
	"fmt"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unplaced is a claim of 1 GiB that has had no node for long, of which this node is told that it
// fits on none.
func unplaced() UnplacedFacts {
	f := ready()
	delete(f.Claim.Annotations, SelectedNode)
	delete(f.Claim.Annotations, StorageProvisioner)
	offers := &Offers{}
	offers.Add("node-b", "", 300<<20)
	offers.Add("node-a", "", 300<<20)
	offers.Add("node-d", "", 0)
	offers.Add("node-c", "NotMounted", 0)
	return UnplacedFacts{Self: self, Claim: f.Claim, Class: f.Class, Here: 300 << 20, Nodes: 1, Age: time.Hour, Missing: time.Hour, Offers: offers}
}

// The order of the rules: what comes first decides.
func TestUnplacedPrecedence(t *testing.T) {
	immediate := storagev1.VolumeBindingImmediate
	for _, c := range []struct {
		name   string
		change func(*UnplacedFacts)
		want   Action
		after  time.Duration // at least
	}{
		{"it fits on no node", func(*UnplacedFacts) {}, Remind, OffersAgain},
		{"bound, and it fits on no node", func(f *UnplacedFacts) { f.Claim.Spec.VolumeName = "pv" }, Ignore, 0},
		{"going", func(f *UnplacedFacts) { f.Claim.DeletionTimestamp = &metav1.Time{} }, Ignore, 0},
		{"the scheduler chose a node", func(f *UnplacedFacts) { f.Claim.Annotations[SelectedNode] = them }, Ignore, 0},
		{"it names a node", func(f *UnplacedFacts) { f.Claim.Annotations[ProvisionOnNode] = them }, Ignore, 0},
		{"it is provided at once", func(f *UnplacedFacts) { f.Class.VolumeBindingMode = &immediate }, Ignore, 0},
		{"of an alias", func(f *UnplacedFacts) { f.Class.Provisioner = Rancher }, Ignore, 0},
		{"of no class", func(f *UnplacedFacts) { f.Class = nil }, Ignore, 0},
		{"it fits here, before its time", func(f *UnplacedFacts) { f.Here, f.Age = 1<<30, 0 }, Ignore, 0},
		{"before its time, and not asked", func(f *UnplacedFacts) { f.Age, f.Offers = 0, nil },
			Wait, chosenAfter},
		{"before its time, of a mistaken class", func(f *UnplacedFacts) {
			f.Age, f.Refusal = 0,
				refuse(ReasonBadParameter, "")
		}, Wait, chosenAfter},
		{"it fits here, of a mistaken class", func(f *UnplacedFacts) {
			f.Here, f.Refusal = 1<<30,
				refuse(ReasonBadParameter, "")
		}, Ignore, 0},
		{"not in the policies' list, and it would fit here", func(f *UnplacedFacts) {
			f.Here, f.Unpublished = 1<<30, "not listed"
		}, Remind, OffersAgain},
		{"not in the policies' list, before its time", func(f *UnplacedFacts) {
			f.Age, f.Unpublished = 0, "not listed"
		}, Wait, chosenAfter},
		{"another node may have its pool", func(f *UnplacedFacts) {
			f.Nodes, f.Refusal,
				f.Offers = 2, unknownPool(""), nil
		}, Inquire, 0},
		{"not asked", func(f *UnplacedFacts) { f.Offers, f.Missing = nil, 0 }, Inquire, 0},
		{"nothing is compared", func(f *UnplacedFacts) { f.Offers = &Offers{} }, Wait, OffersAgain},
		{"a node publishes nothing, since just now", func(f *UnplacedFacts) {
			f.Offers.Silent,
				f.Missing, f.Fitted = 1, settleAfter, true
		}, Wait, silentNodesAfter - settleAfter},
		{"a node publishes nothing", func(f *UnplacedFacts) { f.Offers.Silent = 1 }, Remind, OffersAgain},
		{"it fits elsewhere, since just now", func(f *UnplacedFacts) { f.Offers.Add("node-e", "", 1<<30); f.Missing = 0 }, Wait, OffersAgain},
		{"a little less than it fits elsewhere", func(f *UnplacedFacts) { f.Offers.Add("node-e", "", 1<<30-1) }, Remind, OffersAgain},
		{"it fits on no node since just now", func(f *UnplacedFacts) {
			f.Missing,
				f.Fitted = time.Second, true
		}, Wait, settleAfter - time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := unplaced()
			c.change(&f)
			got, reason := ForUnplaced(f), ""
			switch {
			case c.want != Remind:
			case f.Unpublished != "":
				reason = ReasonAPIRefused
			default:
				reason = ReasonNoNodeFits
			}
			if got.Action != c.want || got.After < c.after || got.Reason != reason {
				t.Errorf("%+v, want %s", got, c.want)
			}
		})
	}
}

// The message has what was asked and what there is, and is bounded.
func TestFitsNowhereMessage(t *testing.T) {
	f := unplaced()
	for _, c := range []struct {
		change func(*Offers)
		want   string
	}{
		{func(*Offers) {}, "no node is known to have room for the claim: it requests 1Gi, and of 4 nodes that publish their room the most that one can give to a volume of class fast is 300 MiB, on node-a; " +
			"nothing can be had on node-c (NotMounted), node-d; open the closed pools, add storage, remove volumes, or request less"},
		{func(o *Offers) { *o = Offers{}; o.Add("node-a", "NotMounted", 0) }, "no node is known to have room for the claim: it requests 1Gi, and of 1 node that publishes its room none can give a volume of class fast; " +
			"nothing can be had on node-a (NotMounted); open the closed pools"},
		{func(o *Offers) {
			*o = Offers{}
			o.Add("node-a", "NotMounted", 0)
			o.Add("node-b", ReasonUnknownPool, 0)
		}, "no node is known to have room for the claim: it requests 1Gi, and of 2 nodes that publish their room none can give a volume of class fast; " +
			"nothing can be had on node-a (NotMounted), node-b (UnknownPool); open the closed pools, or correct the class"},
		{func(o *Offers) { *o = Offers{}; o.Add("node-a", ReasonUnknownPool, 0) },
			"no node is known to have room for the claim: it requests 1Gi, and of 1 node that publishes its room none can give a volume of class fast; " +
				"nothing can be had on node-a (UnknownPool); correct the class"},
		{func(o *Offers) { *o = Offers{}; o.Add("node-a", "", 1) }, "no node is known to have room for the claim: it requests 1Gi, and of 1 node that publishes its room the most that one can give to a volume of class fast is 1 B, on node-a; " +
			"add storage, remove volumes, or request less"},
		{func(o *Offers) { o.Silent = 2 }, "no node is known to have room for the claim: it requests 1Gi, and of 1 node that publishes its room the most that one can give to a volume of class fast is 1 B, on node-a; " +
			"other nodes publish nothing (2), and the scheduler may choose one of them if the pod can run there; add storage, remove volumes, or request less"},
		{func(o *Offers) {
			*o = Offers{}
			for i := range 100 {
				o.Add(fmt.Sprintf("node-%02d", i), "", 0)
			}
		}, "no node is known to have room for the claim: it requests 1Gi, and of 100 nodes that publish their room none can give a volume of class fast; " +
			"nothing can be had on node-00, node-01, node-02 and 97 more; add storage, remove volumes, or request less"},
	} {
		c.change(f.Offers)
		if got := ForUnplaced(f).Message; got != c.want {
			t.Errorf("%s\nwant\n%s", got, c.want)
		}
	}
}

// A mistake in the class has its own sentence, at once; a pool that the only node does not have,
// too.
func TestMistakenClass(t *testing.T) {
	for _, refusal := range []*Refusal{refuse(ReasonUnknownParameter, "class c: unknown parameter"),
		unknownPool("class c: this node has no pool")} {
		f := unplaced()
		f.Offers, f.Missing, f.Refusal = nil, 0, refusal
		if got := ForUnplaced(f); got.Action != Remind || got.Reason != refusal.Reason ||
			got.Message != refusal.Message || got.After < OffersAgain {
			t.Errorf("%+v", got)
		}
	}
}

// The nodes look one after the other, in the same order at all claims of a class, and later ones
// more seldom, so that all together look hardly more often where there are many.
func TestTurns(t *testing.T) {
	for nodes, most := range map[int]float64{1: 1, 10: 10, 100: 16, 1000: 30} { // looks of all nodes within what the first one leaves between two
		looks := 0.0
		for i := range nodes {
			f := unplaced()
			f.Node, f.Nodes = fmt.Sprint("node-", i), nodes
			looks += float64(time.Minute) / float64(f.Again(time.Minute))
			other := f
			other.Claim = other.Claim.DeepCopy()
			other.Claim.UID = "other"
			if f.Again(time.Minute) != other.Again(time.Minute) || f.turn() > float64(nodes) {
				t.Fatalf("a turn of %f of %d nodes", f.turn(), nodes)
			}
		}
		if looks > most {
			t.Errorf("%d nodes look %.1f times a minute, want %.1f at most", nodes, looks, most)
		}
	}
}
