package main

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// disks is every content that the pool's filesystem had, and what the product's calls made of it. Each call is made once
// on a real directory for each content, and once more for each of its steps at which the process can die.
type disks struct {
	images  interned[string, *image]
	results interned[string, result]
	specs   interned[string, volume.Spec]
	runs    interned[run, run]

	mu       sync.RWMutex
	outcomes map[asked]*outcome
	ended    map[uint32]*outcome // of calls that were stopped, by run
	beset    map[stranger]*outcome
	calls    int // that were made on the real directory
}

// asked is a call and the content it is made on.
type asked struct {
	image uint32
	call  call
}

// outcome is what a call leaves and returns, and what there is after each of its steps, of which a process that dies can
// leave each that is different.
type outcome struct {
	image, result uint32
	steps, died   []left
}

// left is what there is after a step of a call.
type left struct {
	step  string
	image uint32
}

// moved is the result of each call while the pool's storage is away.
var moved = result{err: fmt.Errorf("%w: /srv/p", volume.ErrDirectoryReplaced)}

// takenImage is the number of takenPool.
const takenImage = 1

func newDisks() *disks {
	d := &disks{outcomes: map[asked]*outcome{}, ended: map[uint32]*outcome{}, beset: map[stranger]*outcome{}}
	d.images.of(emptyPool.text(), parseImage(emptyPool))
	d.image(takenPool())
	d.result(moved)
	return d
}

func (d *disks) result(r result) uint32 {
	return d.results.of(fmt.Sprintf("%+v|%v", r.value, r.err), r)
}

func (d *disks) spec(s volume.Spec) uint32 { return d.specs.of(fmt.Sprintf("%+v", s), s) }

func (d *disks) image(f files) uint32 { return d.images.of(f.text(), parseImage(f)) }

// do is what a call makes of an image. w is the caller's own directory.
func (d *disks) do(image uint32, c call, w *workshop) *outcome {
	key := asked{image, c}
	d.mu.RLock()
	o := d.outcomes[key]
	d.mu.RUnlock()
	if o != nil {
		return o
	}
	o = w.play(d, image, c)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	d.outcomes[key] = o
	return o
}

// died is the value of a panic in a step.
type died struct{ step string }

// play makes a call on a real directory, and once more up to each of its steps.
func (w *workshop) play(d *disks, image uint32, c call) *outcome {
	steps, r := w.attempt(d, image, c, -1)
	o := &outcome{image: d.image(w.read()), result: d.result(r)}
	seen := map[uint32]bool{image: true}
	for n, step := range steps {
		w.attempt(d, image, c, n)
		now := left{step, d.image(w.read())}
		o.steps = append(o.steps, now)
		if !seen[now.image] {
			seen[now.image] = true
			o.died = append(o.died, now)
		}
	}
	return o
}

// attempt makes a call, and has the process die after its n-th step. It returns the steps that were done.
func (w *workshop) attempt(d *disks, image uint32, c call, n int) (steps []string, r result) {
	w.write(d.images.value(image).files)
	defer func() {
		if dead, is := recover().(died); is {
			steps = append(steps, dead.step)
		}
	}()
	pool := w.pool(c, func(step string) {
		if len(steps) == n {
			panic(died{step})
		}
		steps = append(steps, step)
	})
	return steps, w.call(d, pool, c)
}

// destroys reports whether a call moves or removes what may be in use.
func (c call) destroys() bool {
	switch c.name {
	case "Trash", "Archive", "Undo", "PutBack", "Purge", "Sweep", "Retain":
		return true
	default:
		return false
	}
}

// hostID is what the daemon's files have in their names in a shared pool.
func (c call) hostID() string {
	if c.pool == sharedPool && c.host != soleHost {
		return "host000" + string('0'+rune(c.host))
	}
	return ""
}

// call makes a call of daemon/volume.
func (w *workshop) call(d *disks, p *volume.Pool, c call) (r result) {
	ctx, pv := context.Background(), ""
	if c.cell != noCell {
		pv = nameOf(c.cell)
	}
	switch c.name {
	case "Create":
		_, r.err = p.Create(ctx, w.id, d.specs.value(c.spec)) // the path is this directory's
	case "Purge":
		r.value, r.err = p.Purge(ctx, w.id, pv)
	case "Lookup":
		r.value, r.err = p.Lookup(ctx, w.id, pv)
	case "LookupArchived":
		r.value, r.err = p.LookupArchived(ctx, w.id, pv, uidOf(c.cell))
	case "Exists":
		r.value, r.err = p.Exists(ctx, w.id, map[uint32]string{0: "", 1: otherPattern}[c.spec]+pv)
	case "List":
		r.value, r.err = p.List(ctx, w.id)
	case "Sweep":
		r.value, r.err = p.Sweep(ctx, w.id)
	case "Resize":
		r.err = p.Resize(ctx, w.id, pv, more(c.spec).bytes())
	case "Raise":
		r.value, r.err = p.Raise(ctx, w.id, pv, more(c.spec).bytes())
	case "Usable":
		r.err = p.Usable(ctx, w.id, pv)
	case "Adopt":
		r.err = p.Adopt(ctx, w.id, d.specs.value(c.spec).Record)
	case "PutBack":
		r.err = p.PutBack(ctx, w.id, pv, uidOf(c.cell))
	default:
		r.err = changes[c.name](p, ctx, w.id, pv)
	}
	return r
}

// changes are the calls that return an error alone.
var changes = map[string]func(*volume.Pool, context.Context, mounts.Identity, string) error{
	"Undo": (*volume.Pool).Undo, "Trash": (*volume.Pool).Trash, "Discard": (*volume.Pool).Discard,
	"Archive": (*volume.Pool).Archive, "Retain": (*volume.Pool).Retain, "Published": (*volume.Pool).Published,
	"Forget": (*volume.Pool).Forget,
}

// identity of a directory.
func identity(path string) (mounts.Identity, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return mounts.Identity{}, err
	}
	defer unix.Close(fd)
	return mounts.IdentityOf(fd)
}
