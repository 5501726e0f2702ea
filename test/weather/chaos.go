package weather

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// chaosOptions are the flags of Chaos.
type chaosOptions struct {
	time  time.Duration // how long the API is unkind in each phase
	rate  int           // claims made a second
	live  int           // claims at once
	only  string        // phases, with commas; empty: all
	scope string        // of the pool
}

// chosenClass is the class of claims whose node the scheduler chooses.
const chosenClass = "chaos-chosen"

var allScopes = []string{plan.ScopeNode, plan.ScopeShared, plan.ScopeEveryNode}

// Chaos puts a proxy between the daemon and a real API server that, at random, breaks connections
// before and after the server did what it was asked, delays, sends a request twice, responds with
// 404, 409, 410, 429, 500 and 503, writes halves, and lets watches fall silent. Meanwhile claims
// come and go at a steady pace, at the API server itself.
//
// After each phase everything must settle, and the requests that were counted meanwhile are bounded:
// by what the claims of a second cost without faults, or, where nothing is done, by the pauses that
// the daemon makes between two tries. Neither depends on how fast the machine is.
//
// All of it is played with a pool of each scope, each on a control plane of its own. A shared pool
// has two daemons on the same storage; one of scope every-node has two with a filesystem each. The
// draws follow the seed; which request meets which draw does not. A server that lies is not survived.
func Chaos() harness.Trial {
	o := chaosOptions{}
	var scopes string
	return harness.Trial{
		Name: "chaos", Short: "time=4s rate=10 live=40", Timeout: 3 * time.Minute,
		Does: `Puts an unkind API between the daemon and a real API server while claims come and go, and compares
the state after each phase. The short form leaves out the phases that need minutes, and plays restored
alone with all scopes but the first, at the same time.`,
		Flags: func(flags *flag.FlagSet) {
			flags.DurationVar(&o.time, "time", time.Minute, "how long the API is unkind in each phase")
			flags.IntVar(&o.rate, "rate", 25, "how many claims are made a second")
			flags.IntVar(&o.live, "live", 60, "how many claims exist at once")
			flags.StringVar(&o.only, "only", "", "phases to play after the fair one, with commas; all: "+strings.Join(phaseNames(), ","))
			flags.StringVar(&scopes, "scopes", strings.Join(allScopes, ","), "scopes of the pool to play with")
		},
		Check: func() error {
			if o.live < 1 || o.rate < 1 || o.time <= 0 {
				return errors.New("-live, -rate and -time must be positive")
			}
			return errors.Join(known("scope", scopes, allScopes), known("phase", o.only, phaseNames()))
		},
		Play: func(ctx context.Context, p *harness.Program) {
			stories := o.stories(strings.Split(scopes, ","), p.Short)
			var beside sync.WaitGroup
			for i, story := range stories {
				tell := func() {
					if code := story.tell(ctx, p.Common, i > 0); code != 0 {
						p.Fault("scopes with findings", "%s", story.scope)
					}
				}
				if p.Short && i > 0 {
					beside.Go(tell)
				} else {
					tell()
				}
			}
			beside.Wait()
		},
	}
}

// known returns an error for a name that is not among these.
func known(what, names string, all []string) error {
	for name := range strings.SplitSeq(names, ",") {
		if name != "" && !slices.Contains(all, name) {
			return fmt.Errorf("there is no %s %q", what, name)
		}
	}
	return nil
}

// stories are what is played: in the short form, with all scopes but the first, only the phase in
// which the scopes differ most.
func (o chaosOptions) stories(scopes []string, short bool) (all []chaosOptions) {
	for i, scope := range scopes {
		story := o
		story.scope = scope
		if short && i > 0 && o.only == "" {
			story.only, story.time = "restored", min(o.time, 2*time.Second)
		}
		all = append(all, story)
	}
	return all
}

// printing is held by the story that prints its report.
var printing sync.Mutex

// tell plays one story.
func (o chaosOptions) tell(ctx context.Context, c harness.Common, further bool) int {
	if further && c.KeepLog != "" {
		c.KeepLog += "." + o.scope
	}
	return harness.Run(ctx, "chaos", func(ctx context.Context, p *harness.Program) {
		p.Common = c
		p.Label(o.scope)
		p.Say("seed %d", p.Seed)
		e := buildChaos(ctx, p, o)
		e.play(ctx)
		printing.Lock()
		defer printing.Unlock()
		e.print()
	})
}

