package volume

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

// A process that gives volumes their limits was stopped while it has the records locked. The first
// call of the daemon waits for it, the next ones do not, and none waits for longer than its
// context; when the lock is free, all is as before.
func TestRecordsLockedForLong(t *testing.T) {
	r, _ := onXFS(t)
	r.limited(t, "pvc-removed")
	must(t, r.Trash(t.Context(), r.id, "pvc-removed"))
	must(t, r.Discard(t.Context(), r.id, "pvc-removed"))
	volumes, err := unix.Open(r.meta("volumes"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	must(t, unix.Flock(volumes, unix.LOCK_EX))
	synctest.Test(t, func(t *testing.T) {
		within := func(limit time.Duration) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			t.Cleanup(cancel)
			return ctx
		}
		create := func(ctx context.Context) error { _, err := r.Create(ctx, r.id, limitedSpec(pv)); return err }
		if err := create(within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one that may wait for a second: %v", err)
		}
		for name, call := range map[string]func(context.Context) error{
			"create": create,
			"purge":  func(ctx context.Context) error { _, err := r.Pool.Purge(ctx, r.id, "pvc-removed"); return err },
			"sweep":  func(ctx context.Context) error { _, err := r.Sweep(ctx, r.id); return err },
		} {
			time.Sleep(time.Minute)
			if err := call(within(time.Minute)); !errors.Is(err, ErrApplying) {
				t.Errorf("%s: %v", name, err)
			}
			began := time.Now()
			if err := call(within(time.Minute)); !errors.Is(err, ErrApplying) || time.Since(began) > 0 {
				t.Errorf("%s again, after %v: %v", name, time.Since(began), err)
			}
		}
	})
	unix.Close(volumes)
	r.limited(t, pv)
	_, err = r.Pool.Purge(t.Context(), r.id, "pvc-removed")
	must(t, err)
}

// A process that gives many volumes their limits has the records locked for a moment for each. A
// call of the daemon waits for that moment, however long all of them take.
func TestRecordsLockedOften(t *testing.T) {
	r, _ := onXFS(t)
	volumes, err := unix.Open(r.meta("volumes"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(volumes)
	synctest.Test(t, func(t *testing.T) {
		for range 2 * excludedMost / time.Second {
			must(t, unix.Flock(volumes, unix.LOCK_EX))
			created := make(chan error, 1)
			go func() { _, err := r.Create(t.Context(), r.id, limitedSpec(pv)); created <- err }()
			time.Sleep(time.Second)
			must(t, unix.Flock(volumes, unix.LOCK_UN))
			must(t, <-created)
		}
	})
}

// A call of the daemon that waits for the records has them before the next volume gets its limit.
func TestApplyLetsTheDaemonWork(t *testing.T) {
	r, k, _ := unlimited(t)
	daemon := withQuotas(t, r.path, &BegunProjects{}, k)
	daemon.create(t, "pvc-other")
	synctest.Test(t, func(t *testing.T) {
		trashed := make(chan error, 1)
		r.atCrashPoint = func(name string) {
			if name == "record written" {
				go func() { trashed <- daemon.Trash(t.Context(), r.id, "pvc-other") }()
				synctest.Wait()
			}
		}
		for range 3 {
			_, err := r.Apply(t.Context(), r.id, pv, nil)
			must(t, err)
		}
		select {
		case err := <-trashed:
			must(t, err)
		default:
			t.Error("the daemon waits until all volumes have their limits")
		}
	})
}

// setting does something before a limit is set.
type setting struct {
	*kernel
	before func(l quota.Limit)
}

func (k *setting) Set(root int, id uint32, l quota.Limit) error {
	k.before(l)
	return k.kernel.Set(root, id, l)
}

// The daemon removes the last of a volume while its limit is about to be set: no limit is left of
// it.
func TestApplyWhilePurged(t *testing.T) {
	r, k, _ := unlimited(t)
	daemon := withQuotas(t, r.path, &BegunProjects{}, k)
	purge := func(ctx context.Context) error { _, err := daemon.Pool.Purge(ctx, r.id, pv); return err }
	r.atCrashPoint = func(name string) {
		if name == "walked" {
			must(t, daemon.Trash(t.Context(), r.id, pv))
			must(t, daemon.Discard(t.Context(), r.id, pv))
		}
	}
	var meanwhile error
	slow := *r.quotas.Load()
	slow.Kernel = &setting{k, func(quota.Limit) {
		synctest.Test(t, func(t *testing.T) { meanwhile = purge(t.Context()) })
	}}
	r.SetQuotas(&slow)
	_, err := r.Apply(t.Context(), r.id, pv, nil)
	must(t, errors.Join(err, purge(t.Context())))
	if _, err := r.Lookup(t.Context(), r.id, pv); !errors.Is(meanwhile, ErrApplying) || !errors.Is(err, ErrNotRecorded) || len(k.limits) != 0 {
		t.Errorf("%v, %v, limits are %v", meanwhile, err, k.limits)
	}
}
