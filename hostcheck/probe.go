package hostcheck

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// timeout is how long Probe waits for a pool if the caller's context says nothing.
const timeout = 10 * time.Second

// Prober looks at one pool. It is safe for concurrent use.
//
// A look is a goroutine, because a hung filesystem gives its thread back only when it responds.
// There is never more than one: a look that begins while another is under way waits for it,
// together with all that come meanwhile, and is one look for all of them. So each caller of Probe
// gets what was seen after the call, and a pool that hangs costs one thread, however often it is
// asked.
type Prober struct {
	expect Expect
	look   gatherer

	mu      sync.Mutex
	current *call  // looks now
	next    *call  // waits for current
	cluster string // in place of the expected one, if it is not empty
}

// call is one look for all callers that asked before it began.
type call struct {
	done  chan struct{}
	facts Facts // once done is closed
	at    atomic.Pointer[step]
}

// step is how far a call got.
type step struct {
	facts    Facts
	question string
	since    time.Time
}

// NewProber makes a prober; it looks at nothing before Probe.
func NewProber(e Expect) *Prober { return &Prober{expect: e, look: gatherer{expect: e}} }

// How long the process that is asked to look may take: where the response decides whether the pool
// is good, and where it is a warning.
const (
	responseWithin = 30 * time.Second
	warningWithin  = time.Second
)

// Asking has the bare directory of the mount point looked at by another process, where this one has
// not the right (mounts.Permitted). who is its name in reports. ask begins a look after it is
// called, and returns within the given time. It is to be called before the first Probe.
func (p *Prober) Asking(who string, ask func(point string, within time.Duration) Bare) *Prober {
	p.look.who, p.look.ask = who, ask
	return p
}

// Probe looks at the pool now and returns by the context's deadline (without one, in 10 s): a pool
// that has not responded by then is reported NotAnswering, with what was learnt before. It recovers
// by itself once the filesystem responds.
func (p *Prober) Probe(ctx context.Context) Report {
	began := time.Now()
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	facts, expect := p.facts(ctx), p.expect
	p.mu.Lock()
	if p.cluster != "" {
		expect.Cluster = p.cluster
	}
	p.mu.Unlock()
	report := Check(expect, facts)
	report.Took = time.Since(began)
	return report
}

// SetCluster says which cluster it is, once that is known. Nothing else of what is expected can
// change.
func (p *Prober) SetCluster(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cluster = id
}

// Waiting is how long the question has been waiting for its response that is asked now, 0 if none
// is.
func (p *Prober) Waiting() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return 0
	}
	at := p.current.at.Load()
	if at == nil {
		return 0
	}
	return time.Since(at.since)
}

func (p *Prober) facts(ctx context.Context) Facts {
	r := p.join()
	select {
	case <-r.done:
		return r.facts
	case <-ctx.Done():
		return p.unanswered(r)
	}
}

// join finds the call that begins after now.
func (p *Prober) join() *call {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		p.current = newCall()
		go p.run(p.current)
		return p.current
	}
	if p.next == nil {
		p.next = newCall()
	}
	return p.next
}

func newCall() *call { return &call{done: make(chan struct{})} }

func (p *Prober) run(r *call) {
	for r != nil {
		r.facts = p.look.facts(r.enter)
		close(r.done)
		r = p.advance()
	}
}

func (p *Prober) advance() *call {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current, p.next = p.next, nil
	return p.current
}

// enter notes what is asked next, with what is known before the response.
func (r *call) enter(question string, known Facts) {
	r.at.Store(&step{facts: known, question: question, since: time.Now()})
}

// unanswered is what is known when time is up: from the call that keeps ours waiting, or ours.
func (p *Prober) unanswered(ours *call) Facts {
	p.mu.Lock()
	blocking := p.current
	p.mu.Unlock()
	if blocking != nil {
		if at := blocking.at.Load(); at != nil {
			f := at.facts
			f.Unanswered, f.Waited = at.question, time.Since(at.since)
			return f
		}
	}
	select {
	case <-ours.done: // it responded just now
		return ours.facts
	default:
		return Facts{Unanswered: "waiting for a processor"}
	}
}
