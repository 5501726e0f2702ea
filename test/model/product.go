package model

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// product is the product's controllers, with ports that the model responses. One worker of the
// model has it.
type product struct {
	controllers map[setting]*controllers.Controller
	gate        *gate.Gate
	tree        *tree

	begins    bool // controllers learn their cluster: no work asks
	elsewhere bool // what the running controllers know of it
	running   *controllers.Controller
	root      root // of the work that is played
	self      plan.Self
	role      role
	responses []response         // to the first steps
	at        int                // how many of these were given
	asks      op                 // the first step without an response
	stopped   bool               // there was one: what the product does from there on does not count
	memory    controllers.Memory // at that step
	played    int                // how often

	fed [slots]*corev1.PersistentVolumeClaim // that the running controllers know of as waiting
}

// errStopped is returned to the product by each step that has no response yet.
var errStopped = errors.New("the model goes on later")

func newProduct(t *tree) *product {
	return &product{gate: gate.New(poolNames[:]...), tree: t, controllers: map[setting]*controllers.Controller{}}
}

// controller is that of the daemons with these settings.
func (p *product) controller(of setting) *controllers.Controller {
	if c := p.controllers[of]; c != nil {
		return c
	}
	self := of.self()
	p.begins, p.elsewhere = true, of.elsewhere
	defer func() { p.begins = false }()
	nobody := func() string { return "" }
	c := controllers.New(controllers.Options{
		Self: self, Identity: holderName(self), BoundNode: nobody, Holder: nobody, Gate: p.gate, Log: slog.New(slog.DiscardHandler),
		Pools: p.parts(of), Listers: p.listers(self, of.single), API: server{p: p}, Contents: contents{p}, Snapshots: snapshots{server{p: p}}, Metrics: mute{},
		Tick: time.Hour, Deadline: time.Hour, Workers: 1, AllHeld: p.allHeld(of), Events: ears{p: p},
	})
	if !c.Begin(context.Background()) {
		panic("the controllers do not begin")
	}
	p.controllers[of] = c
	return c
}

// parts are the pools.
func (p *product) parts(of setting) (parts []controllers.PoolParts) {
	for n := range pools {
		parts = append(parts, controllers.PoolParts{
			Pool: of.configured(n), Storage: storage{p: p, pool: uint8(n), host: of.host()}, Probe: probe{p, n, of}, Opened: opened,
		})
	}
	return parts
}

// close gives the controllers up.
func (p *product) close() {
	for _, c := range p.controllers {
		c.End()
	}
}

// play has the product do a piece of work with these responses, up to the step that has none.
func (p *product) play(t *tree, r root, responses []response) *place {
	if r.adoption != noAdoption {
		return p.adopts(r, responses)
	}
	c := p.controller(r.setting)
	p.running, p.self = c, selfOf(int(r.node))
	p.root = r
	p.plays(r.role)
	p.responses, p.at, p.stopped, p.asks = responses, 0, false, op{}
	p.elsewhere = r.elsewhere
	p.played++
	p.gate.Set(report(r.pool, r.open, r.room, r.seen), time.Time{})
	p.remember(r.memory)
	if _, err := c.Do(context.Background(), work(r)); errors.Is(err, errStopped) && !p.stopped {
		panic(fmt.Sprintf("%v ended with %v", r, err))
	}
	if !p.stopped {
		p.memory = c.Memory()
	}
	if r.room == 0 {
		p.memory.Promised = nil
	}
	n := &place{root: r, responses: responses, asks: p.asks, memory: t.remember(p.memory)}
	if n.elsewhere = p.elsewhere; n.elsewhere != r.elsewhere {
		c.End() // these controllers know another cluster now than their setting says
		delete(p.controllers, r.setting)
	}
	return n
}

func work(r root) controllers.Work {
	w := controllers.Work{Kind: r.kind, Pool: poolNames[r.pool]}
	switch r.kind {
	case controllers.WorkClaim:
		w.Namespace, w.Name, w.UID = namespace, slotName(r.cell/lives), uidOf(r.cell)
	case controllers.WorkVolume, controllers.WorkPurge:
		w.Name = nameOf(r.cell)
	case controllers.WorkContent:
		w.Name, w.UID = contentName, contentName
	}
	if r.kind == controllers.WorkHeld {
		w.UID = uidOf(r.cell)
	}
	return w
}

// ask returns the response to a step, ok is false if there is none yet.
func (p *product) ask(o op) (a response, ok bool) {
	switch {
	case p.stopped:
		return response{}, false
	case p.at < len(p.responses):
		p.at++
		p.watch(p.responses[p.at-1].stays)
		if m := p.responses[p.at-1].memory; m != 0 {
			p.remember(m)
		}
		if now := p.responses[p.at-1].gate; now.looked {
			p.gate.Set(report(p.root.pool, now.open, p.root.room, now.seen), time.Time{})
		}
		if role := p.responses[p.at-1].role; role != p.role {
			p.plays(role)
		}
		return p.responses[p.at-1], true
	}
	p.asks, p.stopped, p.memory = o, true, p.running.Memory()
	return response{}, false
}

// remember gives the running controllers what their process knows.
func (p *product) remember(memory uint32) {
	p.running.Remember(p.tree.memories.value(memory))
	p.fed = [slots]*corev1.PersistentVolumeClaim{}
}

// plays gives the controllers a role in the shared pool.
func (p *product) plays(r role) {
	if p.role = r; p.root.single {
		return // there is no lease
	}
	p.running.RememberLease(poolNames[sharedPool], r.alike(p.self))
}

// watch brings the controllers volumes that are to stay.
func (p *product) watch(stays uint8) {
	for cell := range cells {
		if stays>>cell&1 == 1 {
			at := p.at
			p.at, p.stopped = len(p.responses), true // what this looks up is nothing of the work
			p.running.VolumeChanged(nil, volumeObject(cell, object{exists: true, retain: true, phase: released, ref: true}))
			p.at, p.stopped = at, false
		}
	}
}

func (t *tree) remember(m controllers.Memory) uint32 {
	key := fmt.Sprint(m.Begun, m.Unpublished, m.Published, m.Promised, m.Detached, m.Copies, m.Held)
	return t.memories.of(key, m)
}
