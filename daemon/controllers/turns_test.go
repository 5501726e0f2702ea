package controllers

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Namespaces take turns, however many copies of one came first, and each has its own in their
// order.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all turns
		if err := all.take(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		var had []string
		ask := func(ctx context.Context, namespace, name string) {
			go func() {
				if err := all.take(ctx, namespace); err == nil {
					had = append(had, name)
					all.give()
				}
			}()
			synctest.Wait()
		}
		ended, end := context.WithCancel(t.Context())
		for _, name := range []string{"a1", "a2", "a3"} {
			ask(t.Context(), "a", name)
		}
		ask(ended, "b", "b0")
		ask(t.Context(), "b", "b1")
		ask(t.Context(), "c", "c1")
		ask(t.Context(), "b", "b2")
		end()
		synctest.Wait()
		all.give()
		synctest.Wait()
		if want := []string{"b1", "c1", "a1", "b2", "a2", "a3"}; !slices.Equal(had, want) {
			t.Errorf("turns %q, want %q", had, want)
		}
		if all.busy || len(all.waiting)+len(all.had) > 0 {
			t.Errorf("something is left: %+v", &all)
		}
	})
}

// What fits when a snapshot is asked for may not fit when its copy has its turn.
func TestSnapshotFits(t *testing.T) {
	_, w, a, _ := snapshotting(t)
	w.SnapshotSpace = 2 << 20
	made := volume.Spec{Record: record.Record{Kind: record.Snapshot, PV: handle, Namespace: "ns", Requested: 1 << 20}}
	h, _ := w.disk.Open(t.Context())
	for i, want := range []error{nil, nil, errSnapshotSpace} {
		if err := snapshotFits(w, h, made); !errors.Is(err, want) {
			t.Errorf("beside %d others: %v", i, err)
		}
		other := record.Record{Kind: record.Snapshot, PV: "other-" + string(rune('a'+i)), Namespace: "ns", Requested: 1 << 20, Place: record.InPool}
		a.records[other.PV] = other
	}
}
