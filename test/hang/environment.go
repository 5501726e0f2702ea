package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
)

// fast is the pool that goes on.
const fast = "fast"

// environment is one daemon with a pool for each call that can hang, one that goes on, and one to be yanked.
type environment struct {
	*harness.Environment
	pools  []*pool
	doomed hosttest.Image
	dir    string // of the pool to be yanked
	number int    // of rounds
	slack  time.Duration
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
	s := &environment{Environment: harness.Start(ctx, p, harness.Options{Metrics: true}), slack: slack}
	at := filepath.Join(hosttest.Dir(p), fast)
	s.add(ctx, fast, at, func() { hosttest.Mkfs(p, "ext4", 512).Mount(p, at) })
	s.dir = filepath.Join(hosttest.Dir(p), "yanked")
	s.doomed = hosttest.Mkfs(p, "ext4", 32)
	s.add(ctx, "yanked", s.dir, func() { s.doomed.Mount(p, s.dir) })
	for i, c := range calls {
		hung := &pool{name: "net-" + c.name, call: c.name, number: i, dir: filepath.Join(hosttest.Dir(p), "net"), volumes: map[string]string{}}
		s.add(ctx, hung.name, hung.dir, func() {
			var err error
			hung.fs, err = hungfs.Start(hung.dir)
			p.Must(err, "mounting hungfs")
		})
		s.pools = append(s.pools, hung)
	}
	p.Say("starting the daemon with %d pools", len(calls)+2)
	p.Must(s.Run(p.Soon()), "starting the daemon")
	p.Cleanup(func() error { // before the daemon is stopped, which could not end else
		for _, hung := range s.pools {
			hung.fs.Stop(hung.dir)
		}
		return nil
	})
	return s
}

// add makes a pool with a class of its name.
func (s *environment) add(ctx context.Context, name, path string, mount func()) {
	s.AddPool(harness.Pool{Name: name, Path: path, Mount: mount})
	s.AddClass(ctx, name, s.Node, harness.InPool(name))
}

// named are some of the pools.
func (s *environment) named(calls ...string) (some []*pool) {
	for _, p := range s.pools {
		if slices.Contains(calls, p.call) {
			some = append(some, p)
		}
	}
	return some
}

// make makes a claim in a pool that responds, and remembers its volume.
func (s *environment) make(ctx context.Context, p *pool, claim string) {
	pv, err := s.Bound(ctx, p.name, claim)
	s.Must(err, "making a claim in pool "+p.name)
	p.volumes[claim] = pv
}

// fill writes to a volume, so that its removal has something to do.
func (s *environment) fill(p *pool, claim string) {
	dir := filepath.Join(p.dir, p.volumes[claim])
	s.Must(os.Mkdir(filepath.Join(dir, "directory"), 0o700), "filling a volume")
	s.Must(os.WriteFile(filepath.Join(dir, "directory", "file"), []byte("x"), 0o600), "filling a volume")
}
