package storagecapacity

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var errAway = errors.New("the API server is away")

// cluster is an API server that keeps what is written, and counts the requests.
type cluster struct {
	mu       sync.Mutex
	objects  map[string]Object
	driver   *Driver
	nodes    map[string]string
	requests int
	away     bool
	refuses  bool   // all rights are missing
	unlisted string // the class whose objects a policy refuses
	version  int
	enabled  func(objects map[string]Object) // called when the scheduler begins to compare
	deleting func()                          // called before each deletion
	failing  int                             // the number of the request that fails, 0 for none
	writes   int                             // of the driver, tried
	log      bytes.Buffer
	lost     map[int]bool // numbers of those that another daemon's write comes before
}

func (c *cluster) begin() (func(), error) {
	c.mu.Lock()
	c.requests++
	if c.away || c.requests == c.failing {
		return c.mu.Unlock, errAway
	}
	if c.refuses {
		return c.mu.Unlock, apierrors.NewForbidden(schema.GroupResource{Resource: "csidrivers"}, "p", errors.New("no right"))
	}
	return c.mu.Unlock, nil
}

func (c *cluster) Capacities(_ context.Context, node string) (all []Object, err error) {
	end, err := c.begin()
	defer end()
	for _, name := range slices.Sorted(maps.Keys(c.objects)) {
		if o := c.objects[name]; node == "" || o.Node == node {
			all = append(all, o)
		}
	}
	return all, err
}

func (c *cluster) CreateCapacity(_ context.Context, o Object) error {
	end, err := c.begin()
	defer end()
	if err == nil && o.Class == c.unlisted {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "capacities"}, o.Name,
			errors.New("the class is not listed"))
	}
	if err == nil {
		c.objects[o.Name] = o
	}
	return err
}

func (c *cluster) UpdateCapacity(_ context.Context, o Object) (bool, error) {
	end, err := c.begin()
	defer end()
	if _, there := c.objects[o.Name]; !there || err != nil {
		return false, err
	}
	c.objects[o.Name] = o
	return true, nil
}

func (c *cluster) DeleteCapacity(_ context.Context, name string) error {
	if c.deleting != nil {
		c.deleting()
	}
	end, err := c.begin()
	defer end()
	if err == nil {
		delete(c.objects, name)
	}
	return err
}

func (c *cluster) Driver(context.Context) (*Driver, error) {
	end, err := c.begin()
	defer end()
	if c.driver == nil || err != nil {
		return nil, err
	}
	d := *c.driver
	return &d, nil
}

func (c *cluster) SetDriver(_ context.Context, d Driver) (bool, error) {
	end, err := c.begin()
	defer end()
	c.writes++
	if err != nil || c.driver == nil || c.driver.Version != d.Version || c.lost[c.writes] {
		return false, err
	}
	if d.Enabled && !c.driver.Enabled && c.enabled != nil {
		c.enabled(c.objects)
	}
	c.version++
	d.Version = time.Duration(c.version).String()
	c.driver = &d
	return true, nil
}

func (c *cluster) Hostnames(context.Context) (map[string]string, error) {
	end, err := c.begin()
	defer end()
	return maps.Clone(c.nodes), err
}

// sizes are the published ones by class and node.
func (c *cluster) sizes() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]int64{}
	for _, o := range c.objects {
		all[o.Class+"/"+o.Node] = o.Bytes
	}
	return all
}

func (c *cluster) sent() int { c.mu.Lock(); defer c.mu.Unlock(); return c.requests }

// node is a Publisher, and what is wanted of it.
type node struct {
	*Publisher
	mu      sync.Mutex
	wanted  map[string]uint64 // by class
	unknown bool
	ended   error // how the last turn ended
}

func (n *node) told() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ended
}

func (n *node) want(class string, bytes uint64) {
	n.mu.Lock()
	n.wanted[class] = bytes
	n.mu.Unlock()
	n.Changed()
}

func newNode(c *cluster, name string, enabled bool, wanted map[string]uint64) *node {
	n := &node{wanted: wanted}
	n.Publisher = New(Options{
		Provisioner: "p", Node: name, Enabled: enabled, API: c, Log: slog.New(slog.NewTextHandler(&c.log, nil)), Mend: "the command",
		Requested: func(err error) { n.mu.Lock(); n.ended = err; n.mu.Unlock() },
		Wanted: func() (all []Object, ok bool) {
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, class := range slices.Sorted(maps.Keys(n.wanted)) {
				all = append(all, NodeObject("p", name, "host-"+name, class, Owner{name, "uid-" + name}, n.wanted[class], ""))
			}
			return all, !n.unknown
		},
		Classes: func() []string { n.mu.Lock(); defer n.mu.Unlock(); return slices.Collect(maps.Keys(n.wanted)) },
	})
	return n
}

