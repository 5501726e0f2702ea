package storagecapacity

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// churn changes what is wanted ten times a second, which is more often than the budget has
// requests.
func (n *node) churn(lasts time.Duration, change func(i int)) {
	for i := range int(lasts / (100 * time.Millisecond)) {
		change(i)
		time.Sleep(100 * time.Millisecond)
	}
}

// set wants so much of a class, or nothing of one that went.
func (n *node) set(class string, bytes uint64, there bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wanted[class] = bytes; !there {
		delete(n.wanted, class)
	}
}

// Whatever changes all the time, the rest is right soon: objects of classes that went are deleted,
// what is too high is lowered, and nodes that come and publish nothing can be chosen.
func TestNothingWaitsForEver(t *testing.T) {
	for name, change := range map[string]func(n *node, i int){
		"classes come and go": func(n *node, i int) {
			n.set(fmt.Sprint("class", i/50), 1, true)
			n.set(fmt.Sprint("class", i/50-3), 0, false)
		},
		"a class comes and goes":                 func(n *node, i int) { n.set("flaps", 1, i%2 == 0) },
		"the room of a class changes":            func(n *node, i int) { n.set("flaps", uint64(1000+i*7919%500), true) },
		"the room grows in a class all the time": func(n *node, i int) { n.set("flaps", uint64(i), true) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster("a")
			n := newNode(c, "a", true, map[string]uint64{"c": 100, "gone": 5})
			runFor(t, n, time.Minute, func() {
				before := c.sent()
				c.change(func() { c.nodes["new"] = "host-new" })
				n.set("c", 50, true)
				n.set("gone", 0, false)
				n.churn(3*reviewEvery, func(i int) { change(n, i); n.Changed() })
				sent, sizes := c.sent()-before, c.sizes()
				t.Logf("%s: %d requests", name, sent)
				if _, left := sizes["gone/a"]; left || sizes["c/a"] != 50 || sizes["c/"] != Unbounded {
					t.Errorf("%s: published are %v", name, sizes)
				}
				if len(sizes) > 20 {
					t.Errorf("%s: %d objects", name, len(sizes))
				}
				if most := int(3 * reviewEvery / time.Second); sent >= most {
					t.Errorf("%s: %d requests in %d s", name, sent, most)
				}
			})
		})
	}
}

// A daemon that starts again, and has nothing new to publish, sends two requests: one reads the
// driver, one the node's objects.
func TestRequestsOfARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster("old")
		for i, most := range []int{5, 2, 2} { // and one review the first time
			before := c.sent()
			startAll(t, c, 50)
			sent := c.sent() - before
			t.Logf("start %d: %d requests of 50 nodes", i, sent)
			if got := c.sizes(); len(got) != 51 || !c.driver.Enabled {
				t.Errorf("start %d: %d objects, compared: %t", i, len(got), c.driver.Enabled)
			}
			if sent > 50*most+50 {
				t.Errorf("start %d: %d requests of 50 nodes, want %d of each", i, sent, most)
			}
		}
	})
}

// startAll starts so many nodes at once, and ends them a minute later.
func startAll(t *testing.T, c *cluster, nodes int) {
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := range nodes {
		name := fmt.Sprintf("n%03d", i)
		c.change(func() { c.nodes[name] = "host-" + name })
		n := newNode(c, name, true, map[string]uint64{"c": 100})
		all.Go(func() { n.Run(ctx) })
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	cancel()
	all.Wait()
}

// When the last node that publishes is deleted from the cluster its objects go with it. The daemons
// that publish nothing end the comparison then, and one of them does it for all: nodes that come
// could never be chosen otherwise.
func TestLastPublishingNodeIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster("a", "silent", "quiet")
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for _, name := range []string{"silent", "quiet"} {
			n := newNode(c, name, false, map[string]uint64{"c": 100})
			all.Go(func() { n.Run(ctx) })
		}
		runFor(t, newNode(c, "a", true, map[string]uint64{"c": 100}), 12*reviewEvery, func() {
			wantSizes(t, c, map[string]int64{"c/a": 100, "c/": Unbounded}, "one publishes")
			if reviews := c.writes; reviews > 2*13 {
				t.Errorf("the driver was written %d times in an hour", reviews)
			}
		})
		c.change(func() {
			delete(c.nodes, "a")
			for name, o := range c.objects {
				if o.Node == "a" {
					delete(c.objects, name)
				}
			}
		})
		time.Sleep(4 * reviewEvery)
		synctest.Wait()
		if c.driver.Enabled {
			t.Error("the scheduler compares, and there is nothing to compare")
		}
		wantSizes(t, c, map[string]int64{}, "the last one was deleted")
		cancel()
		all.Wait()
	})
}

// A node with more classes than it may publish at once has published all of them before the
// scheduler compares.
func TestManyClassesAreCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, wanted := newCluster("a"), map[string]uint64{}
		for i := range 3 * burst {
			wanted[fmt.Sprint(i)] = 100
		}
		c.enabled = func(objects map[string]Object) {
			if len(objects) < len(wanted) {
				t.Errorf("enabled with %d of %d objects", len(objects), len(wanted))
			}
		}
		runFor(t, newNode(c, "a", true, wanted), 4*burst*perRequest, func() {
			if !c.driver.Enabled {
				t.Error("the scheduler does not compare")
			}
		})
	})
}
