package daemon

import (
	"errors"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
)

func TestSentence(t *testing.T) {
	free, more := uint64(3<<30), uint64(4<<30)
	open := PoolStatus{Name: "fast", Open: true, Free: &free, Volumes: 2}
	onOne, onSame, onOther := open, open, open
	onOne.Device, onSame.Device, onOther.Device, onSame.Free = "8:1", "8:1", "8:2", &more
	closed := PoolStatus{Name: "slow", Message: "/srv/slow is not a mount point"}
	full := PoolStatus{Name: "fast", Full: true, Message: "only 3 MiB are free"}
	for name, c := range map[string]struct {
		s    Status
		want string
	}{
		"open":                  {Status{Node: "a", Ready: true, Pools: []PoolStatus{open}}, "1 of 1 pool open on node a, 2 volumes, 3.0 GiB for new ones"},
		"one of two closed":     {Status{Node: "a", Ready: true, Pools: []PoolStatus{open, closed}}, "pool slow is closed: /srv/slow is not a mount point; 1 of 2 pools open on node a, 2 volumes, 3.0 GiB for new ones"},
		"two on one filesystem": {Status{Node: "a", Ready: true, Pools: []PoolStatus{onOne, onSame, onOther}}, "3 of 3 pools open on node a, 6 volumes, 7.0 GiB for new ones"},
		"a loop that stands still": {
			Status{Node: "a", Ready: true, Stalled: "no progress", Pools: []PoolStatus{open}},
			"no progress; 1 of 1 pool open on node a, 2 volumes, 3.0 GiB for new ones",
		},
		"full":                            {Status{Node: "a", Ready: true, Pools: []PoolStatus{full}}, "pool fast is full: only 3 MiB are free; 0 of 1 pool open on node a, 0 volumes, 0 B for new ones"},
		"a node without an object":        {Status{Node: "b", Ready: true, NodeUnknown: true, Pools: []PoolStatus{open}}, `the cluster has no node "b", claims wait for it; 1 of 1 pool open on node b, 2 volumes, 3.0 GiB for new ones`},
		"before the API was read":         {Status{Node: "a", Pools: []PoolStatus{open}}, "reading the API; 1 of 1 pool open on node a, 3.0 GiB for new ones"},
		"the API away, and a pool closed": {Status{Node: "a", API: "connection refused", Pools: []PoolStatus{closed}}, "waiting for the API: connection refused; pool slow is closed: /srv/slow is not a mount point; 0 of 1 pool open on node a, 0 B for new ones"},
		"a pool that was taken out":       {Status{Node: "a", Ready: true, Left: map[string]int{"old": 2}, Pools: []PoolStatus{open}}, "pool old is not configured and has 2 volumes; 1 of 1 pool open on node a, 2 volumes, 3.0 GiB for new ones"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sentence(c.s); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestStatusFile(t *testing.T) {
	dir := t.TempDir()
	defer syscall.Umask(syscall.Umask(0o077)) // as the unit has it
	if _, err := ReadStatus(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no daemon: %v, want fs.ErrNotExist", err)
	}
	want := Status{Time: time.Unix(1, 0).UTC(), PID: 7, Version: "v", Node: "a", Provisioner: "p", Ready: true, Sentence: "s",
		Pools: []PoolStatus{{Name: "fast", Path: "/srv/fast", Reason: "NotMounted", Message: "m", Warnings: []string{"w"}, Since: time.Unix(2, 0).UTC()}}}
	if err := want.write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := ReadStatus(dir)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if info, err := os.Stat(dir + "/" + StatusFile); err != nil || info.Mode() != 0o644 {
		t.Errorf("other users cannot run the status command: %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(dir+"/"+StatusFile, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadStatus(dir); err == nil {
		t.Error("half a file is read without an error")
	}
}

// Right after a start it is not known what a pool's volumes were promised: nothing is said to be
// free.
func TestRoomBeforeItWasCounted(t *testing.T) {
	for scope, known := range map[string]bool{plan.ScopeNode: false, plan.ScopeEveryNode: false, plan.ScopeShared: true} {
		free := uint64(1 << 30)
		p := PoolStatus{Name: "fast", Open: true, Size: 2 << 30, Free: &free, Scope: scope}
		p.promise(capacity.Room{}, 0, false)
		said := strings.Contains(sentence(Status{Node: "a", Ready: true, Pools: []PoolStatus{p}}), "for new ones")
		if (p.Free != nil) != known || said != known {
			t.Errorf("%s: free %v, said %t", scope, p.Free, said)
		}
		p.promise(capacity.Room{Free: 5}, 0, true)
		if known && freeBytes(p) != 5 {
			t.Errorf("%s: %d are free", scope, freeBytes(p))
		}
	}
}

// freeBytes is Free, 0 where that is absent.
func freeBytes(p PoolStatus) uint64 {
	if p.Free == nil {
		return 0
	}
	return *p.Free
}
