package storagecapacity

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// change changes the cluster as another program would.
func (c *cluster) change(do func()) { c.mu.Lock(); defer c.mu.Unlock(); do() }

// Whichever request fails, the state is right after one more try, and what was left from before is
// gone.
func TestEachRequestFails(t *testing.T) {
	want := map[string]int64{"c/a": 100, "d/a": 50, "c/": Unbounded, "d/": Unbounded}
	for failing := 1; ; failing++ {
		sent := 0
		synctest.Test(t, func(t *testing.T) {
			c := newCluster("a", "old")
			c.failing = failing
			c.objects["left"] = Object{Name: "left", Class: "gone", Node: "a"}
			c.objects["earlier"] = Object{Name: "earlier", Class: "gone"}
			runFor(t, newNode(c, "a", true, map[string]uint64{"c": 100, "d": 50}), failedWait+reviewGap+time.Second, func() {
				wantSizes(t, c, want, fmt.Sprintf("request %d failed", failing))
				if !c.driver.Enabled {
					t.Errorf("request %d failed: the scheduler does not compare", failing)
				}
			})
			sent = c.sent()
		})
		if failing >= sent {
			return
		}
	}
}

// Whichever request of a withdrawal fails, it can be repeated. The scheduler never compares without
// an object of the node.
func TestEachRequestOfAWithdrawalFails(t *testing.T) {
	for failing, failed := 1, true; failed; failing++ {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster("a")
			n := newNode(c, "a", true, map[string]uint64{"c": 100, "d": 50})
			runFor(t, n, time.Second, func() {})
			c.failing = c.sent() + failing
			failed = n.Withdraw(t.Context(), false) != nil
			if c.driver.Enabled && len(c.sizes()) < 2 {
				t.Errorf("request %d failed: compared with %v", failing, c.sizes())
			}
			c.failing = 0
			if err := n.Withdraw(t.Context(), false); err != nil || c.driver.Enabled {
				t.Errorf("after request %d failed: %v, compared: %t", failing, err, c.driver.Enabled)
			}
			wantSizes(t, c, map[string]int64{}, fmt.Sprintf("request %d failed", failing))
		})
	}
}

// A node that cannot tell the other daemons that it leaves keeps its objects. A write that is lost
// is repeated.
func TestWithdrawalAgainstOtherWriters(t *testing.T) {
	for name, test := range map[string]struct {
		lost []int // of the withdrawal's writes of the driver: the time is written until it is won, and then the end
		gone bool
	}{
		"no other":                              {nil, true},
		"the time is written the last try":      {[]int{1, 2, 3, 4}, true},
		"the time is never written":             {[]int{1, 2, 3, 4, 5}, false},
		"the end is written the last try":       {[]int{2, 3}, true},
		"the end is written after the deletion": {[]int{2, 3, 4}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster("a")
			n := newNode(c, "a", true, map[string]uint64{"c": 100})
			runFor(t, n, time.Second, func() {})
			c.lost = map[int]bool{}
			for _, write := range test.lost {
				c.lost[c.writes+write] = true
			}
			err := n.Withdraw(t.Context(), false)
			if (err == nil) != test.gone || (len(c.sizes()) == 0) != test.gone || c.driver.Enabled == test.gone {
				t.Errorf("%s: %v, published %v, compared: %t", name, err, c.sizes(), c.driver.Enabled)
			}
		})
	}
}

// Of two nodes that leave at once each finds the other's objects: the one that goes last ends the
// comparison. Otherwise a node that comes later would never be chosen.
func TestTheLastNodesLeaveAtOnce(t *testing.T) {
	for name, fails := range map[string]bool{"at once": false, "at once, and the API fails after the deletion": true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster("a", "b")
			both := map[string]*node{}
			for node := range c.nodes {
				both[node] = newNode(c, node, true, map[string]uint64{"c": 100})
				runFor(t, both[node], time.Minute, func() {})
			}
			c.deleting = func() {
				c.deleting = nil
				if err := both["b"].Withdraw(t.Context(), true); err != nil {
					t.Error(err)
				}
				if fails {
					c.failing = c.sent() + 2
				}
			}
			if err := both["a"].Withdraw(t.Context(), true); (err != nil) != fails {
				t.Errorf("%s: %v", name, err)
			}
			if err := both["a"].Withdraw(t.Context(), true); err != nil {
				t.Errorf("%s, repeated: %v", name, err)
			}
			wantSizes(t, c, map[string]int64{}, name)
			if c.driver.Enabled {
				t.Errorf("%s: the scheduler compares, and there is nothing to compare", name)
			}
		})
	}
}

