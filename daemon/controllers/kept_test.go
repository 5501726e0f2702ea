package controllers

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// keptFor is a volume that is kept for a claim of this name.
func keptFor(name string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: name}}}
	pv.Name = "kept"
	return pv
}

// A claim for which no provisioner was asked has a volume only if no other one is kept for it, as
// far as that can be known. One for which this provisioner was asked has one whatever is kept.
func TestVolumeKeptForClaim(t *testing.T) {
	asked := map[string]string{plan.StorageProvisioner: "p"}
	for name, c := range map[string]struct {
		annotations map[string]string
		server      api
		may         bool
		reads       int
	}{
		"nothing is kept":                      {nil, api{}, true, 1},
		"for another claim":                    {nil, api{volume: keptFor("d")}, true, 1},
		"for this claim":                       {nil, api{volume: keptFor("c")}, false, 1},
		"too many volumes to look":             {nil, api{many: true}, false, 1},
		"no response":                          {nil, api{away: true}, false, 1},
		"a provisioner was asked":              {asked, api{volume: keptFor("c")}, true, 0},
		"the author named a node":              {map[string]string{plan.ProvisionOnNode: "node-a"}, api{volume: keptFor("c")}, true, 0},
		"a provisioner was asked, no response": {asked, api{away: true}, true, 0},
	} {
		ctl, _ := stand(&c.server, &shelf{})
		claim := &corev1.PersistentVolumeClaim{}
		claim.Namespace, claim.Name, claim.Annotations = "ns", "c", c.annotations
		may, err := ctl.mayProvision(t.Context(), claim)
		if may != c.may || (err != nil) != (c.server.away && c.reads > 0) || len(c.server.asked) != c.reads {
			t.Errorf("%s: %t, %v, requests %q", name, may, err, c.server.asked)
		}
	}
}

// slow responds after a second. Its volumes are those at the time of the request.
type slow struct {
	*api
	reads []time.Time
}

func (s *slow) FewVolumes(ctx context.Context, limit int64, visit func(*corev1.PersistentVolume)) (bool, error) {
	s.reads = append(s.reads, time.Now())
	all, err := s.api.FewVolumes(ctx, limit, visit)
	time.Sleep(time.Second)
	return all, err
}

// Claims that come while volumes are read share the next read. None is decided by a read that began
// before it came: a volume may have been kept for it meanwhile.
func TestReadsOfKeptVolumesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &slow{api: &api{}}
		k := newKeptVolumes()
		claim := &corev1.PersistentVolumeClaim{}
		claim.Namespace, claim.Name = "ns", "c"
		may := make(chan bool, 100)
		ask := func() {
			kept, err := k.mayBe(t.Context(), server, claim)
			if err != nil {
				t.Error(err)
			}
			may <- !kept
		}
		began := time.Now()
		go ask()
		time.Sleep(time.Millisecond)
		synctest.Wait()
		server.volume = keptFor("c")
		for range 50 {
			go ask()
		}
		time.Sleep(time.Minute)
		var yes []bool
		for range 51 {
			yes = append(yes, <-may)
		}
		if i := slices.Index(yes, true); i > 0 || len(server.reads) != 2 || !server.reads[1].Equal(began.Add(time.Second)) {
			t.Errorf("claims may be provisioned: %t; reads at %s", yes, server.reads)
		}
	})
}

// A claim is decided by the read that was for it, also if another one was made meanwhile, for other
// claims.
func TestReadOfAnotherClaim(t *testing.T) {
	s := &indexed{api: &api{}, identity: "one", kept: []*corev1.PersistentVolume{keptFor("a")}}
	k := newKeptVolumes()
	k.index.known.Store(&KeptIndex{Identity: "one"})
	a, b, d := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
	a.Namespace, a.Name, b.Name, d.Name = "ns", "a", "b", "d"
	first := k.join(a)
	for _, other := range []*corev1.PersistentVolumeClaim{b, d} {
		if kept, err := k.mayBe(t.Context(), s, other); kept || err != nil {
			t.Errorf("claim %s: kept %t, %v", other.Name, kept, err)
		}
	}
	if kept, err := k.found(t.Context(), s, first, a); !kept || err != nil {
		t.Errorf("a volume is kept for claim a; found %t, %v, by %s", kept, err, s.did.String())
	}
	if did := s.did.String(); strings.Count(did, "kept[") != 2 {
		t.Errorf("two reads are for three claims:%s", did)
	}
}

// A cluster with too many volumes is not read again for a while, and one that did not respond is.
func TestTooManyVolumesAreNotReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, k := &api{away: true}, newKeptVolumes()
		for _, step := range []struct {
			wait  time.Duration
			away  bool
			many  bool
			reads int
		}{{0, true, true, 1}, {1, true, true, 2}, {1, false, true, 3}, {manyAgain - 1, false, true, 3}, {1, false, false, 4}, {1, false, false, 5}} {
			time.Sleep(step.wait)
			server.away, server.many = step.away, step.many
			if _, err := k.mayBe(t.Context(), server, &corev1.PersistentVolumeClaim{}); (err != nil) != step.away || len(server.asked) != step.reads {
				t.Errorf("%+v: %v, %d reads", step, err, len(server.asked))
			}
		}
	})
}
