package weather

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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// phase is one kind of unkindness.
type phase struct {
	name string
	play func(e *chaos, ctx context.Context)
	// bound is how many requests a second may be counted while it lasts, as a multiple of what the
	// claims of a second cost without faults, until they are settled; the pace of the claims is the
	// same. 0: no bound.
	bound  float64
	futile bool    // nothing is done, so that all requests are tries, and the bound is the pauses between them
	needs  []fault // faults that must have happened, or the phase proves nothing
	long   bool    // needs minutes: not in the short form
	since  int     // the first minor version of Kubernetes that has what it is about, 0 for any
}

// phases are in this order because the daemon forgets its timeout with a bad API only after five
// good seconds: after misery it is started anew.
var phases = []phase{
	{name: "refused", play: (*chaos).refused, futile: true, needs: append([]fault{cutBefore}, refusals...)},
	{name: "killed", play: (*chaos).killed, bound: 2, needs: []fault{away}},
	{name: "restored", play: (*chaos).restored, bound: 2, needs: []fault{away}},
	{name: "misery", play: (*chaos).miserable, bound: 3, needs: everyFault},
	{name: "indexed", play: (*chaos).indexed, since: cluster.MutatingPolicies},
	ahead,
	behind,
	{name: "silent", play: (*chaos).silent, long: true, needs: []fault{silenced}},
}

// The phases with a daemon that has another clock.
var (
	ahead  = phase{name: "ahead", play: func(e *chaos, ctx context.Context) { e.apart(ctx, apart) }, bound: 3, needs: []fault{conflict}, long: true}
	behind = phase{name: "behind", play: func(e *chaos, ctx context.Context) { e.apart(ctx, -apart) }, bound: 3, needs: []fault{conflict}, long: true}
)

// plays reports whether a story has this phase.
func (e *chaos) plays(p phase) bool {
	older := harness.Need(e.Cluster.Before(p.since))(e, "reading the API server's version")
	if older {
		return false
	}
	return e.only == "" && !(p.long && e.Short) || slices.Contains(strings.Split(e.only, ","), p.name)
}

