package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/prober"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// Errors of Open, wrapped.
var (
	// ErrUnknown: no pool that is configured here has a record of the volume.
	ErrUnknown = errors.New("not recorded on this node")
	// ErrClosed: the volume's pool is closed. The text is the gate's own.
	ErrClosed = errors.New("is closed")
	// ErrMismatch: the object says something else than the record.
	ErrMismatch = errors.New("the volume's attributes and its record differ")
)

// Within is how long a pool's storage has to respond. kubelet waits 2 minutes for a volume
// (pkg/volume/csi, csiTimeout).
const Within = 5 * time.Second

// Pools are the configured pools.
type Pools struct {
	load     func() (config.Config, error)
	stateDir string
	wait     stalledCalls

	mu    sync.Mutex
	valid bool
	last  config.Config // the last valid configuration
	pools map[string]*pool
}

// pool is a configured pool, with what its marker was when it was remembered last.
type pool struct {
	config.Pool
	node       string
	before     []config.Pool
	remembered string
	probe      *hostcheck.Prober
	store      *volume.Pool
}

// NewPools returns the pools of the configuration that load returns. It is called for each volume,
// so that a changed configuration counts at once; while it has errors, the last valid one counts.
// within is how long storage has to respond.
func NewPools(load func() (config.Config, error), stateDir string, within time.Duration) *Pools {
	return &Pools{load: load, stateDir: stateDir, wait: newStalledCalls(within), pools: map[string]*pool{}}
}

// Config returns the configuration that counts now.
func (p *Pools) Config() (config.Config, error) {
	cfg, err := p.load()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.last, p.valid = cfg, true
	case !p.valid:
		return config.Config{}, err
	}
	return p.last, nil
}

// check looks at a pool now. A report that is not Removable has nothing in it that may be opened.
func (p *Pools) check(ctx context.Context, cfg config.Config, of config.Pool) (*volume.Pool, hostcheck.Report) {
	remembered, err := state.Remembered(p.stateDir, of.Name)
	if err != nil {
		return nil, prober.Unremembered(of, err)
	}
	one := p.pool(cfg, of, remembered)
	ctx, cancel := context.WithTimeout(ctx, p.wait.within)
	defer cancel()
	return one.store, one.probe.Probe(ctx)
}

// pool returns the prober and the store of a pool, new ones if what is expected of it changed.
func (p *Pools) pool(cfg config.Config, of config.Pool, remembered string) *pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := cfg.Before(of.Name)
	one := p.pools[of.Name]
	if one == nil || one.Pool != of || one.node != cfg.Node || one.remembered != remembered || !slices.Equal(one.before, before) {
		expect := prober.Expect(cfg.Node, of, remembered, before...)
		expect.Quota = false // the service may not ask for it: the daemon, which makes the volumes, does
		one = &pool{
			Pool: of, node: cfg.Node, before: before, remembered: remembered,
			probe: hostcheck.NewProber(expect),
			store: volume.New(volume.Options{Name: of.Name, Path: of.Path}),
		}
		p.pools[of.Name] = one
	}
	return one
}

// Open returns a descriptor (O_PATH) of the directory of a recorded volume, which the caller
// closes. The attributes are those of the volume's object: they say in which pool the record is to
// be looked for, and are compared with it.
func (p *Pools) Open(ctx context.Context, handle string, attributes map[string]string) (int, error) {
	cfg, err := p.Config()
	if err != nil {
		return -1, err
	}
	of, known := cfg.Pool(attributes[plan.AttributePool])
	if !known {
		return -1, fmt.Errorf("volume %q: %w: there is no pool %q", handle, ErrUnknown, attributes[plan.AttributePool])
	}
	o, err := p.openIn(ctx, cfg, of, handle, record.Volume)
	if err != nil {
		return -1, err
	}
	if at := of.Path + "/" + o.r.Directory; attributes[plan.AttributePath] != at {
		closeOpen(o.fd)
		return -1, fmt.Errorf("volume %q: %w: %q and %q", handle, ErrMismatch, attributes[plan.AttributePath], at)
	}
	return o.fd, nil
}

