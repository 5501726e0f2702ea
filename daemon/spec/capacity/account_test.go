package capacity

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

var directory = mounts.Identity{Inode: 1}

var hundred = Space{Size: 100, Available: 100, Overcommit: 1}

func take(t *testing.T, a *Account, volume string, bytes uint64) *Taken {
	t.Helper()
	taken, err := a.Take(volume, bytes, hundred)
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

func promises(t *testing.T, a *Account, want uint64, when string) {
	t.Helper()
	if got, _ := a.Promised(); got != want {
		t.Errorf("%s: %d promised, want %d", when, got, want)
	}
}

// A refusal has what is free, promised and asked, and takes nothing.
func TestTakeRefuses(t *testing.T) {
	a := NewBook().Account("fast")
	take(t, a, "first", 70).End(true)
	_, err := a.Take("second", 31, hundred)
	want := FullError{Room{30, 100, 70, [3]Held{{"first", 70}}}, 31}
	if full := new(FullError); !errors.As(err, &full) || *full != want {
		t.Errorf("got %+v", err)
	}
	promises(t, a, 70, "refused")
	take(t, a, "second", 30).End(true)
	promises(t, a, 100, "what is left")
}

// A creation that is repeated costs nothing, also where nothing is left, and one that left nothing
// is free again.
func TestTakeAgain(t *testing.T) {
	a := NewBook().Account("fast")
	take(t, a, "v", 80).End(true)
	if room := a.RoomFor("v", hundred); room.Free != 80 {
		t.Errorf("what was promised before is not there for the same volume: %+v", room)
	}
	again := take(t, a, "v", 80)
	promises(t, a, 80, "twice")
	again.End(false)
	promises(t, a, 0, "its record is gone")
	take(t, a, "w", 100).End(false)
	promises(t, a, 0, "failed")
}

// Several calls for one volume: one that was left behind in a hung pool, and its repetition. The
// record may be there as long as one of them wrote it.
func TestCallsForOneVolume(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, second bool
		released      bool
		want          uint64
		certain       bool
	}{
		{"both kept", true, true, false, 10, true},
		{"both lost", false, false, false, 0, true},
		{"lost last", true, false, false, 10, false},
		{"lost first", false, true, false, 10, false},
		{"removed meanwhile", true, true, true, 10, false},
		{"removed meanwhile, and not made again", false, false, true, 0, true},
	} {
		a := NewBook().Account("fast")
		one, two := take(t, a, "v", 10), take(t, a, "v", 10)
		if c.released {
			a.Release("v")
		}
		one.End(c.first)
		if certain := two.End(c.second); certain != c.certain {
			t.Errorf("%s: certain: %t", c.name, certain)
		}
		promises(t, a, c.want, c.name)
	}
}

// Room that is reserved is nobody else's, and costs the volume nothing more when it is made. What
// was not made is free again; what was made meanwhile stays.
func TestReserve(t *testing.T) {
	a := NewBook().Account("fast")
	reserve := func(volume string, bytes uint64) *Taken {
		t.Helper()
		taken, err := a.Reserve(volume, bytes, hundred)
		if err != nil {
			t.Fatal(err)
		}
		return taken
	}
	v, w := reserve("v", 60), reserve("w", 40)
	if again := reserve("v", 60); again != nil {
		t.Error("reserved twice")
	}
	if _, err := a.Take("other", 1, hundred); !errors.As(err, new(*FullError)) {
		t.Errorf("what is reserved was given to another one: %v", err)
	}
	take(t, a, "v", 60).End(true)
	promises(t, a, 100, "made")
	count := a.Count(directory)
	count.Done(map[string]Promise{"v": {Volume: 60}})
	promises(t, a, 100, "counted")
	if !v.Drop() || !w.Drop() {
		t.Error("the records have to be counted")
	}
	promises(t, a, 60, "dropped")
	take(t, a, "x", 40).End(true)
	if taken := reserve("x", 40); taken != nil {
		t.Error("reserved for a volume that is there")
	}
	x := reserve("y", 0)
	take(t, a, "y", 0).End(false)
	x.Drop()
	promises(t, a, 100, "what failed")
}

func TestGrow(t *testing.T) {
	a := NewBook().Account("fast")
	take(t, a, "v", 40).End(true)
	take(t, a, "w", 40).End(true)
	if _, err := a.Grow("v", 61, hundred); !errors.As(err, new(*FullError)) {
		t.Errorf("grown by 21 where 20 are left: %v", err)
	}
	grown, err := a.Grow("v", 60, hundred)
	if err != nil {
		t.Fatal(err)
	}
	promises(t, a, 100, "growing")
	grown.End(false)
	promises(t, a, 80, "the growth failed")
	for _, size := range []uint64{60, 10} {
		if grown, err = a.Grow("v", size, hundred); err != nil {
			t.Fatal(err)
		}
		grown.End(true)
		promises(t, a, 40+size, "grown, then less")
	}
}

// Of a count that lasts: what was made or removed since it began is as the account has it, what is
// unreadable stays, and all the rest is as it was read.
func TestCount(t *testing.T) {
	a := NewBook().Account("fast")
	for _, volume := range []string{"gone", "damaged", "kept", "purged"} {
		take(t, a, volume, 10).End(true)
	}
	making := take(t, a, "making", 5)
	count := a.Count(directory)
	read := map[string]Promise{"kept": {Volume: 11, Archived: 1}, "purged": {Volume: 10}, "adopted": {Volume: 3}, "half made": {Volume: 50}}
	a.Release("purged")
	take(t, a, "made", 7).End(true)
	take(t, a, "half made", 4).End(false)
	count.Done(read, "damaged", "kept")
	promises(t, a, 10+5+12+3+7, "counted")
	gone, adopted := held(a, "gone"), held(a, "adopted")
	if !a.Known(directory) || a.Known(mounts.Identity{Inode: 2}) || gone != 0 || adopted == 0 {
		t.Error("the account is not that of the directory that was counted")
	}
	making.End(true)
	a.Release("kept") // what is in the archive under the same name stays
	promises(t, a, 10+5+1+3+7, "ended")
	a.Count(directory).Cancel()
	a.Forget()
	if a.Known(directory) || len(a.touched) != 0 {
		t.Errorf("known after it was forgotten, or %v is remembered for no count", a.touched)
	}
}

// 128 workers and not one byte twice.
func TestWorkersAreNotPromisedTheSame(t *testing.T) {
	for range 100 {
		a := NewBook().Account("fast")
		var all sync.WaitGroup
		var had atomic.Int32
		for worker := range 128 {
			all.Go(func() {
				if taken, err := a.Take(fmt.Sprint(worker), 3, hundred); err == nil {
					had.Add(1)
					taken.End(true)
				}
			})
		}
		all.Wait()
		if had.Load() != 33 {
			t.Fatalf("%d volumes of 3 bytes in 100", had.Load())
		}
		promises(t, a, 99, "all workers")
	}
}

func held(a *Account, volume string) uint64 {
	p, _ := a.PromisedTo(volume)
	return p.all()
}

// The volumes to which most is promised are named, in the same order each time.
func TestLargest(t *testing.T) {
	a := NewBook().Account("fast")
	for volume, bytes := range map[string]uint64{"a": 10, "b": 30, "c": 20, "d": 20, "e": 5} {
		take(t, a, volume, bytes).End(true)
	}
	for range 10 {
		if got, want := a.Room(Space{}).Largest, [3]Held{{"b", 30}, {"c", 20}, {"d", 20}}; got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}