// A CSIDriver that was deleted keeps no object from going, and one of another program is not
// written.
func TestWithdrawWithoutTheDriver(t *testing.T) {
	for name, driver := range map[string]*Driver{"deleted": nil, "another program's": {UID: "other", Enabled: true}} {
		c := newCluster("a")
		c.driver = driver
		c.objects["left"] = Object{Name: "left", Class: "c", Node: "a"}
		c.objects["b"] = Object{Name: "b", Class: "c", Node: "b", Bytes: 5}
		if err := newNode(c, "a", true, nil).Withdraw(t.Context(), true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantSizes(t, c, map[string]int64{"c/b": 5}, name)
		if c.writes > 0 {
			t.Errorf("%s: the driver was written", name)
		}
	}
}

// An object that was deleted by hand is created when its size changes; after some minutes without
// the driver all is published anew.
func TestObjectsAndDriverTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster("a")
		n := newNode(c, "a", true, map[string]uint64{"c": 100})
		runFor(t, n, time.Second, func() {
			c.change(func() { clear(c.objects) })
			n.want("c", 200)
			synctest.Wait()
			wantSizes(t, c, map[string]int64{"c/a": 200}, "deleted by hand")

			driver := c.driver
			c.change(func() { c.driver = nil })
			time.Sleep(2 * reviewEvery)
			before := c.sent()
			n.want("c", 300)
			time.Sleep(time.Minute)
			if sent := c.sent() - before; sent > 1 {
				t.Errorf("%d requests in a minute without the driver", sent)
			}
			c.change(func() { clear(c.objects); c.driver = driver })
			time.Sleep(reviewEvery)
			wantSizes(t, c, map[string]int64{"c/a": 300}, "the driver is back")
		})
	})
}

// A restored etcd has what was published at an earlier time, when this node had less room. That is
// corrected though the room does not change, at one request in five minutes.
func TestObjectsOfARestoredCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster("a")
		n := newNode(c, "a", true, map[string]uint64{"c": 100, "d": 50})
		runFor(t, n, time.Second, func() {
			c.change(func() {
				for name, o := range c.objects {
					if o.Bytes = 0; o.Class == "c" {
						c.objects[name] = o
					} else {
						delete(c.objects, name)
					}
				}
			})
			time.Sleep(reviewEvery + time.Second)
			wantSizes(t, c, map[string]int64{"c/a": 100, "d/a": 50}, "restored")
			before := c.sent()
			time.Sleep(time.Hour)
			if sent := c.sent() - before; sent > 80 { // 66 of them are of the reviews
				t.Errorf("%d requests in an hour without a change", sent)
			}
		})
	})
}

// The nodes that publish nothing are those that the cluster has now, for the classes that it has
// now.
func TestNodesAndClassesThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster("a", "old")
		n := newNode(c, "a", true, map[string]uint64{"c": 100})
		others := func() map[string]string {
			all := map[string]string{}
			c.change(func() {
				for _, o := range c.objects {
					if o.Node == "" {
						all[o.Class] += fmt.Sprint(o.Hostnames)
					}
				}
			})
			return all
		}
		runFor(t, n, time.Second, func() {
			step := func(want map[string]string, wait time.Duration, when string) {
				t.Helper()
				time.Sleep(wait)
				if got := others(); !maps.Equal(got, want) {
					t.Errorf("%s: %v, want %v", when, got, want)
				}
			}
			step(map[string]string{"c": "[host-old]"}, 0, "one is silent")
			c.change(func() { c.nodes["new"] = "host-new" })
			step(map[string]string{"c": "[host-new host-old]"}, 2*reviewEvery, "a node came")
			n.want("d", 5)
			step(map[string]string{"c": "[host-new host-old]", "d": "[host-new host-old]"}, 2*reviewGap, "a class came")
			c.change(func() { delete(c.nodes, "old") })
			step(map[string]string{"c": "[host-new]", "d": "[host-new]"}, 2*reviewEvery, "a node went")
			c.change(func() { c.driver.Strict = true })
			step(map[string]string{}, 2*reviewEvery, "an administrator says that all publish")
		})
	})
}

// A provisioner whose name no CSIDriver can have asks the API server for nothing.
func TestPossible(t *testing.T) {
	for name, want := range map[string]bool{"p": true, "hostpath.example.com": true, "": false, "torchbox.com/hostpath": false, "Host": false,
		"a23456789.123456789.123456789.123456789.123456789.123456789.123": true, "a23456789.123456789.123456789.123456789.123456789.123456789.1234": false} {
		if got := plan.DriverNamePossible(name); got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
		synctest.Test(t, func(t *testing.T) {
			c := newCluster("a")
			n := newNode(c, "a", true, map[string]uint64{"c": 100})
			n.Provisioner = name
			runFor(t, n, time.Second, func() {})
			if asks := c.sent() > 0; asks != want {
				t.Errorf("%q: %d requests", name, c.sent())
			}
		})
	}
}

