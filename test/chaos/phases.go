package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

// phase is one kind of unkindness.
type phase struct {
	name string
	play func(w *world, ctx context.Context)
	// bound is how many requests a second may be counted while it lasts, as a multiple of what the claims of a
	// second cost in fair weather, until they are settled; the pace of the claims is the same. 0: no bound.
	bound  float64
	futile bool    // nothing is done, so that all requests are tries, and the bound is the pauses between them
	needs  []fault // faults that must have happened, or the phase proves nothing
	long   bool    // needs minutes: not in the short form
}

// phases are in this order because the daemon forgets its patience with a bad API only after five good
// seconds: after misery it is started anew.
var phases = []phase{
	{name: "refused", play: (*world).refused, futile: true, needs: append([]fault{cutBefore}, refusals...)},
	{name: "killed", play: (*world).killed, bound: 2, needs: []fault{away}},
	{name: "restored", play: (*world).restored, bound: 2, needs: []fault{away}},
	{name: "misery", play: (*world).miserable, bound: 3, needs: everyFault},
	ahead,
	behind,
	{name: "silent", play: (*world).silent, long: true, needs: []fault{silenced}},
}

// The phases with a daemon that has another clock.
var (
	ahead  = phase{name: "ahead", play: func(w *world, ctx context.Context) { w.apart(ctx, apart) }, bound: 3, needs: []fault{conflict}, long: true}
	behind = phase{name: "behind", play: func(w *world, ctx context.Context) { w.apart(ctx, -apart) }, bound: 3, needs: []fault{conflict}, long: true}
)

// plays reports whether a story has this phase.
func (o options) plays(p phase) bool {
	return slices.Contains(o.only, p.name) || len(o.only) == 0 && !(p.long && o.short)
}

// What a phase needs to have met.
var (
	refusals   = []fault{conflict, gone, nobody, tooMany, internal, unavailable}
	everyFault = append([]fault{cutBefore, cutAfter, delayed, twice, half}, refusals...)
)

func phaseNames() (names []string) {
	for _, p := range phases {
		names = append(names, p.name)
	}
	return names
}

// fairWeather is what the others are compared with.
const fairWeather = "fair"

// play goes through the phases, the fair one first.
func (w *world) play(ctx context.Context) *result {
	r := &result{begin: w.begin, scope: w.opt.scope, seed: w.opt.seed}
	if w.opt.plays(ahead) || w.opt.plays(behind) { // not within them: it takes its time
		var err error
		w.skewed, err = skewed(w.scene.Cluster.Dir())
		w.must(err, "building the daemon with another clock")
	}
	w.fill(ctx)
	for _, p := range append([]phase{{name: fairWeather, play: (*world).fine}}, phases...) {
		switch {
		case ctx.Err() != nil:
			return r
		case p.name != fairWeather && !w.opt.plays(p):
			r.left = append(r.left, p.name)
		default:
			r.rows = append(r.rows, w.one(ctx, p))
		}
	}
	r.kept, r.back = w.kept, w.back
	return r
}

// one plays a phase while claims come and go, lets everything settle in fair weather, and judges.
func (w *world) one(ctx context.Context, p phase) row {
	w.say("%s", p.name)
	r := row{phase: p}
	w.churned(ctx, func() {
		begin := time.Now()
		p.play(w, ctx)
		w.until(ctx, w.churn.moved)
		r.lasted = time.Since(begin)
		if p.name != fairWeather {
			r.tally = w.sky.reset()
		}
	})
	w.sky.turn(fair)
	r.made, r.deleted = w.churn.count()
	patience := w.opt.settle
	if p.name == "silent" {
		patience += kube.StaleAfter
	}
	r.losses, r.settled = w.judge.settle(ctx, patience)
	if p.name == fairWeather {
		r.tally = w.sky.reset()
	}
	if p.name == "restored" {
		w.afterRestore(ctx, &r)
	}
	w.weigh(p, &r)
	return r
}

