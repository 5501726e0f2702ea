package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/trial"
)

// fast is the pool that goes on.
const fast = "fast"

// scene is one daemon with a pool for each call that can hang, one that goes on, and one to be yanked.
type scene struct {
	*trial.Trial
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

func build(ctx context.Context, t *trial.Trial, slack time.Duration) *scene {
	t.Start(ctx)
	s := &scene{Trial: t, slack: slack}
	at := filepath.Join(hosttest.Dir(t), fast)
	t.Pool(ctx, fast, at, func() { hosttest.Mkfs(t, "ext4", 128).Mount(t, at) })
	s.dir = filepath.Join(hosttest.Dir(t), "yanked")
	s.doomed = hosttest.Mkfs(t, "ext4", 32)
	t.Pool(ctx, "yanked", s.dir, func() { s.doomed.Mount(t, s.dir) })
	for i, c := range calls {
		p := &pool{name: "net-" + c.name, call: c.name, number: i, dir: filepath.Join(hosttest.Dir(t), "net"), volumes: map[string]string{}}
		t.Pool(ctx, p.name, p.dir, func() {
			var err error
			p.fs, err = hungfs.Start(p.dir)
			t.Must(err, "mounting hungfs")
		})
		s.pools = append(s.pools, p)
	}
	t.Say("starting the daemon with %d pools", len(calls)+2)
	t.Must(t.Daemon.Run(t.Soon()), "starting the daemon")
	return s
}

func (s *scene) stop() {
	for _, p := range s.pools {
		p.fs.Stop(p.dir)
	}
}

// named are some of the pools.
func (s *scene) named(calls ...string) (some []*pool) {
	for _, p := range s.pools {
		if slices.Contains(calls, p.call) {
			some = append(some, p)
		}
	}
	return some
}

// make makes a claim in a pool that answers, and remembers its volume.
func (s *scene) make(ctx context.Context, p *pool, claim string) {
	pv, err := s.Bound(ctx, p.name, claim)
	s.Must(err, "making a claim in pool "+p.name)
	p.volumes[claim] = pv
}

// fill writes to a volume, so that its removal has something to do.
func (s *scene) fill(p *pool, claim string) {
	dir := filepath.Join(p.dir, p.volumes[claim])
	s.Must(os.Mkdir(filepath.Join(dir, "directory"), 0o700), "filling a volume")
	s.Must(os.WriteFile(filepath.Join(dir, "directory", "file"), []byte("x"), 0o600), "filling a volume")
}