// What a phase needs to have met.
var (
	refusals   = []fault{conflict, gone, noServer, tooMany, internal, unavailable}
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
func (e *chaos) play(ctx context.Context) {
	if e.plays(ahead) || e.plays(behind) { // not within them: it takes its time
		e.skewed = skewed(e.Program, e.Cluster.Dir())
	}
	e.fill(ctx)
	for _, p := range append([]phase{{name: fairWeather, play: (*chaos).fine}}, phases...) {
		switch {
		case ctx.Err() != nil:
			return
		case p.name != fairWeather && !e.plays(p):
			e.left = append(e.left, p.name)
		default:
			e.rows = append(e.rows, e.one(ctx, p))
		}
	}
}

// one plays a phase while claims come and go, lets everything settle without faults, and judges.
func (e *chaos) one(ctx context.Context, p phase) row {
	e.Say("%s", p.name)
	r := row{phase: p}
	e.underLoad(ctx, func() {
		begin := time.Now()
		p.play(e, ctx)
		e.until(ctx, e.moved)
		r.lasted = time.Since(begin)
		if p.name != fairWeather {
			r.tally = e.faults.reset()
		}
	})
	e.faults.set(fair)
	r.made, r.deleted = e.load.Count()
	e.load.ResetCount()
	timeout := harness.Timeout
	if p.name == "silent" {
		timeout += kube.StaleAfter
	}
	r.found, r.settled = e.checker.settle(ctx, timeout)
	if p.name == fairWeather {
		r.tally = e.faults.reset()
	}
	if p.name == "restored" {
		e.afterRestore(ctx, &r)
	}
	e.weigh(p, &r)
	return r
}

// underLoad does something while claims come and go. Both counts begin with it.
func (e *chaos) underLoad(ctx context.Context, during func()) {
	e.faults.reset()
	e.load.During(ctx, e.rate, during)
}

// fill makes as many claims as there are at once, so that from now on one goes for each that comes.
// What is counted after it begins with nothing under way.
func (e *chaos) fill(ctx context.Context) {
	e.underLoad(ctx, func() { e.until(ctx, e.moved) })
	if found, took := e.checker.settle(ctx, harness.Timeout); found.Count() > 0 && ctx.Err() == nil {
		e.Fatalf("the first claims did not settle within %s: %v", took.Round(time.Second), found)
	}
}

// weigh adds what was not a question of timeout.
func (e *chaos) weigh(p phase, r *row) {
	doubles, late := e.checker.doubles()
	r.late = late
	for _, claim := range doubles {
		r.found.Fault(madeTwice, "%s", claim)
	}
	for _, volume := range e.checker.lost() {
		r.found.Fault(noDirectory, "%s", volume)
	}
	if p.name == fairWeather && r.made > 0 {
		// The phase begins and ends with everything settled, so this is what a claim costs that
		// comes and goes, however slow the machine is.
		e.fair = float64(r.tally.sum()) / float64(r.made) * float64(e.rate)
	}
	r.limit = p.bound * e.fair
	if p.futile {
		r.limit = float64(r.made+r.deleted) * tries(r.lasted) / r.lasted.Seconds()
	}
	if r.limit > 0 && r.rate() > r.limit {
		r.found.Fault(tooEager, "%.0f a second, at most %.0f were wanted", r.rate(), r.limit)
	}
	for _, s := range e.checker.storages {
		if strings.Contains(s.Log(), "reason="+plan.ReasonNotEnoughSpace) {
			r.found.Fault(harness.NothingProven, "%s: a pool of %d MiB was too small for what is kept in it", p.name, poolMiB)
		}
	}
	if !e.Running() {
		r.found.Fault(harness.DaemonEnded, "its log ends with: %s", harness.Tail(e.Log(), 2000))
	}
	for _, f := range p.needs {
		if r.tally.faults[f] == 0 {
			r.found.Fault(harness.NothingProven, "%s: it never happened that: %s", p.name, f)
		}
	}
	if r.made == 0 || r.deleted == 0 {
		r.found.Fault(harness.NothingProven, "%s: %d claims made, %d deleted", p.name, r.made, r.deleted)
	}
}

// tries is how often a claim, or a volume whose claim was deleted, is tried within a time at most:
// the daemon waits 100 ms after the first try that failed, twice as long after each further one,
// and 30 s in the end.
func tries(within time.Duration) float64 {
	n, pause := 1.0, 100*time.Millisecond
	for within -= pause; within >= 0; within -= pause {
		n, pause = n+1, min(2*pause, 30*time.Second)
	}
	return n
}

// until waits for what a phase has to have seen: it has a shortest time, and as long as a slow
// machine needs beyond it. What does not come is told in the end, by weigh.
func (e *chaos) until(ctx context.Context, is func() bool) {
	ctx, cancel := context.WithTimeout(ctx, harness.Timeout)
	defer cancel()
	for !is() && ctx.Err() == nil {
		harness.Pass(ctx, 20*time.Millisecond)
	}
}

// created is how many claims were created since the phase began.
func (e *chaos) created() int {
	created, _ := e.load.Count()
	return created
}

// moved reports whether claims were created and deleted since the phase began.
func (e *chaos) moved() bool {
	created, deleted := e.load.Count()
	return created > 0 && deleted > 0
}

func uids(claims map[string]string) map[string]bool {
	all := map[string]bool{}
	for _, uid := range claims {
		all[uid] = true
	}
	return all
}

// fine is the phase without faults, for so many claims as come in its time on an idle machine.
func (e *chaos) fine(ctx context.Context) {
	harness.Pass(ctx, e.time)
	enough := int(e.time.Seconds()) * e.rate / 2
	e.until(ctx, func() bool { return e.created() >= enough })
}

func (e *chaos) miserable(ctx context.Context) {
	e.faults.set(misery)
	harness.Pass(ctx, 2*e.time)
	e.until(ctx, e.faults.saw(everyFault))
}

func (e *chaos) refused(ctx context.Context) {
	e.faults.set(refusing)
	harness.Pass(ctx, e.time/2)
	e.until(ctx, e.faults.saw(refusals))
	e.faults.set(dark)
	harness.Pass(ctx, e.time/2)
	e.until(ctx, e.faults.saw([]fault{cutBefore}))
}

// killed also keeps etcd's data as it then was.
func (e *chaos) killed(ctx context.Context) {
	e.earlier = uids(e.load.Live())
	e.die(ctx, func() error { return copyTree(e.etcd(), e.etcd()+"-earlier") })
}

// die kills the control plane, lets it be away for a while, and starts it again.
func (e *chaos) die(ctx context.Context, meanwhile func() error) {
	e.Must(e.Cluster.Kill(), "killing the control plane")
	e.Must(meanwhile(), "at its data")
	harness.Pass(ctx, e.time/2)
	e.until(ctx, e.faults.saw([]fault{away}))
	e.Must(e.Cluster.Restart(ctx), "starting the control plane again")
}

func (e *chaos) etcd() string { return filepath.Join(e.Cluster.Dir(), "etcd") }

// apart runs the daemon with another clock, in misery.
func (e *chaos) apart(ctx context.Context, by time.Duration) {
	e.recast(ctx, e.skewed, fmt.Sprintf("%s=%d", clockEnv, int(by.Seconds())))
	e.faults.set(misery)
	harness.Pass(ctx, e.time)
	e.until(ctx, e.faults.saw([]fault{conflict}))
	e.mustBeApart(by)
	e.faults.set(fair)
	e.recast(ctx, e.Binary)
}

func (e *chaos) recast(ctx context.Context, binary string, env ...string) {
	e.Must(e.Stop(), "stopping the daemon")
	e.Must(e.Replace(binary, env...), "taking the other daemon")
	e.Must(e.Run(ctx), "starting the other daemon")
}

// mustBeApart asks the daemon for the time: its status file has it.
func (e *chaos) mustBeApart(by time.Duration) {
	var status struct{ Time time.Time }
	data, err := os.ReadFile(e.Daemon.Path("run", "status.json"))
	if err == nil {
		err = json.Unmarshal(data, &status)
	}
	e.Must(err, "asking the daemon for the time")
	if off := time.Until(status.Time) - by; off.Abs() > time.Minute {
		e.Fatalf("the daemon's clock was to be %s off, and it says %s", by, status.Time)
	}
}

// silent lets all watches die without closing, when each has brought a bookmark: one comes a
// minute. A watch that dies before is given up after its time, within kube.StaleAfter.
func (e *chaos) silent(ctx context.Context) {
	harness.Pass(ctx, 75*time.Second)
	e.faults.silence()
	harness.Pass(ctx, min(e.time, 20*time.Second))
}

func copyTree(from, to string) error {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// What the daemon logs when it begins to read claims by their label, and when it reads all again.
const (
	byLabel   = "claims are read by the label"
	allClaims = "all claims of the cluster are read"

	keptByLabel = "pre-bound volumes are selected by the label"
)

// idle is a mutation that changes nothing, in the place of the policy's own.
const idle = `[{"op":"replace","path":"/spec/mutations/0/jsonPatch/expression","value":"[JSONPatch{op: \"test\", path: \"/kind\", value: \"\"}]"}]`

// indexed has the API server label claims, and takes that away in each way while claims come and go
// and the daemon's requests fail.
func (e *chaos) indexed(ctx context.Context) {
	admission := e.Cluster.Client().AdmissionregistrationV1()
	label := func() {
		e.Must(e.Cluster.Apply(ctx, []byte(claimindex.VolumesManifest+claimindex.Manifest)), "applying the policies")
	}
	label()
	e.recast(ctx, e.Binary) // it looks for a policy every ten minutes
	for i, end := range []func(policy string) error{
		func(policy string) error {
			return admission.MutatingAdmissionPolicyBindings().Delete(ctx, policy, metav1.DeleteOptions{})
		},
		func(policy string) error {
			_, err := admission.MutatingAdmissionPolicies().Patch(ctx, policy, types.JSONPatchType, []byte(idle), metav1.PatchOptions{})
			return err
		},
		func(policy string) error {
			return admission.MutatingAdmissionPolicies().Delete(ctx, policy, metav1.DeleteOptions{})
		},
	} {
		e.logged(ctx, byLabel, i+1)
		e.logged(ctx, keptByLabel, i+1)
		harness.Pass(ctx, time.Second)
		e.faults.set(misery)
		e.Must(end(claimindex.Name), "ending the index")
		e.Must(end(claimindex.VolumesName), "ending the index of volumes")
		harness.Pass(ctx, e.time/6)
		if i == 1 {
			e.remove(ctx)
		}
		label()
		e.faults.set(fair)
	}
	e.logged(ctx, byLabel, 4)
	e.logged(ctx, keptByLabel, 4)
	e.logged(ctx, allClaims, 3)
	e.remove(ctx)
}

// remove removes both policies.
func (e *chaos) remove(ctx context.Context) {
	for _, policy := range []string{claimindex.Name, claimindex.VolumesName} {
		e.Must(e.Cluster.Client().AdmissionregistrationV1().MutatingAdmissionPolicies().Delete(ctx, policy, metav1.DeleteOptions{}), "removing the policy "+policy)
	}
}

// logged waits until the daemon's log has a text so often.
func (e *chaos) logged(ctx context.Context, text string, times int) {
	is := func() bool { return strings.Count(e.Log(), text) >= times }
	if e.until(ctx, is); !is() && ctx.Err() == nil {
		e.Fatalf("the daemon did not log %q %d times within %s", text, times, harness.Timeout)
	}
}
