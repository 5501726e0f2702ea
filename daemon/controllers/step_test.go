package controllers

import (
	"errors"
	"reflect"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// What a process knows is given to another one, which knows nothing else then.
func TestMemory(t *testing.T) {
	c, w := stand(&api{}, &shelf{})
	defer c.End()
	if m := c.Memory(); len(m.Begun)+len(m.Unpublished)+len(m.Published)+len(m.Detached) > 0 {
		t.Errorf("at first it knows %+v", m)
	}
	c.begun.Begin(letGoKey("pvc-1"))
	c.inFlight.made("uid-1", w.Name)
	c.inFlight.published("uid-2")
	c.inFlight.seen("uid-3")
	account := capacity.Memory{Known: true, Of: mounts.Identity{Inode: 1},
		Volumes: map[string]capacity.Promise{
			"pvc-1": {Volume: 5, Archived: 1}, "pvc-uid-5": {Volume: 4},
		},
		Reserved: map[string]capacity.Ended{"pvc-uid-5": {}}}
	w.disk.Account.Remember(account)
	c.pods.remember([]string{"uid-5", "uid-6"}, c.pods.reserved)
	w.everyNode.Remember(map[string]bool{"uid-4": true})
	m := c.Memory()
	want := Memory{Begun: []string{letGoKey("pvc-1")}, Copies: map[string]error{}, Unpublished: map[string]string{"uid-1": w.Name}, Published: []string{"uid-2"},
		Promised: map[string]capacity.Memory{w.Name: account}, Held: []string{"uid-5", "uid-6"},
		Detached: map[string]bool{"uid-4": true}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("it knows %+v, want %+v", m, want)
	}
	other, its := stand(&api{}, &shelf{})
	defer other.End()
	its.Scope = plan.ScopeEveryNode
	other.begun.Begin("more")
	other.inFlight.made("uid-9", w.Name)
	other.workers[w.Name].disk.Account.Remember(capacity.Memory{Known: true, Volumes: map[string]capacity.Promise{"pvc-9": {Volume: 7}}})
	other.Remember(m)
	if got := other.Memory(); !reflect.DeepEqual(got, want) {
		t.Errorf("the other one knows %+v, want %+v", got, want)
	}
	if promised, known := other.workers[w.Name].disk.Account.Promised(); promised != 10 || !known {
		t.Errorf("%d bytes are promised, known: %t", promised, known)
	}
	for _, uid := range m.Held {
		_, err := other.Do(t.Context(), Work{Kind: WorkHeld, UID: uid})
		if err != nil || other.pods.has(uid) {
			t.Errorf("%s is held: %v", uid, err)
		}
	}
	if promised, _ := other.workers[w.Name].disk.Account.Promised(); promised != 6 {
		t.Errorf("%d bytes are promised, and none are held", promised)
	}
	if other.inFlight.awaited("uid-2") == 0 || !other.inFlight.busy("uid-1") {
		t.Error("it does not act on it")
	}
}

// Each kind of work is done once, by the worker of its pool, without the queues.
func TestDo(t *testing.T) {
	server := &api{}
	c, w := stand(server, &shelf{})
	defer c.End()
	c.Metrics, c.Events = deafToAll{}, &audience{}
	w.Probe, w.Opened = &mount{}, func(hostcheck.Marker) error { return nil }
	if !c.Begin(t.Context()) || c.Cluster() == "" {
		t.Fatal("it does not know its cluster")
	}
	c.inFlight.made("uid-1", w.Name)
	for _, kind := range []Kind{WorkVolume, WorkPurge, WorkRecords, WorkLook, WorkClaim} {
		if _, err := c.Do(t.Context(), Work{Kind: kind, Pool: w.Name, Namespace: "ns", Name: "pvc-1", UID: "uid-1"}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if m := c.Memory(); len(m.Unpublished) > 0 {
		t.Errorf("the claim is gone, and it knows %+v", m)
	}
}

// A copy that ended is known to the process that goes on, and what a process knew of copies before
// is forgotten.
func TestCopiesAreRemembered(t *testing.T) {
	c, _ := stand(&api{}, &shelf{})
	defer c.End()
	failed := errors.New("failed")
	c.Remember(Memory{Copies: map[string]error{"whole": nil, "broken": failed}})
	o, _ := c.copies.begin("goes on", func() {})
	if want := map[string]error{"whole": nil, "broken": failed}; !reflect.DeepEqual(c.Memory().Copies, want) {
		t.Errorf("it knows %v, want %v", c.Memory().Copies, want)
	}
	c.Remember(Memory{})
	if known, first := c.copies.begin("goes on", func() {}); len(c.Memory().Copies) > 0 || first || known != o {
		t.Errorf("it knows %v", c.Memory().Copies)
	}
}