// churned does something while claims come and go. Both counts begin with it.
func (w *world) churned(ctx context.Context, during func()) {
	churning, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	w.sky.reset()
	w.churn.count()
	go func() { w.churn.run(churning); close(ended) }()
	during()
	end()
	<-ended
}

// fill makes as many claims as there are at once, so that from now on one goes for each that comes. What is
// counted after it begins with nothing under way.
func (w *world) fill(ctx context.Context) {
	w.churned(ctx, func() { w.until(ctx, w.churn.moved) })
	if l, took := w.judge.settle(ctx, w.opt.settle); l.sum() > 0 && ctx.Err() == nil {
		w.Fatalf("the first claims did not settle within %s: %v", took.Round(time.Second), l)
	}
}

// weigh adds what was not a question of patience.
func (w *world) weigh(p phase, r *row) {
	doubles, late := w.judge.doubles()
	r.late = late
	for _, claim := range doubles {
		r.losses.add(madeTwice, "%s", claim)
	}
	for _, volume := range w.judge.lost() {
		r.losses.add(noDirectory, "%s", volume)
	}
	if p.name == fairWeather && r.made > 0 {
		// The weather begins and ends with everything settled, so this is what a claim costs that comes and goes,
		// however slow the machine is.
		w.fair = float64(r.tally.sum()) / float64(r.made) * float64(w.opt.rate)
	}
	r.limit = p.bound * w.fair
	if p.futile {
		r.limit = float64(r.made+r.deleted) * tries(r.lasted) / r.lasted.Seconds()
	}
	if r.limit > 0 && r.rate() > r.limit {
		r.losses.add(tooEager, "%.0f a second, at most %.0f were wanted", r.rate(), r.limit)
	}
	if !w.scene.Alive() {
		r.losses.add(daemonEnded, "its log ends with: %s", tail(w.scene.Log(), 2000))
	}
	for _, f := range p.needs {
		if r.tally.faults[f] == 0 {
			r.losses.add(nothingProven, "%s: it never happened that: %s", p.name, f)
		}
	}
	if r.made == 0 || r.deleted == 0 {
		r.losses.add(nothingProven, "%s: %d claims made, %d deleted", p.name, r.made, r.deleted)
	}
}

// tries is how often a claim, or a volume whose claim was deleted, is tried within a time at most: the daemon waits
// 100 ms after the first try that failed, twice as long after each further one, and 30 s in the end.
func tries(within time.Duration) float64 {
	n, pause := 1.0, 100*time.Millisecond
	for within -= pause; within >= 0; within -= pause {
		n, pause = n+1, min(2*pause, 30*time.Second)
	}
	return n
}

