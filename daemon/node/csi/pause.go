package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/ipc"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi/freeze"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/pause"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Pauser stops the pods that have a volume mounted, for the daemon, which has no rights over them.
// Which pods these are the mount table says, and for how long the configuration: a daemon that was
// taken over can stop the pods of recorded volumes, in pools with snapshots = "paused", for as long
// as that allows, and a tenth of the time.
//
//	pool or volume that is not ours     pausable: the configuration, the record        TestPauseRefuses
//	end that is kept open               the time of the configuration                  TestPauseEnds
//	end that is closed, by a kill, too  the reader sees it                             TestPauseEnds
//	requests without a pause            rest                                           TestPauseRests
//	no end, or another descriptor       ipc.Socket                                     TestPauseGarbage
//	end that is not read, and blocks    ipc.End; the thaw waits for no client          TestPauseOfOneThatDoesNotRead
//	descriptors that do not close       ipc.Socket: no request is taken meanwhile      TestStuckDescriptors (daemon/host/ipc)
//	more requests than are worked on    mostPauses                                     TestPauseGarbage
type Pauser struct {
	Servers []*Server // that publish; they wait for the end of a pause
	Pools   *Pools
	Cgroups freeze.Cgroups
	Log     *slog.Logger

	one     chan struct{} // held by the one pause that there is
	waiting chan struct{} // held by each that waits or is
	rest    time.Time     // until when no other one begins
}

const (
	// mostPauses may wait for each other.
	mostPauses = 16
	// restFactor is how many times longer than a pause the next one has to wait.
	restFactor = 9
)

// Serve responds until ctx ends. First it thaws what an earlier process left frozen. Without a
// socket that is all.
func (p *Pauser) Serve(ctx context.Context, socket *net.UnixConn) error {
	if thawed, err := p.Cgroups.Recover(); err != nil {
		p.Log.Error("pods may still be frozen by an earlier run: " + err.Error())
	} else if len(thawed) > 0 {
		p.Log.Warn(fmt.Sprintf("%d pods go on that an earlier process paused", len(thawed)))
	}
	if socket == nil {
		return nil
	}
	p.one, p.waiting = make(chan struct{}, 1), make(chan struct{}, mostPauses)
	defer func() { p.one <- struct{}{} }() // the one under way has ended, and no other begins
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	from, buffer := ipc.New(socket, nil), make([]byte, pause.Largest+1)
	for {
		request, end, err := from.Receive(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if end >= 0 {
			p.take(ctx, request, from.End(end))
		}
	}
}

// take begins the work on a request. One that is malformed, or one too many, gets no reply.
func (p *Pauser) take(ctx context.Context, request []byte, end *ipc.End) {
	var r pause.Request
	if json.Unmarshal(request, &r) != nil {
		end.Close()
		return
	}
	select {
	case p.waiting <- struct{}{}:
		go func() {
			defer func() { <-p.waiting }()
			defer end.Close()
			p.serve(ctx, r, end)
		}()
	default:
		end.Close()
	}
}

// serve is one pause, from its request to its end.
func (p *Pauser) serve(ctx context.Context, r pause.Request, end *ipc.End) {
	ctx, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	go func() { // the client sends something, or closes its end
		if _, err := end.Receive(ctx, make([]byte, 1)); ctx.Err() == nil || err == nil {
			ended(errEnded)
		}
	}()
	if !p.turn(ctx) {
		return
	}
	defer func() { <-p.one }()
	last, err := p.pause(ctx, r, end)
	if err != nil {
		last.Error = err.Error()
		p.Log.Warn("pausing the pods of volume "+r.Volume+": "+err.Error(), "pool", r.Pool)
	}
	p.rest = time.Now().Add(restFactor * last.For)
	reply(end, last)
}

// errEnded: the client wants the pods to go on.
var errEnded = errors.New("the client ended the pause")

// turn waits until there is no other pause, and the pods of the last one have gone on for a while.
func (p *Pauser) turn(ctx context.Context) bool {
	select {
	case p.one <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	select {
	case <-time.After(time.Until(p.rest)):
		return true
	case <-ctx.Done():
		<-p.one
		return false
	}
}

// reply is not waited for: the queue of an end has room for two messages, or its client does not
// read.
func reply(end *ipc.End, r pause.Reply) {
	if message, err := json.Marshal(r); err == nil {
		_ = end.Send(message)
	}
}

// pause stops the pods, tells the client, and has them go on when ctx ends or the time is over.
// Meanwhile the volume is published for no pod.
func (p *Pauser) pause(ctx context.Context, r pause.Request, end *ipc.End) (pause.Reply, error) {
	cfg, err := p.Pools.Config()
	if err != nil {
		return pause.Reply{}, err
	}
	of, known := cfg.Pool(r.Pool)
	if !known || !of.Pauses() {
		return pause.Reply{}, fmt.Errorf("the configuration has no pool %q with snapshots = %q", r.Pool, plan.SnapshotsPaused)
	}
	for _, s := range p.Servers {
		done, err := s.turns.Take(ctx, r.Volume)
		if err != nil {
			return pause.Reply{}, err
		}
		defer done()
	}
	pods, err := p.podsOf(ctx, cfg, of, r.Volume)
	if err != nil {
		return pause.Reply{}, err
	}
	return p.freeze(ctx, of.PauseLimit, pods, end)
}

// podsOf are the UIDs of the pods that have a volume mounted and may write to it.
func (p *Pauser) podsOf(ctx context.Context, cfg config.Config, of config.Pool, volume string) (pods []string, err error) {
	o, err := p.Pools.openIn(ctx, cfg, of, volume, record.Volume)
	if err != nil {
		return nil, err
	}
	defer closeOpen(o.fd)
	return p.Servers[0].Root.Writers(o.fd)
}

// freeze is the pause itself.
func (p *Pauser) freeze(
	ctx context.Context, limit time.Duration, pods []string, end *ipc.End,
) (pause.Reply, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	frozen, err := p.Cgroups.Freeze(limited, pods)
	if err != nil {
		return pause.Reply{For: time.Since(began)}, err
	}
	thawed := make(chan error, 1)
	go func() { // whatever becomes of the reply
		<-limited.Done()
		thawed <- frozen.Thaw()
	}()
	reply(end, pause.Reply{Pods: len(pods)})
	err = <-thawed
	r := pause.Reply{Pods: len(pods), For: time.Since(began)}
	switch {
	case err != nil:
		return r, err
	case errors.Is(context.Cause(limited), errEnded):
		return r, nil
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		return r, fmt.Errorf("they went on after %s (pause_limit), before the snapshot was whole", limit)
	}
	return r, errors.New("they went on because the CSI node service was stopped")
}
