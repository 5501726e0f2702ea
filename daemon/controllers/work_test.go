package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Of many items as many are worked on at once as there are workers, and each of them once.
func TestWorkersShareAQueue(t *testing.T) {
	for items, want := range map[int]int{2: 2, 3: 3, 100: 3} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			done, now, most := map[item]int{}, 0, 0
			q := newQueue()
			for n := range items {
				q.Add(item{name: fmt.Sprint(n)})
			}
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					work(t.Context(), q, func(i item) (time.Duration, error) {
						mu.Lock()
						now++
						most, done[i] = max(most, now), done[i]+1
						mu.Unlock()
						time.Sleep(time.Second)
						mu.Lock()
						defer mu.Unlock()
						now--
						return 0, nil
					})
				})
			}
			time.Sleep(time.Hour)
			q.ShutDown()
			all.Wait()
			for i, times := range done {
				if times != 1 {
					t.Errorf("item %s was done %d times", i.name, times)
				}
			}
			if len(done) != items || most != want {
				t.Errorf("%d of %d items are done, %d at once, want %d", len(done), items, most, want)
			}
		})
	}
}

// An item that fails is done again after a growing delay, one that asks for a time at that time,
// and one that is done not again.
func TestWhenAnItemComesAgain(t *testing.T) {
	for name, c := range map[string]struct {
		task func(times int) (time.Duration, error)
		want []time.Duration // since the first time
	}{
		"done":              {func(int) (time.Duration, error) { return 0, nil }, []time.Duration{0}},
		"failed four times": {failingTimes(4), []time.Duration{0, 100, 300, 700, 1500}},
		"later, once": {func(times int) (time.Duration, error) {
			return time.Duration(1-min(times, 1)) * time.Minute, nil
		}, []time.Duration{0, 60_000}},
		"failed, later, failed: the delay begins anew": {func(times int) (time.Duration, error) {
			if times == 1 {
				return time.Second, nil
			}
			return failingTimes(3)(times)
		}, []time.Duration{0, 100, 1100, 1200}},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue()
			q.Add(item{name: "a"})
			began, at := time.Now(), []time.Duration{}
			go work(t.Context(), q, func(item) (time.Duration, error) {
				at = append(at, time.Since(began)/time.Millisecond)
				return c.task(len(at) - 1)
			})
			time.Sleep(time.Hour)
			q.ShutDown()
			synctest.Wait()
			if !slices.Equal(at, c.want) {
				t.Errorf("%s: done after %d ms, want %d", name, at, c.want)
			}
		})
	}
}

func failingTimes(times int) func(int) (time.Duration, error) {
	return func(n int) (time.Duration, error) {
		if n < times {
			return 0, errors.New("busy")
		}
		return 0, nil
	}
}

// A worker whose context ended takes no item more, however many wait.
func TestWorkEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q, done := newQueue(), 0
	for n := range 10 {
		q.Add(item{name: fmt.Sprint(n)})
	}
	work(ctx, q, func(item) (time.Duration, error) {
		if done++; done == 3 {
			cancel()
		}
		return 0, nil
	})
	if done != 3 || q.Len() == 0 {
		t.Errorf("%d items are done, %d wait", done, q.Len())
	}
	q.ShutDown()
}
