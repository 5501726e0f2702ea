package controllers

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// cluster is what is known of the cluster, and what one daemon does for all: it counts nodes, reads
// classes and volumes that no watch brings, and tells claims that they fit on no node.
type cluster struct {
	*frame
	pools *pools

	nodes    nodeCount
	classes  lately[classOwner]
	driver   lately[string] // why volumes with source csi would not be mounted, "" if they would
	asking   sync.Mutex     // held while that is read
	kept     *keptVolumes
	unplaced chan struct{} // a claim that has no node came or changed
}

// claimCame has claims without a node gone through.
func (c *cluster) claimCame() { wake.Signal(c.unplaced) }

// nodeCount is how many nodes the cluster has, as it was counted at most age ago. While it cannot
// be counted, and while a request for it takes longer than a worker waits, it is the last known
// number.
func (c *cluster) nodeCount(ctx context.Context, age time.Duration) int {
	n := &c.nodes
	n.mu.Lock()
	fresh := time.Since(n.counted) <= age || time.Since(n.failed) <= min(age, countAgain)
	wait := countWait
	if n.counted.IsZero() {
		wait = firstCountWait
	}
	if !fresh && n.flight == nil {
		n.flight = make(chan struct{})
		go c.countNodes(ctx, n.flight)
	}
	flight := n.flight
	n.mu.Unlock()
	if !fresh {
		wake.Wait(ctx, wait, flight)
	}
	return c.lastNodeCount()
}

// countedLately is nodeCount of the last minute.
func (c *cluster) countedLately(ctx context.Context) int { return c.nodeCount(ctx, time.Minute) }

// lastNodeCount is the last known number, however old.
func (c *cluster) lastNodeCount() int {
	n := &c.nodes
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

// lately has what the API server responded lately, by what it was asked about. The zero value is
// ready for use.
type lately[T any] struct {
	mu  sync.Mutex
	all map[string]response[T]
}

type response[T any] struct {
	is    T
	until time.Time // it counts
}

// get returns a response that still counts.
func (l *lately[T]) get(key string) (is T, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known(key)
}

// known forgets what does not count any more.
func (l *lately[T]) known(key string) (is T, known bool) {
	now := time.Now()
	maps.DeleteFunc(l.all, func(_ string, one response[T]) bool { return !now.Before(one.until) })
	one, known := l.all[key]
	return one.is, known
}

// keep keeps a response for so long.
func (l *lately[T]) keep(key string, is T, lasts time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(key, is, lasts)
}

func (l *lately[T]) put(key string, is T, lasts time.Duration) {
	put(&l.all, key, response[T]{is, time.Now().Add(lasts)})
}

// A class that the watch does not have is requested from the API server, because the claim's
// message tells whose it is; and every user who may create claims can name any number of such
// classes. So one name is requested once in askClassAgain, and at most askClassMost names: the
// other claims are told that the class does not exist here.
const (
	askClassAgain = time.Minute
	askClassMost  = 30
)

// classOwner is the provisioner of a class, "" of one that does not exist.
type classOwner struct {
	provisioner string
	requested   bool // and there is no response yet
}

// errClassRequested: a request for the same class is in flight. The claim is looked at again soon.
var errClassRequested = errors.New("a request for the class is in flight")

// classOf is the provisioner of a class, "" if it does not exist or too many were asked for.
func (c *cluster) classOf(ctx context.Context, name string) (string, error) {
	switch owner, ask := c.takeClass(name); {
	case owner.requested:
		return "", errClassRequested
	case !ask:
		return owner.provisioner, nil
	}
	provisioner, err := c.API.ClassProvisioner(ctx, name)
	lasts := askClassAgain
	if err != nil {
		lasts = 0
	}
	c.classes.keep(name, classOwner{provisioner: provisioner}, lasts)
	return provisioner, err
}

// takeClass returns what is known of a class. Where that is nothing and there is room, ask is true,
// and the caller asks.
func (c *cluster) takeClass(name string) (owner classOwner, ask bool) {
	c.classes.mu.Lock()
	defer c.classes.mu.Unlock()
	if owner, known := c.classes.known(name); known || len(c.classes.all) >= askClassMost {
		return owner, false
	}
	c.classes.put(name, classOwner{requested: true}, askClassAgain)
	return classOwner{}, true
}

// How long what was read of the CSIDriver counts. Nothing in it that matters can be changed, but
// the object can be deleted and made anew.
const (
	driverGood    = time.Minute
	driverLacking = 5 * time.Second
)

// lacksDriver returns why pods would not start on volumes with source csi, "" if they would. Claims
// that come meanwhile wait for the one request.
func (c *cluster) lacksDriver(ctx context.Context) (string, error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	if why, known := c.driver.get(""); known {
		return why, nil
	}
	object, err := c.API.GetDriver(ctx, c.Provisioner)
	if err != nil {
		return "", err
	}
	why, lasts := plan.LacksDriver(c.Provisioner, object), driverGood
	if why != "" {
		lasts = driverLacking
	}
	c.driver.keep("", why, lasts)
	return why, nil
}
