package controller

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// elasticWorkers are the workers of a queue, and as many helpers that are there only while many items wait. An
// API server does less for each of many requests at once than for each of a few; but where claims come one
// after the other, more requests of ours take its time from those who make them, and a claim waits longer at
// the worst (make bench: backlog and burst).
type elasticWorkers struct {
	queue   queue
	workers int
	task    func(item) (time.Duration, error)
	helpers atomic.Int64
}

// work begins, until ctx ends or the queue shuts down.
func (c *elasticWorkers) work(ctx context.Context, all *sync.WaitGroup) {
	do := func(i item) (time.Duration, error) {
		if c.backlogged() {
			c.addHelper(ctx, all)
		}
		return c.task(i)
	}
	for range c.workers {
		all.Go(func() { work(ctx, c.queue, do) })
	}
}

// backlogged is a queue as after a restart beside backlogged claims.
func (c *elasticWorkers) backlogged() bool { return c.queue.Len() > 2*c.workers }

func (c *elasticWorkers) addHelper(ctx context.Context, all *sync.WaitGroup) {
	if c.helpers.Add(1) > int64(c.workers) {
		c.helpers.Add(-1)
		return
	}
	all.Go(func() {
		defer c.helpers.Add(-1)
		for c.backlogged() && takeOne(ctx, c.queue, c.task) {
		}
	})
}