// chaos is what the unkindness hits.
type chaos struct {
	*harness.Environment
	chaosOptions
	faults  *injector
	proxy   *proxy
	load    *harness.Load
	checker *checker
	fair    float64 // requests that the claims of a second cost without faults
	skewed  string  // the daemon with another clock, if it is played

	rows []row
	left []string // phases that were not played
	kept int      // directories with data of volumes that a restored server forgot
	back int      // claims that were deleted and came back

	earlier map[string]bool // UIDs of the claims that etcd's data was kept with
}

// buildChaos makes everything up to a running daemon behind the proxy.
func buildChaos(ctx context.Context, p *harness.Program, o chaosOptions) *chaos {
	e := &chaos{chaosOptions: o, Environment: harness.Start(ctx, p, harness.Options{
		// What kube-controller-manager missed is settled sooner: it is not what is tested here.
		Plane: cluster.Options{ExtraArgs: []string{"--kcm-flag=--pvclaimbinder-sync-period=2s"}},
	})}
	pool := harness.Pool{Name: e.Name(), Path: filepath.Join(hosttest.Dir(p), "pool"), TOML: fmt.Sprintf("scope = %q\n", o.scope)}
	pool.Mount = func() { harness.Mkfs(p, poolMiB).Mount(p, pool.Path) }
	e.AddPool(pool)
	expandable := func(c *storagev1.StorageClass) { c.AllowVolumeExpansion = new(bool); *c.AllowVolumeExpansion = true }
	e.AddClass(ctx, e.Name(), e.Node, expandable)
	e.AddClass(ctx, chosenClass, e.Node, expandable, func(c *storagev1.StorageClass) {
		*c.VolumeBindingMode = storagev1.VolumeBindingWaitForFirstConsumer
	})
	e.startProxy()
	e.addPeer(ctx, pool)
	p.Must(e.Run(ctx), "starting the daemon")
	p.Cleanup(func() error { e.faults.set(fair); return nil }) // for what the daemon writes at its end
	e.load = harness.NewLoad(e.Client, e.Namespace, o.live, p.Seed, e.claim)
	e.load.Growing()
	e.checker = newChecker(e.Environment, o.scope, pool.Path, e.Storages(pool), e.load)
	go e.checker.run(ctx)
	return e
}

// poolMiB is room for all claims of the load, for those that are being removed, and for the volumes
// that a restored server has forgotten: on a busy machine a daemon is hundreds of removals behind
// when the server dies, and of scope every-node each of those is kept. If it is not enough, weigh
// says so.
const poolMiB = 4096

func (e *chaos) startProxy() {
	e.faults = newInjector(e.Seed)
	e.proxy = newProxy(e, e.Cluster.Config(), e.faults)
	e.Cleanup(func() error { e.proxy.close(); return nil })
	e.Must(e.Redirect(e.proxy.address, e.proxy.ca), "pointing the daemon to the proxy")
}

// addPeer makes a second node, except for a pool of scope node.
func (e *chaos) addPeer(ctx context.Context, pool harness.Pool) {
	switch e.scope {
	case plan.ScopeShared:
		e.AddPeer(ctx, pool, nil)
	case plan.ScopeEveryNode:
		own := harness.Mkfs(e, poolMiB)
		e.AddPeer(ctx, pool, &own)
	}
}

// claim is a claim of the load: every other one with a node as the scheduler chooses it; else of a
// pool of scope node for the node that it names, and of another pool for none.
func (e *chaos) claim(claim string) *corev1.PersistentVolumeClaim {
	if strings.ContainsAny(claim[len(claim)-1:], "02468") {
		c := cluster.Claim(e.Namespace, claim, chosenClass, "1Mi")
		c.Annotations = map[string]string{plan.SelectedNode: e.Node}
		return c
	}
	if e.scope == plan.ScopeNode {
		return e.NewClaim(e.Name(), claim)
	}
	return cluster.Claim(e.Namespace, claim, e.Name(), "1Mi")
}

// row is what came of a phase.
type row struct {
	phase         phase
	limit         float64       // requests a second that were let pass
	lasted        time.Duration // the unkindness
	settled       time.Duration // until all was well, after it
	made, deleted int           // claims
	late          int           // volumes made again for claims that were being deleted
	tally         tally
	found         *harness.Findings
}

// rate is the requests a second while the phase lasted: of the fair one with those until all was
// settled.
func (r row) rate() float64 { return float64(r.tally.sum()) / r.lasted.Seconds() }