func newCluster(nodes ...string) *cluster {
	c := &cluster{objects: map[string]Object{}, driver: &Driver{UID: "d", Ours: true}, nodes: map[string]string{}}
	for _, name := range nodes {
		c.nodes[name] = "host-" + name
	}
	return c
}

func runFor(t *testing.T, n *node, d time.Duration, then func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { n.Run(ctx); close(ended) }()
	time.Sleep(d)
	synctest.Wait()
	then()
	cancel()
	<-ended
}

func wantSizes(t *testing.T, c *cluster, want map[string]int64, when string) {
	t.Helper()
	if got := c.sizes(); !maps.Equal(got, want) {
		t.Errorf("%s: published are %v, want %v", when, got, want)
	}
}

// More is published at once, none at all too, and less when it has been less for a while, or a
// claim was refused for it.
func TestRaisedAtOnceAndLoweredLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster("a")
		n := newNode(c, "a", true, map[string]uint64{"c": 100})
		runFor(t, n, time.Second, func() {
			step := func(bytes uint64, wait time.Duration, want int64, when string) {
				t.Helper()
				n.want("c", bytes)
				time.Sleep(wait)
				synctest.Wait()
				wantSizes(t, c, map[string]int64{"c/a": want}, when)
			}
			step(200, 0, 200, "more")
			step(150, 0, 200, "less")
			step(150, lowerAfter+perRequest, 150, "less for a while")
			step(0, 0, 0, "none")
			step(90, 0, 90, "more again")
			step(80, 0, 90, "less")
			n.Refused()
			synctest.Wait()
			wantSizes(t, c, map[string]int64{"c/a": 80}, "less, and a claim was refused")
		})
	})
}

// The scheduler compares nothing before there is something to compare, for each class, and the
// nodes that publish nothing can be chosen.
func TestComparedAfterThePublication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster("a", "old")
		c.enabled = func(objects map[string]Object) {
			if len(objects) != 4 {
				t.Errorf("enabled with %v", objects)
			}
		}
		n := newNode(c, "a", true, map[string]uint64{"c": 100, "d": 50})
		runFor(t, n, time.Second, func() {
			wantSizes(t, c, map[string]int64{"c/a": 100, "d/a": 50, "c/": Unbounded, "d/": Unbounded}, "published")
			if !c.driver.Enabled {
				t.Error("the scheduler does not compare")
			}
			for _, o := range c.objects {
				if o.Node == "" && !slices.Equal(o.Hostnames, []string{"host-old"}) {
					t.Errorf("for %v", o.Hostnames)
				}
			}
		})
		other := newNode(c, "old", true, map[string]uint64{"c": 7, "d": 8})
		runFor(t, other, time.Minute, func() {
			wantSizes(t, c, map[string]int64{"c/a": 100, "d/a": 50, "c/old": 7, "d/old": 8}, "the other node publishes, too")
		})
	})
}

// Without the driver of the manifests nothing is published, nor as long as a pool was not counted.
func TestNothingIsPublished(t *testing.T) {
	for name, c := range map[string]struct {
		driver  *Driver
		unknown bool
	}{"no driver": {nil, false}, "another program's": {&Driver{UID: "d"}, false}, "not counted": {&Driver{UID: "d", Ours: true}, true}} {
		synctest.Test(t, func(t *testing.T) {
			api := newCluster("a")
			api.driver = c.driver
			n := newNode(api, "a", true, map[string]uint64{"c": 100})
			n.unknown = c.unknown
			runFor(t, n, time.Minute, func() {
				wantSizes(t, api, map[string]int64{}, name)
				if api.driver != nil && api.driver.Enabled {
					t.Errorf("%s: the scheduler compares", name)
				}
			})
		})
	}
}

// What earlier classes left is deleted, and a class that went takes its object along.
func TestObjectsOfClassesThatWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster("a")
		c.objects["left"] = Object{Name: "left", Class: "gone", Node: "a"}
		c.objects["others"] = Object{Name: "others", Class: "c", Node: "b"}
		n := newNode(c, "a", true, map[string]uint64{"c": 100, "d": 1})
		runFor(t, n, time.Second, func() {
			n.mu.Lock()
			delete(n.wanted, "d")
			n.mu.Unlock()
			n.Changed()
			synctest.Wait()
			wantSizes(t, c, map[string]int64{"c/a": 100, "c/b": 0}, "a class went")
		})
	})
}

