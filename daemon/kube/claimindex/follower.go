package claimindex

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// API is what a Follower asks of the API server.
type API interface {
	// HasClaimPolicy reports whether there may be something to watch.
	HasClaimPolicy(ctx context.Context) (bool, error)
	// WatchClaimIndex calls seen with the Identity of what the cluster has, and with each change,
	// until ctx ends.
	WatchClaimIndex(ctx context.Context, seen func(identity string))
	// AuditClaims reads all claims, labels those that were missed, and reports whether the index is
	// whole then.
	AuditClaims(ctx context.Context, selection Selection) (whole bool, labelled int, err error)
	// TryClaimPolicy reports whether the API server labels claims, for which it reads a few of
	// them.
	TryClaimPolicy(ctx context.Context) (labels bool, err error)
	NodeCount(ctx context.Context) (int, error)
}

// Follower finds out whether the claims that concern a daemon can be had by their label, now and
// after each change of the policy.
//
// An index is used when an audit found it whole, at the earliest settle after it was seen: by then
// each API server applies the policy. From then on each claim gets its label as long as policy and
// binding stay the same objects of the same generation; one that was made while they were not is
// found by reading all claims. Whatever else can go wrong, such as an API server without the
// admission plugin, the next audit finds.
type Follower struct {
	API
	Self  plan.Self
	Whole string                                    // the identity of an index that was found whole before this start, "" for none
	Keep  func(identity string)                     // is called with the identity of an index that was found whole
	Seen  func()                                    // is called when there is a policy of this version, at the start and with each change
	Use   func(index bool)                          // is called for each change, and once at the start: whether the claims are to be had by their label
	Told  func(whole bool, labelled int, err error) // is called with what an audit found

	full time.Time // when all claims are to be read; before that a few of them tell whether the API server labels them
}

const (
	startLimit  = 5 * time.Second  // how long the start waits for the policy
	lookAgain   = 10 * time.Minute // for a policy in a cluster that had none
	retryAfter  = 30 * time.Second // after an error
	settle      = 10 * time.Second // API servers take a new policy into use once a second
	auditSpan   = 30 * time.Second // between the first audits of the cluster's daemons (plan.StaggerDelay)
	auditSoon   = 15 * time.Minute // after a start with an index that was whole before
	auditAgain  = 2 * time.Hour
	auditFailed = 10 * time.Minute
	// nodesOfPace: in a larger cluster each daemon reads all claims less often, so that what its
	// API server does for that grows with the claims and not with claims times nodes. A claim
	// without its label is found by whichever daemon reads it first.
	nodesOfPace = 100
)

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	seen := f.watch(ctx)
	due := time.NewTimer(startLimit)
	defer due.Stop()
	identity, using, begun := "", false, false
	use := func(index bool) {
		if index != using || !begun {
			using, begun = index, true
			f.Use(index)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case identity = <-seen:
			use(identity != "" && identity == f.Whole)
			due.Stop()
			if identity != "" {
				f.Seen()
				due.Reset(f.firstAudit(ctx, identity))
			}
			continue
		case <-due.C:
		}
		if identity == "" { // nothing came in time
			use(false)
			continue
		}
		whole, labelled, err := f.audit(ctx)
		if ctx.Err() != nil {
			return
		}
		f.Told(whole, labelled, err)
		missed := using && labelled > 0
		if missed { // they were not seen by the label, and where there is an error as well some of them are not yet
			err = nil
		}
		due.Reset(f.judge(ctx, seen, identity, whole && !missed, err, use))
	}
}

// judge uses what an audit found, and returns when the next is due.
func (f *Follower) judge(ctx context.Context, seen chan string, identity string, whole bool, err error, use func(bool)) time.Duration {
	switch {
	case err != nil:
		return retryAfter
	case len(seen) > 0: // the index changed meanwhile
		return settle
	case !whole:
		f.Whole, f.full = "", time.Time{}
		f.Keep("")
		use(false)
		return auditFailed
	}
	if f.Whole != identity {
		f.Whole = identity
		f.Keep(identity)
	}
	use(true)
	return f.again(ctx, auditAgain)
}

// audit reads all claims if that is due, and else tries whether the API server labels them.
func (f *Follower) audit(ctx context.Context) (whole bool, labelled int, err error) {
	if time.Now().Before(f.full) {
		whole, err = f.TryClaimPolicy(ctx)
		return whole, 0, err
	}
	return f.AuditClaims(ctx, SelectionOf(f.Self))
}

// again returns when the next audit is due: between half of a time and the whole.
func (f *Follower) again(ctx context.Context, most time.Duration) time.Duration {
	wait := most/2 + rand.N(most/2)
	if !time.Now().Before(f.full) {
		_, pace := f.cluster(ctx)
		f.full = time.Now().Add(wait * pace)
	}
	return min(wait, time.Until(f.full))
}

// cluster returns how many nodes there are, and how many times longer the pauses of the full audits
// are for that.
func (f *Follower) cluster(ctx context.Context) (nodes int, pace time.Duration) {
	nodes, err := f.NodeCount(ctx)
	if err != nil {
		nodes = nodesOfPace
	}
	return nodes, time.Duration(max(1, nodes/nodesOfPace))
}

// firstAudit is when an index is audited first. The daemons of a cluster do not do that all at
// once.
func (f *Follower) firstAudit(ctx context.Context, identity string) time.Duration {
	f.full = time.Time{}
	if identity == f.Whole {
		return f.again(ctx, auditSoon)
	}
	nodes, pace := f.cluster(ctx)
	return settle + plan.StaggerDelay(identity, f.Self.Node, nodes, auditSpan*pace)
}

// watch returns a channel with the last identity that was seen, which begins with "" if there is no
// policy.
func (f *Follower) watch(ctx context.Context) chan string {
	seen := make(chan string, 1)
	put := func(identity string) {
		select {
		case <-seen:
		default:
		}
		seen <- identity
	}
	go func() {
		for {
			has, err := f.HasClaimPolicy(ctx)
			if has {
				f.WatchClaimIndex(ctx, put)
				return
			}
			put("")
			wait := lookAgain/2 + rand.N(lookAgain/2)
			if err != nil {
				wait = retryAfter
			}
			if !wake.Wait(ctx, wait, nil) {
				return
			}
		}
	}()
	return seen
}