func (e *chaos) print() {
	fmt.Printf("\nscope %s\n%-10s %7s %8s  %6s %8s  %8s %6s %8s %7s  %6s %8s %6s\n", e.scope, "phase", "lasted", "settled",
		"claims", "deleted", "requests", "a sec", "busiest", "bound", "faults", "doubles", "lost")
	for _, row := range e.rows {
		bound, faults := "", 0
		if row.limit > 0 {
			bound = fmt.Sprintf("%.0f", row.limit)
		}
		for _, n := range row.tally.faults {
			faults += n
		}
		fmt.Printf("%-10s %6.1fs %7.1fs  %6d %8d  %8d %6.0f %8d %7s  %6d %8d %6d\n", row.phase.name, row.lasted.Seconds(),
			row.settled.Seconds(), row.made, row.deleted, row.tally.sum(), row.rate(), row.tally.busiest, bound, faults,
			row.found.Count(madeTwice), row.found.Count()-row.found.Count(madeTwice))
		e.Merge(row.found, row.phase.name+": ")
	}
	e.printFaults()
	fmt.Printf("the restored server had forgotten the volumes of %d directories with data, which were kept, and remembered %d claims that had been deleted\n", e.kept, e.back)
	if late := e.late(); late > 0 {
		fmt.Printf("%d volumes were made once more for claims that were being deleted, and removed again\n", late)
	}
	if len(e.left) > 0 {
		fmt.Println("not played:", strings.Join(e.left, ", "))
	}
	fmt.Printf("scope %s, seed %d\n", e.scope, e.Seed)
	e.Report(kinds...)
}

func (e *chaos) late() (n int) {
	for _, row := range e.rows {
		n = max(n, row.late)
	}
	return n
}

func (e *chaos) printFaults() {
	fmt.Println("faults (refusals half of the time after the server had done what it was asked)")
	for _, row := range e.rows {
		var parts []string
		for _, f := range slices.Sorted(maps.Keys(row.tally.faults)) {
			parts = append(parts, fmt.Sprintf("%s %d", f, row.tally.faults[f]))
		}
		if len(parts) > 0 {
			fmt.Printf("  %-10s %s\n", row.phase.name, strings.Join(parts, ", "))
		}
	}
}

// apart is how far the daemon's clock is from the API server's.
const apart = 10 * time.Minute

// clockEnv is read by the binary that skewed builds: seconds to add to the clock.
const clockEnv = "CHAOS_CLOCK"

// skewed builds the daemon from the same source with another clock, which is the daemon's alone:
// Go's package time is compiled with a Now that adds what the environment says (go build -overlay).
// A time namespace has no wall clock, and libfaketime cannot reach a static binary.
//
// That is everything the daemon knows of the time of day: times it writes and compares, and the
// validity of certificates. Times that the kernel writes (files) stay right, as do intervals.
func skewed(p *harness.Program, dir string) (binary string) {
	overlay := writeOverlay(p, filepath.Join(rig.Root(), ".build", "clock"))
	binary = filepath.Join(dir, "hostpath-provisioner-skewed")
	build := exec.Command("go", "build", "-trimpath", "-overlay", overlay, "-o", binary, "./cmd/hostpath-provisioner")
	build.Dir = rig.Root()
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // the build cache's key is the Makefile's
	out, err := build.CombinedOutput()
	p.Must(err, "building the daemon with another clock: "+string(out))
	return binary
}

// The change to package time.
const (
	clockCall = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	clockSkew = "\tsec, nsec, mono := runtimeNow()\n\tsec += chaosClock\n\tif mono == 0 {"
	clockFile = `package time

import "syscall"

var chaosClock = readChaosClock()

func readChaosClock() int64 {
	text, _ := syscall.Getenv("` + clockEnv + `")
	n, _ := atoi(text)
	return int64(n)
}
`
)

// writeOverlay writes package time's changed files, and returns the file that names them. The paths
// stay the same from run to run, which keeps the build cache warm.
func writeOverlay(p *harness.Program, dir string) string {
	out := harness.Need(exec.Command("go", "env", "GOROOT").Output())(p, "go env")
	standard := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	source := harness.Need(os.ReadFile(filepath.Join(standard, "time.go")))(p, "reading package time")
	if strings.Count(string(source), clockCall) != 1 {
		p.Fatalf("%s is not what it was: see skewed", filepath.Join(standard, "time.go"))
	}
	p.Must(os.MkdirAll(dir, 0o755), "making "+dir)
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for name, text := range map[string]string{
		"time.go":       strings.Replace(string(source), clockCall, clockSkew, 1),
		"chaosclock.go": clockFile,
	} {
		overlay.Replace[filepath.Join(standard, name)] = filepath.Join(dir, name)
		p.Must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644), "writing "+name)
	}
	file := filepath.Join(dir, "overlay.json")
	text := harness.Need(json.Marshal(overlay))(p, "writing an overlay")
	p.Must(os.WriteFile(file, text, 0o644), "writing an overlay")
	return file
}
