package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// What the controllers do with claims, volumes and pools is tested in test/e2e against a real API
// server and real disks. Here are only the parts that it cannot time.

// stuck is a disk whose calls hang until they are let go.
type stuck struct {
	Disk
	entered chan struct{}
	free    chan struct{}
}

func (s stuck) Create(context.Context, mounts.Identity, Making) error {
	s.entered <- struct{}{}
	<-s.free
	return nil
}

// A worker does not wait for a call that hangs longer than the pool is open.
func TestAnsweringLetsGoWhenThePoolCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stuck{entered: make(chan struct{}, 1), free: make(chan struct{})}
		defer close(s.free)
		shutter := &shutter{every: time.Hour}
		answered := make(chan error, 1)
		go func() {
			answered <- answering{s, shutter, make(chan struct{}, 1)}.Create(t.Context(), mounts.Identity{}, Making{})
		}()
		synctest.Wait()
		if len(s.entered) != 1 || len(answered) > 0 {
			t.Fatal("it was answered while the pool was open")
		}
		shutter.drop()
		synctest.Wait()
		if len(answered) == 0 {
			t.Fatal("the pool is closed, and the worker waits for the call")
		}
		if err := <-answered; !errors.Is(err, ErrMoved) {
			t.Errorf("got %v, want ErrMoved, which is tried again", err)
		}
	})
}

// A call that hangs for ever keeps no other claim of the pool waiting once that closed and opened again;
// nor does one that waits for it stay when the pool closes.
func TestAnsweringGivesSeatsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stuck{entered: make(chan struct{}, 2), free: make(chan struct{})}
		defer close(s.free)
		disk := answering{s, &shutter{every: time.Hour}, make(chan struct{}, 1)}
		answers := make(chan error, 2)
		create := func() { answers <- disk.Create(t.Context(), mounts.Identity{}, Making{}) }
		for range 2 { // and once more when the pool has opened again
			go create()
			go create()
			synctest.Wait()
			if n := len(s.entered); n != 1 {
				t.Fatalf("%d volumes are made at once, with one seat", n)
			}
			<-s.entered
			disk.shutter.drop()
			for range 2 {
				if err := <-answers; !errors.Is(err, ErrMoved) {
					t.Errorf("got %v, want ErrMoved, which is tried again", err)
				}
			}
		}
	})
}

// A call that takes long makes the pool be looked at, again and again; those that do not, however many
// they are, do not.
func TestAnsweringLooksWhenACallTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kick := make(chan struct{}, 1)
		shutter := &shutter{kick: kick, every: time.Second}
		for range 100 {
			_, end := shutter.begin()
			time.Sleep(300 * time.Millisecond) // of the bubble's clock
			end()
		}
		if len(kick) > 0 {
			t.Error("short calls made the pool be looked at")
		}
		began := time.Now()
		_, end := shutter.begin()
		var looks []time.Duration
		for range 3 {
			<-kick
			looks = append(looks, time.Since(began))
		}
		for i, at := range looks {
			if late := at - time.Duration(i+1)*time.Second; late < 0 || late >= time.Second {
				t.Errorf("look %d after %s, want one for each second", i+1, at)
			}
		}
		end()
		time.Sleep(time.Minute)
		shutter.mu.Lock()
		defer shutter.mu.Unlock()
		if len(kick) > 0 || shutter.armed {
			t.Error("it goes on without a call")
		}
	})
}

// A pool that closed and opened again lets the next calls wait.
func TestShutterOpensAgain(t *testing.T) {
	s := &shutter{}
	first := s.shut()
	s.drop()
	<-first
	select {
	case <-s.shut():
		t.Error("a call that came after the pool closed is let go at once")
	default:
	}
}
