package controllers

import (
	"context"
	"sync"
	"time"
)

// nodeCount is how many nodes the cluster has, as it was counted at most age ago. While it cannot
// be counted, and while a request for it takes longer than a worker waits, it is the last known
// number.
func (c *cluster) nodeCount(ctx context.Context, age time.Duration) int {
	n := &c.nodes
	n.mu.Lock()
	if time.Since(n.counted) <= age || time.Since(n.failed) <= min(age, countAgain) {
		defer n.mu.Unlock()
		return n.number
	}
	flight := n.flight
	if flight == nil {
		flight = make(chan struct{})
		n.flight = flight
		go c.countNodes(ctx, flight)
	}
	wait := countWait
	if n.counted.IsZero() {
		wait = firstCountWait
	}
	n.mu.Unlock()
	select {
	case <-flight:
	case <-ctx.Done():
	case <-time.After(wait):
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.number
}

// last is the last known number, however old.
func (n *nodeCount) last() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.number
}

func (c *cluster) countNodes(ctx context.Context, flight chan struct{}) {
	number, err := c.API.NodeCount(ctx)
	c.OptionalRequest("the number of nodes", err)
	n := &c.nodes
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.flight = nil; err == nil {
		n.number, n.counted = number, time.Now()
	} else {
		n.failed = time.Now()
	}
	close(flight)
}

const (
	// countAgain is how long one failure to count the nodes counts for all workers.
	countAgain = 5 * time.Second
	// countWait is how long a worker waits for the number, of an API server that takes long.
	countWait = time.Second
	// firstCountWait is the same before there is any number: a node that is alone would leave
	// claims to others.
	firstCountWait = 10 * time.Second
)

// nodeCount is what is known of the cluster's size. Until it was counted there is another node:
// asking it first costs a moment, racing it costs more.
type nodeCount struct {
	mu      sync.Mutex
	number  int
	counted time.Time
	failed  time.Time     // when it could not be counted last
	flight  chan struct{} // closed when the request under way has its response, nil without one
}