// pass lets time pass: the phase is this long, not that something is ready.
func (w *world) pass(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// until waits for what a phase has to have seen: it has a shortest time, and as long as a slow machine
// needs beyond it. What does not come is told in the end, by weigh.
func (w *world) until(ctx context.Context, is func() bool) {
	ctx, cancel := context.WithTimeout(ctx, w.opt.settle)
	defer cancel()
	for !is() && ctx.Err() == nil {
		w.pass(ctx, 20*time.Millisecond)
	}
}

// fine is fair weather, for so many claims as come in its time on an idle machine.
func (w *world) fine(ctx context.Context) {
	w.pass(ctx, w.opt.time)
	enough := int(w.opt.time.Seconds()) * w.opt.rate / 2
	w.until(ctx, func() bool { return w.churn.madeSince() >= enough })
}

func (w *world) miserable(ctx context.Context) {
	w.sky.turn(misery)
	w.pass(ctx, 2*w.opt.time)
	w.until(ctx, w.sky.saw(everyFault))
}

func (w *world) refused(ctx context.Context) {
	w.sky.turn(refusing)
	w.pass(ctx, w.opt.time/2)
	w.until(ctx, w.sky.saw(refusals))
	w.sky.turn(dark)
	w.pass(ctx, w.opt.time/2)
	w.until(ctx, w.sky.saw([]fault{cutBefore}))
}

// killed also keeps etcd's data as it then was.
func (w *world) killed(ctx context.Context) {
	w.earlier = w.churn.living()
	w.die(ctx, func() error { return copyTree(w.etcd(), w.etcd()+"-earlier") })
}

// die kills the control plane, lets it be away for a while, and starts it again.
func (w *world) die(ctx context.Context, meanwhile func() error) {
	w.must(w.scene.Cluster.Kill(), "killing the control plane")
	w.must(meanwhile(), "at its data")
	w.pass(ctx, w.opt.time/2)
	w.until(ctx, w.sky.saw([]fault{away}))
	w.must(w.scene.Cluster.Restart(ctx), "starting the control plane again")
}

func (w *world) etcd() string { return filepath.Join(w.scene.Cluster.Dir(), "etcd") }

// enough is how many volumes with data must be younger than the data that comes back, and how many of
// those that it knows must be gone from the disk, before the server is restored. Fewer of each are left
// by what is deleted while it dies.
const enough = 8

// restored is a day later. What the server then knows becomes what the claims are; the claims that
// were deleted meanwhile are back, most of them without their directories.
func (w *world) restored(ctx context.Context) {
	if _, err := os.Stat(w.etcd() + "-earlier"); err != nil {
		w.killed(ctx) // that phase was not played
	}
	w.pass(ctx, w.opt.time/2)
	w.until(ctx, func() bool { return w.judge.fresh(w.earlier) >= enough && w.judge.went(w.earlier) >= enough })
	w.grow(ctx)
	w.die(ctx, func() error {
		if err := os.RemoveAll(w.etcd()); err != nil {
			return err
		}
		return copyTree(w.etcd()+"-earlier", w.etcd())
	})
	claims := w.list(ctx)
	w.judge.newEpoch(claims)
	w.judge.beLenient(true)
	w.churn.adopt(claims)
}

// busyDay is how many versions the restored server is behind at least. It writes some 500 when it starts.
const busyDay = 1000

// grow waits until the lease of a shared pool is a later version than the one that will be restored, and makes so many
// versions that the restored server does not reach it at once.
func (w *world) grow(ctx context.Context) {
	if w.opt.scope != plan.ScopeShared {
		return
	}
	was, now := w.lease(ctx), ""
	w.until(ctx, func() bool { now = w.lease(ctx); return now != was })
	if now == was {
		w.Fatalf("the lease of the pool was not renewed")
	}
	maps := w.scene.Client.CoreV1().ConfigMaps(w.scene.Namespace)
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "busy-"}}, metav1.CreateOptions{})
	for i := 0; err == nil && i < busyDay; i++ {
		_, err = maps.Patch(ctx, made.Name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"i":"%d"}}`, i), metav1.PatchOptions{})
	}
	w.must(err, "writing to the API server")
}

// lease is the version of the lease of a shared pool.
func (w *world) lease(ctx context.Context) string {
	lease, err := w.scene.Client.CoordinationV1().Leases("hostpath-provisioner").Get(ctx, leadership.Name(w.scene.Name, w.scene.Name), metav1.GetOptions{})
	w.must(err, "reading the lease of the pool")
	return lease.ResourceVersion
}

func (w *world) list(ctx context.Context) []corev1.PersistentVolumeClaim {
	claims, err := w.scene.Client.CoreV1().PersistentVolumeClaims(w.scene.Namespace).List(ctx, metav1.ListOptions{})
	w.must(err, "listing claims")
	return claims.Items
}

// afterRestore starts the daemon again, which then goes through its records, and deletes the claims
// that came back: they must go, though their directories are gone.
func (w *world) afterRestore(ctx context.Context, r *row) {
	w.toldOfLost(ctx, r)
	before := w.judge.orphans(ctx)
	w.must(w.scene.Rest(), "stopping the daemon")
	w.must(w.scene.Run(ctx), "starting the daemon again")
	for _, claim := range w.list(ctx) {
		if w.churn.isDoomed(string(claim.UID)) {
			w.back++
			w.churn.remove(ctx, claim.Name)
		}
	}
	w.judge.beLenient(false)
	var took time.Duration
	again, took := w.judge.settle(ctx, w.opt.settle)
	r.settled += took
	for kind, all := range again {
		for _, one := range all {
			r.losses.add(kind, "%s", one)
		}
	}
	orphans := w.judge.orphans(ctx)
	w.kept = len(orphans)
	if w.kept != len(before) {
		r.losses.add(filesLost, "%d volumes that the server had forgotten had data, %d after a restart", len(before), w.kept)
	}
	if w.kept == 0 || w.back == 0 {
		r.losses.add(nothingProven, "restored: %d orphans, %d claims came back", w.kept, w.back)
	}
	var untold []place
	w.until(ctx, func() bool { // one after the other is looked for at the API server
		var logs []string
		for _, s := range w.judge.storages {
			logs = append(logs, s.Log())
		}
		untold = slices.DeleteFunc(slices.Clone(orphans), func(at place) bool {
			return told(logs[at.storage], at.pv, plan.ReasonOrphaned)
		})
		return len(untold) == 0
	})
	for _, at := range untold {
		r.losses.add(unsettled, "%s is kept without a claim, and nothing says so", at.pv)
	}
}

// told reports whether a log gives this reason for a volume.
func told(log, pv, reason string) bool {
	return strings.Contains(log, "reason="+reason+" volume="+pv)
}

// toldOfLost: of each claim that is back without its directory the daemon says so, without a restart. A node of scope
// every-node makes one anew, unless it had begun to empty it.
func (w *world) toldOfLost(ctx context.Context, r *row) {
	reason := plan.ReasonVolumeLost
	if w.opt.scope == plan.ScopeEveryNode {
		reason = plan.ReasonPartRemoved
	}
	var untold []place
	w.until(ctx, func() bool {
		untold = nil
		claims := w.list(ctx)
		for i, s := range w.judge.storages {
			log := s.Log()
			for _, claim := range claims {
				at := place{i, "pvc-" + string(claim.UID)}
				if !there(s.Path(at.pv)) && !told(log, at.pv, reason) {
					untold = append(untold, at)
				}
			}
		}
		return len(untold) == 0
	})
	for _, at := range untold {
		r.losses.add(unsettled, "the directory of %s is gone, and nothing says so", at.pv)
	}
}

// apart runs the daemon with another clock, in misery.
func (w *world) apart(ctx context.Context, by time.Duration) {
	w.recast(ctx, w.skewed, fmt.Sprintf("%s=%d", clockEnv, int(by.Seconds())))
	w.sky.turn(misery)
	w.pass(ctx, w.opt.time)
	w.until(ctx, w.sky.saw([]fault{conflict}))
	w.mustBeApart(by)
	w.sky.turn(fair)
	w.recast(ctx, w.opt.daemon)
}

func (w *world) recast(ctx context.Context, binary string, env ...string) {
	w.must(w.scene.Rest(), "stopping the daemon")
	w.must(w.scene.Cast(binary, env...), "taking the other daemon")
	w.must(w.scene.Run(ctx), "starting the other daemon")
}

// mustBeApart asks the daemon for the time: its status file has it.
func (w *world) mustBeApart(by time.Duration) {
	var status struct{ Time time.Time }
	data, err := os.ReadFile(w.scene.Daemon.Path("run", "status.json"))
	if err == nil {
		err = json.Unmarshal(data, &status)
	}
	w.must(err, "asking the daemon for the time")
	if off := time.Until(status.Time) - by; off.Abs() > time.Minute {
		w.Fatalf("the daemon's clock was to be %s off, and it says %s", by, status.Time)
	}
}

// silent lets all watches die without closing, when each has brought a bookmark: one comes a minute.
// A watch that dies before is given up after its time, within kube.StaleAfter.
func (w *world) silent(ctx context.Context) {
	w.pass(ctx, 75*time.Second)
	w.sky.hush()
	w.pass(ctx, min(w.opt.time, 20*time.Second))
}

func copyTree(from, to string) error {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }
