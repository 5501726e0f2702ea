package hang

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
)

// fast is the pool that goes on.
const fast = "fast"

// environment is one daemon with a pool for each call that can hang, one that goes on, and one to
// be yanked.
type environment struct {
	*harness.Environment
	pools  []*pool
	fast   string // directory of the pool that goes on
	doomed hosttest.Image
	dir    string // of the pool to be yanked
	number int    // of rounds
	slack  time.Duration

	service *csinode.Service
}

// pool is one that hangs.
type pool struct {
	name, call string
	number     int // in calls
	dir        string
	fs         *hungfs.FS
	volumes    map[string]string // by claim
}

func build(ctx context.Context, p *harness.Program, slack time.Duration) *environment {
	e := &environment{Environment: harness.Start(ctx, p, harness.Options{Metrics: true}), slack: slack}
	at := filepath.Join(hosttest.Dir(p), fast)
	e.fast = at
	e.add(ctx, fast, at, func() { hosttest.Mkfs(p, "ext4", 512).Mount(p, at) })
	e.dir = filepath.Join(hosttest.Dir(p), "yanked")
	e.doomed = hosttest.Mkfs(p, "ext4", 32)
	e.add(ctx, "yanked", e.dir, func() { e.doomed.Mount(p, e.dir) })
	for i, c := range calls {
		hung := &pool{name: "net-" + c.name, call: c.name, number: i, dir: filepath.Join(hosttest.Dir(p), "net"), volumes: map[string]string{}}
		e.add(ctx, hung.name, hung.dir, func() {
			var err error
			hung.fs, err = hungfs.Start(hung.dir)
			p.Must(err, "mounting hungfs")
		})
		e.pools = append(e.pools, hung)
	}
	p.Say("starting the daemon with %d pools", len(calls)+2)
	p.Must(e.Run(p.Soon()), "starting the daemon")
	e.serve()
	p.Cleanup(func() error { // before the daemon is stopped, which could not end else
		for _, hung := range e.pools {
			hung.fs.Stop(hung.dir)
		}
		return nil
	})
	return e
}

// add makes a pool with a class of its name.
func (e *environment) add(ctx context.Context, name, path string, mount func()) {
	e.AddPool(harness.Pool{Name: name, Path: path, Mount: mount})
	e.AddClass(ctx, name, e.Node, harness.InPool(name))
}

// named are some of the pools.
func (e *environment) named(calls ...string) (some []*pool) {
	for _, p := range e.pools {
		if slices.Contains(calls, p.call) {
			some = append(some, p)
		}
	}
	return some
}

// make makes a claim in a pool that responds, and remembers its volume.
func (e *environment) make(ctx context.Context, p *pool, claim string) {
	pv, err := e.Bound(ctx, p.name, claim)
	e.Must(err, "making a claim in pool "+p.name)
	p.volumes[claim] = pv
}

// fill writes to a volume, so that its removal has something to do.
func (e *environment) fill(p *pool, claim string) {
	dir := filepath.Join(p.dir, p.volumes[claim])
	e.Must(os.Mkdir(filepath.Join(dir, "directory"), 0o700), "filling a volume")
	e.Must(os.WriteFile(filepath.Join(dir, "directory", "file"), []byte("x"), 0o600), "filling a volume")
}