// A hundred claims a second come and go on a node with five classes: less than one request a second
// is sent, and in the end what is published is right. So it is while the API server fails.
func TestRequestsUnderChurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster("a")
		classes := map[string]uint64{"1": 0, "2": 0, "3": 0, "4": 0, "5": 0}
		n := newNode(c, "a", true, classes)
		runFor(t, n, time.Second, func() {
			const lasts = 5 * time.Minute
			before := c.sent()
			for i := range 100 * int(lasts/time.Second) {
				time.Sleep(10 * time.Millisecond)
				for class := range 5 {
					n.want(string(rune('1'+class)), uint64(1000+i*7919%500))
				}
				if i%50 == 0 {
					n.Refused()
				}
			}
			sent := c.sent() - before
			t.Logf("%d requests in %s", sent, lasts)
			if limit := int(lasts / time.Second); sent >= limit || sent < limit/4 {
				t.Errorf("%d requests in %s", sent, lasts)
			}
			for class := range 5 {
				n.want(string(rune('1'+class)), 5000)
			}
			time.Sleep(time.Minute)
			wantSizes(t, c, map[string]int64{"1/a": 5000, "2/a": 5000, "3/a": 5000, "4/a": 5000, "5/a": 5000}, "after the churn")
			c.away, before = true, c.sent()
			n.want("1", 6000)
			time.Sleep(time.Minute)
			if sent := c.sent() - before; sent < 3 || sent > 10 {
				t.Errorf("%d requests in a minute to a server that is away", sent)
			}
		})
	})
}

// A node that stops publishing can be chosen as before, and one that is removed cannot. The last
// one has the scheduler compare nothing, before its objects go.
func TestWithdraw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster("a", "b")
		for _, name := range []string{"a", "b"} {
			runFor(t, newNode(c, name, true, map[string]uint64{"c": 100}), time.Minute, func() {})
		}
		wantSizes(t, c, map[string]int64{"c/a": 100, "c/b": 100}, "both publish")
		off := newNode(c, "a", false, map[string]uint64{"c": 100})
		runFor(t, off, time.Minute, func() {})
		wantSizes(t, c, map[string]int64{"c/b": 100, "c/": Unbounded}, "one is switched off")
		gone := newNode(c, "b", true, map[string]uint64{"c": 100})
		if err := gone.Withdraw(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		wantSizes(t, c, map[string]int64{}, "the last one is removed")
		if c.driver.Enabled {
			t.Error("the scheduler compares, and there is nothing to compare")
		}
	})
}

// Fifty daemons that start at once: the nodes that publish nothing are reviewed a few times, and
// each of the fifty is known.
func TestManyNodesStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 50 {
			name := "n" + string(rune('a'+i%25)) + string(rune('a'+i/25))
			c.change(func() { c.nodes[name] = "host-" + name })
			n := newNode(c, name, true, map[string]uint64{"c": 100})
			all.Go(func() { n.Run(ctx) })
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := c.sizes(); len(got) != 50 || !c.driver.Enabled {
			t.Errorf("%d objects, compared: %t", len(got), c.driver.Enabled)
		}
		if sent := c.sent(); sent > 50*12 {
			t.Errorf("%d requests of 50 nodes", sent)
		}
		cancel()
		all.Wait()
	})
}

// A class that comes soon after a review is reviewed, too: what the scheduler compares is there for
// it, and for the nodes that publish nothing.
func TestClassAfterAReview(t *testing.T) {
	for _, first := range []map[string]uint64{{}, {"c": 100}} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster("a", "old")
			n := newNode(c, "a", true, first)
			runFor(t, n, time.Second, func() {
				if c.driver.Reviewed.IsZero() {
					t.Fatal("no review")
				}
				n.want("d", 50)
				time.Sleep(reviewGap + 10*perRequest)
				synctest.Wait()
				sizes := c.sizes()
				if !c.driver.Enabled || sizes["d/a"] != 50 || sizes["d/"] != Unbounded {
					t.Errorf("compared: %t, published: %v", c.driver.Enabled, sizes)
				}
			})
		})
	}
}
