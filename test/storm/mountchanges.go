package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// act is one thing that happens to a mount, and how it ends.
type act struct {
	name     string
	do, undo func(*fixture) error
}

// acts are all that the storm knows. Each begins and ends with the pool mounted, once and writable.
var acts = []act{
	{"unmounted, mounted", (*fixture).unmount, (*fixture).mountReal},
	{"unmounted with -l, mounted", (*fixture).detach, (*fixture).mountReal},
	{"mount remounted read-only", readOnlyMount, writableMount},
	{"filesystem remounted read-only", readOnlyFilesystem, writableFilesystem},
	{"another filesystem in its place", swapIn, swapOut},
	{"another filesystem over it", (*fixture).mountOther, (*fixture).uncover},
	{"a directory bound over it", (*fixture).bindPlain, (*fixture).uncover},
	{"bound over itself", (*fixture).bindItself, (*fixture).uncover},
}

func readOnlyMount(s *fixture) error      { return s.remount(unix.MS_BIND | unix.MS_RDONLY) }
func writableMount(s *fixture) error      { return s.remount(unix.MS_BIND) }
func readOnlyFilesystem(s *fixture) error { return s.remount(unix.MS_RDONLY) }
func writableFilesystem(s *fixture) error { return s.remount(0) }

func swapIn(s *fixture) error {
	if err := s.detach(); err != nil {
		return err
	}
	return s.mountOther()
}

func swapOut(s *fixture) error {
	if err := s.uncover(); err != nil {
		return err
	}
	return s.mountReal()
}

// uncover takes away what is on top, if need be while it is in use.
func (s *fixture) uncover() error {
	err := s.unmount()
	if errors.Is(err, unix.EBUSY) {
		err = s.detach()
	}
	return err
}

// mountChanges makes the changes, and counts them.
type mountChanges struct {
	random *rand.Rand
	cycles int
	count  map[string]int // by act
	busy   map[string]int // by act: the kernel refused it, because the daemon worked there
}

func newMountChanges(seed uint64) *mountChanges {
	return &mountChanges{random: rand.New(rand.NewPCG(seed, 0)), count: map[string]int{}, busy: map[string]int{}}
}

// volumeEvery is after how many cycles the mount stays until a volume was made.
const volumeEvery = 50

// run changes the mount until the context ends or so many cycles are done (0: no limit). At the
// beginning and after each volumeEvery cycles it waits for a volume.
func (w *mountChanges) run(ctx context.Context, s *fixture, cycles int, awaitVolume func() error) error {
	for ; ctx.Err() == nil && (cycles == 0 || w.cycles < cycles); w.cycles++ {
		if w.cycles%volumeEvery == 1 {
			if err := awaitVolume(); err != nil {
				return err
			}
		}
		a := acts[w.random.IntN(len(acts))]
		if err := w.once(s, a); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		w.pause(20 * time.Millisecond)
	}
	return nil
}

func (w *mountChanges) once(s *fixture, a act) error {
	err := a.do(s)
	for tries := 0; errors.Is(err, unix.EBUSY) && tries < 100; tries++ {
		w.busy[a.name]++
		err = a.do(s)
	}
	if errors.Is(err, unix.EBUSY) {
		return nil // the daemon works there all the time; the other acts do not ask
	}
	if err != nil {
		return err
	}
	w.count[a.name]++
	w.pause(4 * time.Millisecond)
	err = a.undo(s)
	for end := time.Now().Add(harness.Timeout); errors.Is(err, unix.EBUSY) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		err = a.undo(s)
	}
	return err
}

// pause waits not at all, for some turns of the processor, or up to so long: the daemon has to see
// all stages of a fault, and to find a pool that it can work in.
func (w *mountChanges) pause(limit time.Duration) {
	switch w.random.IntN(3) {
	case 0:
	case 1:
		for end := time.Now().Add(time.Duration(w.random.Int64N(int64(limit / 20)))); time.Now().Before(end); {
		}
	default:
		time.Sleep(time.Duration(w.random.Int64N(int64(limit))))
	}
}