// OpenAdopted is Open for a volume that another CSI driver made and that was adopted as it is. Its
// object names no pool of this configuration for certain: the record is looked for in each, and
// first in the one that its driver's pool would be.
func (p *Pools) OpenAdopted(ctx context.Context, driver, handle, likely string) (int, error) {
	cfg, err := p.Config()
	if err != nil {
		return -1, err
	}
	pools := slices.Clone(cfg.Pools)
	if first := slices.IndexFunc(pools, func(of config.Pool) bool { return of.Name == likely }); first > 0 {
		pools[0], pools[first] = pools[first], pools[0]
	}
	var shut error
	for _, of := range pools {
		o, err := p.openIn(ctx, cfg, of, handle, record.Volume)
		switch {
		case errors.Is(err, ErrUnknown):
			continue
		case errors.Is(err, ErrClosed):
			shut = err
			continue
		case err != nil:
			return -1, err
		}
		if o.r.Provisioner != driver || o.r.Directory != handle {
			closeOpen(o.fd)
			return -1, fmt.Errorf("volume %q: %w: it is directory %q of provisioner %q", handle, ErrMismatch, o.r.Directory, o.r.Provisioner)
		}
		return o.fd, nil
	}
	if shut != nil { // it may be in that one
		return -1, shut
	}
	return -1, fmt.Errorf("volume %q: %w: it has to be adopted first", handle, ErrUnknown)
}

// opened is the open directory of a volume, and its record.
type opened struct {
	fd int
	r  record.Record
}

// openIn opens the directory of a volume of a kind in a pool that is looked at now. One of another
// kind is ErrUnknown: an object could name the inline volume of a pod.
func (p *Pools) openIn(ctx context.Context, cfg config.Config, of config.Pool, handle string, kind record.Kind) (opened, error) {
	store, report := p.check(ctx, cfg, of)
	if why := closed(report); why != "" {
		return opened{}, fmt.Errorf("pool %q %w: %s", of.Name, ErrClosed, why)
	}
	o, err := await(ctx, &p.wait, "pool "+of.Name, func(ctx context.Context) (o opened, err error) {
		o.fd, o.r, err = store.Open(ctx, report.Identity, handle)
		return o, err
	}, func(o opened) { closeOpen(o.fd) })
	if errors.Is(err, volume.ErrNotRecorded) || errors.Is(err, volume.ErrPlace) {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if err == nil && o.r.Kind != kind {
		closeOpen(o.fd)
		return opened{}, fmt.Errorf("volume %q: %w: the record is one of kind %q", handle, ErrUnknown, o.r.Kind)
	}
	return o, err
}

func closeOpen(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

// closed is why nothing in a pool may be used, "" if it may. Volumes of a pool that is merely full
// may be.
func closed(r hostcheck.Report) string {
	if r.Removable() {
		return ""
	}
	f, _ := r.Closed()
	return f.Message
}

// Known reports whether an open pool has a record of the volume in its place, and which pools are
// closed, by their names.
func (p *Pools) Known(ctx context.Context, handle string) (known bool, shut map[string]hostcheck.Finding, err error) {
	cfg, err := p.Config()
	if err != nil {
		return false, nil, err
	}
	shut = map[string]hostcheck.Finding{}
	for _, of := range cfg.Pools {
		store, report := p.check(ctx, cfg, of)
		if !report.Removable() {
			shut[of.Name], _ = report.Closed()
			continue
		}
		found, err := await(ctx, &p.wait, "pool "+of.Name, func(ctx context.Context) (bool, error) {
			r, err := store.Lookup(ctx, report.Identity, handle)
			return err == nil && r.Place == record.InPool && r.Kind != record.Snapshot, nil
		}, nil)
		if err != nil {
			return false, nil, err
		}
		if found {
			return true, shut, nil
		}
	}
	return false, shut, nil
}
