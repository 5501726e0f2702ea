package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Many callers at once, some of them for the same volume, while others look and sweep. No call's
// volume is swept or shown as foreign, no descriptor and no lock is left.
func TestConcurrently(t *testing.T) {
	r := onDisk(t, mounted(t, "ext4", 64))
	before := descriptors(t)
	var makers, lookers sync.WaitGroup
	done := make(chan struct{})
	lookers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			_, err := r.Sweep(context.Background(), r.id)
			inventory, listErr := r.List(context.Background(), r.id)
			if err != nil || listErr != nil || len(inventory.Foreign) != 1 || len(inventory.Damaged) > 0 { // lost+found
				t.Errorf("%v, %v, foreign %q, damaged %v", err, listErr, inventory.Foreign, inventory.Damaged)
				return
			}
		}
	})
	for worker := range 16 {
		makers.Go(func() {
			for i := range 100 {
				name := pvName(i*8 + worker%8) // two workers for each
				if _, err := r.Create(context.Background(), r.id, spec(name)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	makers.Wait()
	close(done)
	lookers.Wait()
	if after := descriptors(t); after != before || len(r.fsyncs.next) > 0 {
		t.Errorf("%d descriptors, before %d; %d groups", after, before, len(r.fsyncs.next))
	}
	inventory, err := r.List(t.Context(), r.id)
	if err != nil || len(inventory.Volumes) != 800 || len(inventory.Leftovers) > 0 {
		t.Errorf("%v, %d volumes, %v", err, len(inventory.Volumes), inventory.Leftovers)
	}
}

func descriptors(t *testing.T) int {
	all, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(all)
}

// A caller whose context ends does not wait for the call before it.
func TestContext(t *testing.T) {
	r := onTmpfs(t)
	unlock, err := r.locks.Take(t.Context(), pv)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() error{
		"Create": func() error { _, err := r.Create(ctx, r.id, spec(pv)); return err },
		"Trash":  func() error { return r.Trash(ctx, r.id, pv) },
		"List":   func() error { _, err := r.List(ctx, r.id); return err },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context.Canceled", name, err)
		}
	}
	unlock()
	r.create(t, pv)
}

// Without a record a directory's name can only be guessed. While the pool has one of the usual
// name, its object does not go; without it nothing is left that could be in the way.
func TestNotRecorded(t *testing.T) {
	for _, name := range []string{"Trash", "Archive"} {
		r := onTmpfs(t)
		must(t, calls(r)[name]())
		write(t, filepath.Join(r.path, pv, "file"), "not ours")
		before := contents(t, r.path)
		if err := calls(r)[name](); !errors.Is(err, ErrNotRecorded) {
			t.Errorf("%s: got %v, want ErrNotRecorded", name, err)
		}
		if after := contents(t, r.path); after != before {
			t.Errorf("%s: left\n%swas\n%s", name, after, before)
		}
	}
}

// A directory that was begun goes, also without a record that Undo or the next try would take
// along.
func TestSweepStaging(t *testing.T) {
	r := onTmpfs(t)
	before := contents(t, r.path)
	must(t, os.Mkdir(r.meta("staging", pv), 0o700))
	if n, err := r.Sweep(t.Context(), r.id); n != 1 || err != nil || contents(t, r.path) != before {
		t.Errorf("%d, %v, left\n%swas\n%s", n, err, contents(t, r.path), before)
	}
}
