package controllers

import (
	"context"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// take writes this node's name on a claim. While many claims wait the watch lags, so where other
// nodes may have been faster the claim is read first: that costs the API server less than a write
// that fails. One claim is taken at a time, so that what was learned of the lag counts for the next
// one.
func (c *claims) take(ctx context.Context, f plan.ClaimFacts) (time.Duration, error) {
	if f.LeftAlone() {
		return c.takeOver(ctx, f)
	}
	if !plan.Contended(f) {
		return c.assign(ctx, f.Claim, c.Node, "took the claim for this node")
	}
	if !c.Listers.Claims.Watched() {
		return lag, nil // what others take is not seen
	}
	if wait := c.stagger.enter(); wait > 0 {
		return wait, nil
	}
	defer c.stagger.leave()
	began := time.Now()
	now, err := c.API.GetClaim(ctx, f.Claim.Namespace, f.Claim.Name)
	took := time.Since(began)
	if err != nil {
		c.stagger.missed(time.Now())
		return 0, err
	}
	if now == nil || now.UID != f.Claim.UID || now.ResourceVersion != f.Claim.ResourceVersion {
		c.stagger.missed(time.Now())
		return lag, nil // the watch brings what became of it
	}
	// Where a response takes long another node's write may be on its way as well: the delays are
	// further apart then.
	f.Lag, f.Age = max(f.Lag, c.stagger.responded(time.Now(), took)), f.Age+took
	if verdict := plan.ForClaim(f); verdict.Action != plan.Assign {
		return verdict.After, nil
	}
	after, err := c.assign(ctx, f.Claim, c.Node, "took the claim for this node")
	if after == 0 && err == nil {
		c.stagger.took(time.Now())
	} else {
		c.stagger.missed(time.Now())
	}
	return after, err
}

// takeOver takes a claim from a node that does nothing for it.
func (c *claims) takeOver(ctx context.Context, f plan.ClaimFacts) (time.Duration, error) {
	after, err := c.assign(ctx, f.Claim, c.Node, "took the claim over from node "+plan.Chosen(f.Claim))
	if after == 0 && err == nil {
		c.reportClaim(f.Claim, plan.TakenOver(f), f.Pool.Name)
	}
	return after, err
}

// release gives a claim back. That this node cannot provision it is said first, or the next node's
// words could come before; that another node does not exist is said by the one that gave it back.
func (c *claims) release(ctx context.Context, f plan.ClaimFacts, v plan.Verdict) (time.Duration, error) {
	own := plan.Chosen(f.Claim) == c.Node
	if own {
		c.reportClaim(f.Claim, v, f.Pool.Name)
	}
	after, err := c.assign(ctx, f.Claim, "", "gave the claim back")
	if after == 0 && err == nil && !own {
		c.reportClaim(f.Claim, v, f.Pool.Name)
	}
	return after, err
}

// assign writes a node's name on a claim. It returns 0 if that was done.
func (c *claims) assign(ctx context.Context, claim *corev1.PersistentVolumeClaim, node, words string) (time.Duration, error) {
	won, err := c.API.SetSelectedNode(ctx, claim, node)
	if err != nil {
		return 0, err
	}
	if !won {
		return lag, nil // another writer changed the claim, which the watch brings; or none did, and it does not
	}
	c.Log.Info(words, "claim", claim.Namespace+"/"+claim.Name)
	return 0, nil // the watch brings the claim again
}

// inquire asks the API server about a claim of another node.
func (c *claims) inquire(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*plan.Inquiry, error) {
	volume, err := c.API.GetVolume(ctx, plan.VolumeName(claim))
	if err != nil {
		return nil, err
	}
	if volume != nil {
		return &plan.Inquiry{Volume: true}, nil
	}
	chosen := plan.Chosen(claim)
	if !plan.NodeNamePossible(chosen) {
		return &plan.Inquiry{Gone: true}, nil
	}
	exists, err := c.API.NodeExists(ctx, chosen)
	return &plan.Inquiry{Gone: !exists}, err
}

// remind reports what other daemons may have reported in the same words: their event is this one.
func (c *claims) remind(ctx context.Context, f plan.ClaimFacts, v plan.Verdict) error {
	said, _, err := c.API.EventLastWritten(ctx, report.Claim(f.Claim), corev1.EventTypeWarning, v.Reason, v.Message)
	if err != nil || time.Since(said) < plan.RemindEvery {
		return err
	}
	c.reportClaim(f.Claim, v, f.Pool.Name)
	return nil
}

// abandon ends the work on a claim for which another node is chosen now. What was begun for it here
// is undone.
func (c *claims) abandon(uid string) {
	c.copies.cancel(uid)
	if pool := c.inFlight.abandon(uid); pool != "" {
		wake.Signal(c.workers[pool].recheck)
	}
}

// stagger is what a node knows of the Immediate claims that any node may take (plan, assign.go).
// All nodes see the same claims come, so that they know much the same.
type stagger struct {
	mu     sync.Mutex
	taking bool
	behind int       // claims that were sent away since
	free   time.Time // when the API server will have dealt with the claims that came
	taken  float64   // claims that this node took, decayed
	late   float64   // seconds by which others' writes were seen too late, decayed
	at     time.Time // when both were so
}

// halfLife is the time in which a claim that was taken comes to count half, and a lag to be half as
// long.
const halfLife = 20 * time.Second

const (
	lagFirst = 100 * time.Millisecond // the lag that one miss tells of; each further one doubles it
	lagMost  = 5 * time.Second
	// slowResponse is a time that an API server which is not busy does not take to read a claim.
	slowResponse = 30 * time.Millisecond
)

// arrive notes that a claim came, and returns how long those before it keep the API server busy.
func (t *stagger) arrive(now time.Time, slot time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free.Before(now) {
		t.free = now
	}
	backlog := t.free.Sub(now)
	if backlog < plan.MaxBacklog {
		t.free = t.free.Add(slot)
	}
	return backlog
}

// enter begins to take a claim, one at a time. It returns how long to wait if another one is being
// taken: longer for each that waits already, or they would all ask again at once while the API
// server is slow.
func (t *stagger) enter() (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taking {
		t.behind++
		return min(time.Duration(t.behind)*plan.LagPerClaim, lagMost)
	}
	t.taking, t.behind = true, 0
	return 0
}

func (t *stagger) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taking = false
}

// took notes that this node took a claim.
func (t *stagger) took(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decay(now)
	t.taken++
}

// missed notes that another node had taken a claim and the watch had not told.
func (t *stagger) missed(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decay(now)
	t.late = min(max(2*t.late, lagFirst.Seconds()), lagMost.Seconds())
}

// responded notes how long the API server took to respond, and returns the lag that is to be
// expected then.
func (t *stagger) responded(now time.Time, took time.Duration) (late time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decay(now)
	if took > slowResponse {
		t.late = max(t.late, min(4*took, lagMost).Seconds())
	}
	return time.Duration(t.late * float64(time.Second))
}

// lately is how many claims this node took lately, and by how much the watch lags.
func (t *stagger) lately(now time.Time) (taken int, late time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decay(now)
	return int(math.Round(t.taken)), time.Duration(t.late * float64(time.Second)).Truncate(10 * time.Millisecond)
}

// decay reckons taken and late for now.
func (t *stagger) decay(now time.Time) {
	left := math.Exp2(-now.Sub(t.at).Seconds() / halfLife.Seconds())
	t.taken, t.late, t.at = t.taken*left, t.late*left, now
}
