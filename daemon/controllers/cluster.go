package controllers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// cluster is what is known of the cluster, and what one daemon does for all: it counts nodes, reads
// classes and volumes that no watch brings, and tells claims that they fit on no node.
type cluster struct {
	*frame
	pools *pools

	nodes    nodeCount
	classes  classOwners
	driver   driver
	kept     *keptVolumes
	unplaced chan struct{} // a claim that has no node came or changed
}

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

// A class that the watch does not have is requested from the API server, because the claim's
// message tells whose it is; and every user who may create claims can name any number of such
// classes. So one name is requested once in askClassAgain, and at most askClassMost names: the
// other claims are told that the class does not exist here.
const (
	askClassAgain = time.Minute
	askClassMost  = 30
)

// classOwners are the provisioners of classes that were asked for lately, "" of those that do not
// exist.
type classOwners struct {
	mu    sync.Mutex
	known map[string]classOwner
}

type classOwner struct {
	provisioner string
	asked       time.Time
	learned     bool
}

// errClassRequested: a request for the same class is in flight. The claim is looked at again soon.
var errClassRequested = errors.New("a request for the class is in flight")

// classOf is the provisioner of a class, "" if it does not exist or too many were asked for.
func (c *cluster) classOf(ctx context.Context, name string) (string, error) {
	owner, ask := c.classes.take(name, time.Now())
	switch {
	case !ask && !owner.learned:
		return "", errClassRequested
	case !ask:
		return owner.provisioner, nil
	}
	provisioner, err := c.API.ClassProvisioner(ctx, name)
	c.classes.learn(name, provisioner, err)
	return provisioner, err
}

// take returns what is known of a class. Where that is nothing and there is room, ask is true, and
// the caller asks.
func (o *classOwners) take(name string, now time.Time) (owner classOwner, ask bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for other, owner := range o.known {
		if owner.learned && now.Sub(owner.asked) > askClassAgain {
			delete(o.known, other)
		}
	}
	if owner, known := o.known[name]; known {
		return owner, false
	}
	if len(o.known) >= askClassMost {
		return classOwner{learned: true}, false
	}
	if o.known == nil {
		o.known = map[string]classOwner{}
	}
	o.known[name] = classOwner{asked: now}
	return classOwner{}, true
}

// learn keeps what the API server returned, and nothing of a request that failed.
func (o *classOwners) learn(name, provisioner string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		delete(o.known, name)
		return
	}
	o.known[name] = classOwner{provisioner: provisioner, asked: o.known[name].asked, learned: true}
}

// How long what was read of the CSIDriver counts. Nothing in it that matters can be changed, but
// the object can be deleted and made anew.
const (
	driverGood    = time.Minute
	driverLacking = 5 * time.Second
)

// driver is what was read of the daemon's CSIDriver last.
type driver struct {
	mu    sync.Mutex
	why   string
	until time.Time
}

// lacks returns why pods would not start on volumes with source csi, "" if they would. Claims that
// come meanwhile wait for the one request.
func (d *driver) lacks(ctx context.Context, api Reader, name string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Now().Before(d.until) {
		return d.why, nil
	}
	object, err := api.GetDriver(ctx, name)
	if err != nil {
		return "", err
	}
	d.why = plan.LacksDriver(name, object)
	kept := driverGood
	if d.why != "" {
		kept = driverLacking
	}
	d.until = time.Now().Add(kept)
	return d.why, nil
}
