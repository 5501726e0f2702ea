// Command bench measures the daemon beside a bare client, which is the floor, and beside a
// provisioner on the usual library, on a real API server and a real filesystem, all in one run.
//
// Every contender is a process of its own, has a fresh filesystem for each run, and is judged by
// the same observer: one watch of claims and one of volumes. Absolute numbers are this machine's;
// the ratios are what it is for. It exits 1 if something failed, and never because something was
// slow.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

func main() {
	parts := map[string]func(args []string) int{
		floorCommand: floorMain, purgeCommand: purgeMain, writerCommand: writerMain,
	}
	if len(os.Args) > 1 && parts[os.Args[1]] != nil {
		os.Exit(parts[os.Args[1]](os.Args[2:]))
	}
	os.Exit(benchTrial().Main(os.Args[1:]))
}

// run is the benchmark in its own mount namespace.
func run(ctx context.Context, p *harness.Program, o options) {
	b := &bench{Program: p, options: o, out: os.Stdout}
	p.Must(harness.Outcome(func() error { return b.all(ctx) }), "measuring")
	if b.samples.failed() {
		p.Fault("contenders that failed", "see the table")
	}
}

// all measures what the options ask for and prints it.
func (b *bench) all(ctx context.Context) error {
	if len(b.ownCases()) > 0 {
		harness.Check(b.ownPart(ctx))
	}
	if slices.Contains(b.cases, casePurge) {
		harness.Check(b.measurePurge(ctx))
	}
	if slices.Contains(b.cases, caseCluster) {
		fmt.Fprintf(b.out, "\n%s, pools on loop %s in %s, the control plane's components with their own limits,\none control plane for each run\n\n", harness.Machine(), b.fs, b.place())
		harness.Check(b.measureCluster(ctx))
	}
	if slices.Contains(b.cases, casePublish) {
		b.measurePublish(ctx)
	}
	if slices.Contains(b.cases, caseSnapshot) {
		b.measureSnapshot(ctx)
	}
	fmt.Fprintf(b.out, "\ntook %s\n", b.Elapsed().Round(time.Second))
	return nil
}

// ownPart measures what is left of the time when kube-controller-manager binds nothing.
func (b *bench) ownPart(ctx context.Context) error {
	fmt.Fprintf(b.out, "%s, pools on loop %s in %s, kube-controller-manager's volume binder off,\nno garbage collected by the control plane within a case: its rates are higher than a user's, the ratios are what counts\n\n", harness.Machine(), b.fs, b.place())
	harness.Check(b.measure(ctx))
	fmt.Fprint(b.out, "\n", b.report())
	return nil
}

// bench is one call of the program.
type bench struct {
	*harness.Program
	options
	out     io.Writer
	samples samples
}

// options is what the command line says.
type options struct {
	contenders      []string // by name, in the order of the tables
	cases           []string
	claims          int // of the two cases with many
	single          int // of the case with one at a time
	slow            int // of each case, for a contender that is limited to a few a second
	repeats         int
	fs              string
	disk            string // where the pools' images are, "" is memory
	pods            int    // of the case cluster, each with a claim
	replicas        int    // of its StatefulSet
	clusterRuns     int    // repeats of this case
	files           int    // of the volume of the case purge
	purgeRepeats    int    // how often that is removed in each way
	publishes       int    // of the case publish
	snapshotFiles   int    // of the volume of the case snapshot
	snapshotRepeats int    // how often it is copied in each way
	json            string // a file for the results of the case cluster
	daemon          string // its binary
	against         string // another build of it
	peer            string
}

const (
	singlePause = 20 * time.Millisecond // between two claims of the case single
	caseLimit   = time.Minute           // a contender that needs longer for a case has failed
	slowRepeats = 1                     // runs of the library as shipped
)

