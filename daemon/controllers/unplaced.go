package controllers

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// explainer tells claims without a node that they fit on none (plan, unplaced.go). All of it is of
// one goroutine.
type explainer struct {
	*cluster
	claims map[string]*unplacedClaim // by UID
	offers map[string]*plan.Offers   // by class, as they were read last
	read   time.Time
	failed time.Time // when the API server last returned an error
	looks  int       // that asked the API server, in this round
}

// unplacedClaim is what is known of a claim that does not fit here.
type unplacedClaim struct {
	since   time.Time // when that was seen first
	missing time.Time // when it was seen first that it fits on no node; zero: it may fit on one
	fitted  bool      // it was seen that it may fit on one
	due     time.Time // when it is looked at again
	asked   time.Time // when it was read last what it was told; zero: never
	told    time.Time // when one did last, as far as this node knows; zero: none did
	message string    // that it was told
}

const (
	// explainEvery is how often the claims are gone through; those that are not due cost nothing.
	explainEvery = 5 * time.Second
	// explainPause is the shortest time between two rounds, and explainLooks how many claims of a
	// round the API server is asked about. So a node that is shown very many claims that do not fit
	// asks ten times a second.
	explainPause = 500 * time.Millisecond
	explainLooks = 5
	// offersFor is how long what was read of the nodes counts for all claims.
	offersFor = 3 * time.Second
	// explainFailed is the pause after an error of the API server.
	explainFailed = 30 * time.Second
)

// explain tells claims why they have no node, until ctx ends.
func (c *cluster) explain(ctx context.Context) {
	e := explainer{cluster: c, claims: map[string]*unplacedClaim{}}
	rounds(ctx, explainEvery, explainPause, c.unplaced, e.round)
}

// round looks at the claims that are due, and returns when to begin the next round.
func (e *explainer) round(ctx context.Context) time.Duration {
	next, held := explainEvery, map[string]bool{}
	e.looks = 0
	compared := func(driver string) bool { return e.Published.Compared(driver) > 0 }
	if slices.ContainsFunc(e.Drivers(), compared) && e.Listers.Claims.Watched() {
		for _, claim := range e.Listers.Claims.List() {
			if wait, is := e.look(ctx, claim); is {
				held[string(claim.UID)] = true
				next = min(next, wait)
			}
		}
	}
	maps.DeleteFunc(e.claims, func(uid string, _ *unplacedClaim) bool { return !held[uid] })
	return max(next, explainPause)
}

// look decides about one claim, and returns when to look again if it does not fit here.
func (e *explainer) look(ctx context.Context, claim *corev1.PersistentVolumeClaim) (wait time.Duration, is bool) {
	class, known := e.Listers.Classes.Get(plan.ClassName(claim))
	if !known || !plan.NodeOpen(claim) || !e.Unplaced(claim, class) || e.Published.Compared(class.Provisioner) == 0 {
		return 0, false
	}
	state, now := e.claims[string(claim.UID)], time.Now()
	if state != nil && now.Before(state.due) {
		return state.due.Sub(now), true
	}
	here, _, known := e.pools.Capacity(class)
	if !known {
		return 0, false
	}
	if state == nil {
		state = &unplacedClaim{since: now}
	}
	_, refusal := e.Resolve(class, e.configured)
	v, err := e.decideUnplaced(ctx, plan.UnplacedFacts{Self: e.Self, Claim: claim, Class: class,
		Here: here, Refusal: refusal, Unpublished: e.Published.RefusedFor(class.Name)}, state)
	if err != nil {
		v.After, e.failed = explainFailed, time.Now()
	}
	if v.Action == plan.Ignore {
		return 0, false // it fits here
	}
	e.claims[string(claim.UID)], state.due = state, time.Now().Add(v.After)
	return v.After, true
}

// decideUnplaced asks the API server only where it is this node's turn.
func (e *explainer) decideUnplaced(ctx context.Context, f plan.UnplacedFacts, state *unplacedClaim) (plan.Verdict, error) {
	f.Nodes, f.Age = e.Published.Compared(f.Class.Provisioner), time.Since(state.since)
	v := plan.ForUnplaced(f)
	if v.Action != plan.Inquire && v.Action != plan.Remind {
		return v, nil
	}
	if e.looks++; e.looks > explainLooks || time.Since(e.failed) < explainFailed {
		return plan.Verdict{Action: plan.Wait, After: explainPause}, nil
	}
	if v.Action == plan.Remind { // of the class alone
		return e.tell(ctx, f.Claim, v, state)
	}
	if state.asked.IsZero() { // most nodes need not compare then for a while
		if err := e.ask(ctx, f.Claim, plan.Verdict{Reason: plan.ReasonNoNodeFits},
			state); err != nil || time.Since(state.told) < plan.RemindEvery {
			return plan.Verdict{Action: plan.Wait, After: f.Again(plan.OffersAgain)}, err
		}
	}
	return e.compare(ctx, f, state)
}

// ask reads what a claim was told by any daemon: the event has the same name on every node,
// whatever it says (plan.OneEvent).
func (e *explainer) ask(ctx context.Context, claim *corev1.PersistentVolumeClaim, v plan.Verdict,
	state *unplacedClaim) error {
	at, message, err := e.API.EventLastWritten(ctx, report.Claim(claim), corev1.EventTypeWarning,
		v.Reason, v.Message)
	if err == nil {
		state.asked, state.told, state.message = time.Now(), at, message
	}
	return err
}

// compare decides with what the nodes publish, and tells the claim.
func (e *explainer) compare(ctx context.Context, f plan.UnplacedFacts, state *unplacedClaim) (plan.Verdict, error) {
	if err := e.readOffers(ctx); err != nil {
		return plan.Verdict{Action: plan.Wait}, err
	}
	f.Offers = &plan.Offers{}
	if published := e.offers[f.Class.Name]; published != nil {
		f.Offers = published
	}
	switch {
	case f.FitsSomewhere():
		state.missing, state.fitted = time.Time{}, true
	case state.missing.IsZero():
		state.missing = time.Now()
	default:
		f.Missing = time.Since(state.missing)
	}
	f.Fitted = state.fitted
	v := plan.ForUnplaced(f)
	if v.Action != plan.Remind {
		return v, nil
	}
	return e.tell(ctx, f.Claim, v, state)
}

// tell tells the claim why it has no node, unless it was told that lately, apart from its numbers, by
// this daemon or another one.
func (e *explainer) tell(ctx context.Context, claim *corev1.PersistentVolumeClaim, v plan.Verdict,
	state *unplacedClaim) (plan.Verdict, error) {
	same := func() bool {
		return time.Since(state.told) < plan.RemindEvery &&
			words.Same(state.message) == words.Same(words.Line(v.Message, words.MessageMax))
	}
	var err error
	if !same() && time.Since(state.asked) >= explainPause {
		err = e.ask(ctx, claim, v, state)
	}
	if same() || err != nil {
		return plan.Verdict{Action: plan.Wait, After: v.After}, err
	}
	if !e.reportClaim(claim, v, e.poolNameOf(claim)) {
		v.After = report.LimitedRetry
		return v, nil
	}
	state.told, state.message = time.Now(), words.Line(v.Message, words.MessageMax)
	v.After = e.lookAgainAfter(string(claim.UID), v)
	return v, nil
}

// readOffers reads what the nodes publish, unless that was done just now.
func (e *explainer) readOffers(ctx context.Context) (err error) {
	if time.Since(e.read) < offersFor {
		return nil
	}
	if e.offers, err = e.Published.Offers(ctx); err == nil {
		e.read = time.Now()
	}
	return err
}
