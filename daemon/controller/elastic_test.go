package controller

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// elasticOf has this many items waiting for 3 workers, each of which takes a second; it returns how many were
// worked on at once at most.
func elasticOf(t *testing.T, items int) (most int) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		done, now := map[item]int{}, 0
		q := newQueue()
		c := &elasticWorkers{queue: q, workers: 3, task: func(i item) (time.Duration, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			now--
			done[i]++
			return 0, nil
		}}
		for n := range items {
			q.Add(item{name: fmt.Sprint(n)})
		}
		var all sync.WaitGroup
		c.work(t.Context(), &all)
		time.Sleep(time.Hour)
		if len(done) != items || q.Len() > 0 || c.helpers.Load() != 0 {
			t.Errorf("%d of %d items are done, %d helpers are left", len(done), items, c.helpers.Load())
		}
		for i, times := range done {
			if times != 1 {
				t.Errorf("item %s was done %d times", i.name, times)
			}
		}
		q.ShutDown()
		all.Wait()
	})
	return most
}

// It fails with helpers that stay, and without any.
func TestElasticHelpsWhileManyWait(t *testing.T) {
	for items, want := range map[int]int{2: 2, 1 + 6: 3, 100: 6} {
		if most := elasticOf(t, items); most != want {
			t.Errorf("of %d items %d were worked on at once, want %d", items, most, want)
		}
	}
}

// The work ends while there are helpers: they end, too, with the items that they have.
func TestElasticEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := newQueue()
		c := &elasticWorkers{queue: q, workers: 3, task: func(item) (time.Duration, error) { time.Sleep(time.Second); return 0, nil }}
		for n := range 1000 {
			q.Add(item{name: fmt.Sprint(n)})
		}
		var all sync.WaitGroup
		c.work(ctx, &all)
		time.Sleep(10 * time.Second)
		if c.helpers.Load() != 3 {
			t.Errorf("%d helpers are at work, want 3", c.helpers.Load())
		}
		cancel()
		q.ShutDown()
		all.Wait()
		if c.helpers.Load() != 0 || q.Len() < 900 {
			t.Errorf("%d helpers and %d items are left", c.helpers.Load(), q.Len())
		}
	})
}