// benchTrial is the command line.
func benchTrial() harness.Trial {
	build := cmp.Or(os.Getenv("BUILD"), filepath.Join(rig.Root(), ".build"))
	var o options
	var who, which string
	return harness.Trial{
		Name: "bench",
		Short: "claims=150 single=20 slow-claims=8 repeats=1 pods=30 replicas=3 cluster-repeats=1 publishes=200 " +
			"files=50000 purge-repeats=1 snapshot-files=2000 snapshot-repeats=2",
		Does: `Measures provisioners on throwaway real control planes: the floor (a bare client), the usual library
as shipped and tuned, and the daemon. The case cluster is what a user waits for; the others watch the
daemon's own part. The cases purge, publish and snapshot need no control plane. The numbers of the short
form say little.`,
		Flags: func(flags *flag.FlagSet) {
			flags.StringVar(&who, "contenders", strings.Join(allContenders, ","), "who takes part")
			flags.StringVar(&which, "cases", strings.Join(allCases, ","), "what is measured")
			flags.IntVar(&o.claims, "claims", 1000, "claims of the cases backlog and burst")
			flags.IntVar(&o.single, "single", 100, "claims of each contender in a run of the case single, of which there is one in three repeats")
			flags.IntVar(&o.slow, "slow-claims", 40, "claims of each case for the library as shipped, which limits itself to a few a second")
			flags.IntVar(&o.repeats, "repeats", 15, "runs of each contender: one differs from the next by a third")
			flags.StringVar(&o.fs, "fs", "ext4", "filesystem of the pools: ext4 or xfs")
			flags.StringVar(&o.disk, "disk", "", "directory for the pools' images, so that an fsync costs what that disk makes it cost; default: memory")
			flags.IntVar(&o.pods, "pods", 100, "pods of the case cluster, each with a claim")
			flags.IntVar(&o.replicas, "replicas", 10, "pods of its StatefulSet")
			flags.IntVar(&o.clusterRuns, "cluster-repeats", 3, "runs of each contender in the case cluster, each on a control plane of its own")
			flags.IntVar(&o.files, "files", 1_000_000, "files of the volume that is removed in the case purge")
			flags.IntVar(&o.purgeRepeats, "purge-repeats", 3, "how often it is removed in each way")
			flags.IntVar(&o.publishes, "publishes", 2000, "volumes that are mounted in the case publish, by each contender")
			flags.IntVar(&o.snapshotFiles, "snapshot-files", 20_000, "files of the volume that is copied in the case snapshot")
			flags.IntVar(&o.snapshotRepeats, "snapshot-repeats", 7, "how often it is copied in each way")
			flags.StringVar(&o.json, "json", "", "a file that the results of the case cluster are written to")
			flags.StringVar(&o.against, "against", "", "another build of the daemon, which takes part as well")
			flags.StringVar(&o.peer, "peer", filepath.Join(build, "bench-peer"), "the library's provisioner")
		},
		Check: func() error {
			o.contenders, o.cases = split(who), split(which)
			if o.against != "" {
				o.contenders = append(o.contenders, nameAgainst)
			}
			return o.validate()
		},
		Play: func(ctx context.Context, p *harness.Program) {
			o.daemon = cmp.Or(p.Binary, filepath.Join(build, "hostpath-provisioner"))
			run(ctx, p, o)
		},
	}
}

func (o options) validate() error {
	var all []error
	for _, name := range o.contenders {
		if !slices.Contains(allContenders, name) && name != nameAgainst {
			all = append(all, fmt.Errorf("-contenders: unknown %q; known are %s", name, strings.Join(allContenders, ", ")))
		}
	}
	for _, name := range o.cases {
		if !slices.Contains(allCases, name) {
			all = append(all, fmt.Errorf("-cases: unknown %q; known are %s", name, strings.Join(allCases, ", ")))
		}
	}
	if o.fs != "ext4" && o.fs != "xfs" {
		all = append(all, fmt.Errorf("-fs: %q is neither ext4 nor xfs", o.fs))
	}
	for name, value := range map[string]int{"claims": o.claims, "single": o.single, "slow-claims": o.slow, "repeats": o.repeats, "pods": o.pods, "replicas": o.replicas, "cluster-repeats": o.clusterRuns, "publishes": o.publishes, "files": o.files, "purge-repeats": o.purgeRepeats, "snapshot-repeats": o.snapshotRepeats} {
		if value < 1 {
			all = append(all, fmt.Errorf("-%s: %d is less than 1", name, value))
		}
	}
	if o.snapshotFiles < writtenFiles*perDirectory {
		all = append(all, fmt.Errorf("-snapshot-files: %d is less than %d", o.snapshotFiles, writtenFiles*perDirectory))
	}
	return errors.Join(all...)
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

func (o options) place() string {
	if o.disk == "" {
		return "memory"
	}
	return o.disk
}
