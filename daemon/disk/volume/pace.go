package volume

import (
	"context"
	"time"
)

// burst is how many entries are removed or copied before a purge or a copy looks whether it is in
// the way.
const burst = 32

// pace is how fast a call goes that consists of very many small ones.
type pace struct {
	ctx   context.Context
	pool  *Pool
	call  *call
	since int // entries since the last pause
	began time.Time
}

// giveWay is called before each entry. It makes way for calls in the foreground: their fsyncs
// commit the journal with all that a purge or a copy put there, so these do little while such calls
// are under way.
func (p *pace) giveWay() error {
	p.pool.progress(p.call)
	if p.since++; p.since < burst {
		return nil
	}
	var err error
	if p.pool.urgent.Load() > 0 {
		err = pause(p.ctx, min(max(time.Millisecond, 4*time.Since(p.began)), 20*time.Millisecond))
	}
	p.since, p.began = 0, time.Now()
	return err
}