// What cannot be changed in an object is in its name, and its size is not, nor the order of the
// nodes.
func TestNames(t *testing.T) {
	owner := Owner{"n", "uid"}
	base := NodeObject("p", "n", "h", "c", owner, 1, "")
	if again := NodeObject("p", "n", "h", "c", owner, 1<<63+5, ""); again.Name != base.Name || again.Bytes != Unbounded {
		t.Errorf("of another size: %+v", again)
	}
	seen := map[string]bool{base.Name: true}
	for _, o := range []Object{
		NodeObject("q", "n", "h", "c", owner, 1, ""), NodeObject("p", "m", "h", "c", owner, 1, ""), NodeObject("p", "n", "i", "c", owner, 1, ""),
		NodeObject("p", "n", "h", "d", owner, 1, ""), NodeObject("p", "n", "h", "c", Owner{"n", "new"}, 1, ""), NodeObject("p", "nh", "", "c", owner, 1, ""),
		othersObject("p", "c", owner, []string{"h"}), othersObject("p", "c", owner, []string{"h", "i"}),
	} {
		if seen[o.Name] {
			t.Errorf("the name of another one: %+v", o)
		}
		seen[o.Name] = true
	}
	if a, b := othersObject("p", "c", owner, []string{"i", "h", "i"}), othersObject("p", "c", owner, []string{"h", "i"}); a.Name != b.Name || len(a.Hostnames) != 2 {
		t.Errorf("%+v, %+v", a, b)
	}
}

// Each turn that fails is told: a right that is missing with the command that gives it, which is
// asked for seldom; and that it is there.
func TestRefused(t *testing.T) {
	for name, c := range map[string]*cluster{"forbidden": {refuses: true}, "away": {away: true}} {
		synctest.Test(t, func(t *testing.T) {
			all := newCluster("a")
			all.refuses, all.away = c.refuses, c.away
			n := newNode(all, "a", true, map[string]uint64{"c": 100})
			runFor(t, n, time.Hour, func() {
				err := n.told()
				if err == nil || strings.HasSuffix(err.Error(), "mends it with: the command") != c.refuses {
					t.Errorf("%s: told %v", name, err)
				}
				if c.refuses && all.sent() > 61 {
					t.Errorf("%s: %d requests in an hour", name, all.sent())
				}
				all.mu.Lock()
				all.refuses, all.away = false, false
				all.mu.Unlock()
				time.Sleep(refusedWait)
				synctest.Wait()
				if err := n.told(); err != nil {
					t.Errorf("%s: told %v in the end", name, err)
				}
				wantSizes(t, all, map[string]int64{"c/a": 100}, name)
			})
		})
	}
}

// A class that the policies do not list waits by itself: the others are published and follow what
// there is, and the nodes that publish nothing are reviewed for them. It is told, tried once a
// minute, and published when the list has it. What of it is published from before stays.
func TestClassIsNotListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster("a", "old")
		c.unlisted = "new"
		n := newNode(c, "a", true, map[string]uint64{"c": 100, "new": 70, "z": 60})
		runFor(t, n, time.Minute, func() {
			want := map[string]int64{"c/a": 100, "z/a": 60, "c/": Unbounded, "z/": Unbounded}
			wantSizes(t, c, want, "not listed")
			told := n.told()
			if told == nil || !strings.Contains(told.Error(), "of class new is not published") ||
				!strings.HasSuffix(n.RefusedFor("new"), " is forbidden: the class is not listed") ||
				strings.Contains(n.RefusedFor("new"), "hostpath-") || n.RefusedFor("c") != "" {
				t.Errorf("told %v", told)
			}
			before := c.sent()
			n.want("c", 200)
			time.Sleep(time.Hour)
			if sent := c.sent() - before; sent > 60+80 {
				t.Errorf("%d requests in an hour", sent)
			}
			c.change(func() { c.unlisted = "" })
			time.Sleep(refusedWait + reviewEvery*2)
			wantSizes(t, c, map[string]int64{"c/a": 200, "z/a": 60, "new/a": 70,
				"c/": Unbounded, "z/": Unbounded, "new/": Unbounded}, "listed")
			if err := n.told(); err != nil || n.RefusedFor("new") != "" {
				t.Errorf("listed: told %v", err)
			}
			c.change(func() { c.unlisted = "c" })
			n.set("new", 0, false)
			n.want("c", 300)
			time.Sleep(10 * time.Second)
			if got := c.sizes(); got["c/a"] != 300 { // sizes are written whatever the list has
				t.Errorf("no longer listed: %v", got)
			}
			if _, there := c.sizes()["new/a"]; there || n.RefusedFor("new") != "" {
				t.Error("a class that went is published, or told")
			}
		})
	})
}
