package controllers

import (
	"math"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

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
