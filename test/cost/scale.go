package cost

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// scaleOptions are the flags of Scale.
type scaleOptions struct {
	sizes     []int // foreign claims, in ascending order
	change    int   // of these change while they are watched
	starts    int   // of each daemon at each size
	look      bool
	storm     bool
	nodes     int // with a real provisioner, in a storm
	simulated int
	claims    int // of a storm
	json      string
	build     string
}

const missedLimit = "limits that were missed"

// Scale measures what a node costs in a large cluster: the memory and the bytes of the daemon, with
// and without the claim index, of a provisioner on the usual library, and of client-go's informers
// alone, beside claims and volumes of other nodes; and how soon each of them makes its first volume.
// All are measured in one run, on one API server.
//
// The volume controllers of kube-controller-manager are off in the first part, so that claims of
// other nodes stay as they were made. Bytes are those that the API server sends, TLS included. A
// time depends on the machine: one other program is enough to miss the limit.
func Scale() harness.Trial {
	var o scaleOptions
	var sizes string
	return harness.Trial{
		Name: "scale",
		Does: `Measures the memory and the bytes that a node needs beside claims and volumes of other nodes. Wants some
6 GB of memory for 100,000 claims.`,
		Flags: func(flags *flag.FlagSet) {
			flags.StringVar(&sizes, "sizes", "0,10000,100000", "how many claims, with a volume each, other nodes have; the first is what the others are compared with")
			flags.IntVar(&o.change, "change", 10000, "how many of them change while they are watched, or all if they are fewer")
			flags.IntVar(&o.starts, "starts", 3, "how often each daemon is started at each size")
			flags.BoolVar(&o.look, "look", false, "measure what the look for kept volumes costs a claim, and nothing else")
			flags.BoolVar(&o.storm, "storm", false, "measure what claims cost that come at once to a cluster of many nodes, and nothing else")
			flags.IntVar(&o.nodes, "nodes", 10, "how many nodes of a storm have a real provisioner")
			flags.IntVar(&o.simulated, "simulated", 500, "how many more are simulated")
			flags.IntVar(&o.claims, "claims", 5000, "how many claims a storm has")
			flags.StringVar(&o.json, "json", "", "a file that the results are written to")
			flags.StringVar(&o.build, "build", filepath.Join(rig.Root(), ".build"), "where the programs are")
		},
		Check: func() (err error) {
			o.sizes, err = ascending(sizes)
			if err == nil && min(o.starts, o.change, o.nodes, o.simulated, o.claims) < 1 {
				err = errors.New("each number must be at least 1")
			}
			return err
		},
		Play: func(ctx context.Context, p *harness.Program) {
			s := &scale{plane: plane{program: p}, opt: o}
			r := results{Machine: harness.Machine()}
			switch {
			case o.look:
				r.Looks = s.looks(ctx)
			case o.storm:
				r.Storms = s.storms(ctx)
			default:
				r.Rows = s.sizes(ctx)
			}
			fmt.Print("\n", r.table())
			for _, missed := range r.missed() {
				p.Fault(missedLimit, "%s", missed)
			}
			if o.json != "" {
				p.Must(r.write(o.json), "writing the results")
			}
			p.Report(missedLimit)
		},
	}
}

// ascending are the numbers in a text with commas.
func ascending(text string) (all []int, err error) {
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 || len(all) > 0 && n <= all[len(all)-1] {
			return nil, fmt.Errorf("-sizes: %q is no number above the one before", word)
		}
		all = append(all, n)
	}
	return all, nil
}

// The classes of the provisioners.
const (
	ours   = "ours"
	theirs = "theirs"
)

// provisioner is the name that a contender's class has.
func (s *scale) provisioner(c *contender) string {
	if c.class == theirs {
		return theirs
	}
	return plan.DefaultProvisioner
}

// scale is the cluster and what is measured in it.
type scale struct {
	plane
	opt scaleOptions

	daemon   *contender
	informer []*contender // and the library
	foreign  int          // claims that other nodes have
	perClaim float64      // bytes that the control plane takes for each, 0 before it is known
}

func (s *scale) build(ctx context.Context) {
	s.Plane = s.program.StartPlane(ctx, "scale", cluster.Options{ExtraArgs: []string{harness.QuietControllers}})
	s.AddClass(ctx, ours, plan.DefaultProvisioner, whenConsumed)
	s.AddClass(ctx, theirs, theirs, whenConsumed)
	s.daemon, s.informer = s.newDaemon(ctx, "node-"+ours), nil
	informers := s.compile("./test/cost/shared")
	s.informer = []*contender{
		s.newPeer(ctx, "node-"+theirs), s.newProgram(plain, informers, "KUBECONFIG"),
	}
}

func (s *scale) compile(dir string) string {
	binary := filepath.Join(hosttest.Dir(s), filepath.Base(dir))
	cmd := exec.Command("go", "build", "-trimpath", "-o", binary, dir)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return binary
}

// affordable returns how many foreign claims fit in the memory that the machine has: the control
// plane and three programs hold them.
func (s *scale) affordable(size int) int {
	if s.perClaim == 0 {
		return size
	}
	data := harness.Need(os.ReadFile("/proc/meminfo"))(s, "reading the memory that there is")
	available := 0
	for line := range strings.Lines(string(data)) {
		_, _ = fmt.Sscanf(line, "MemAvailable: %d kB", &available)
	}
	fit := s.foreign + int(float64(available)*1024/(2*s.perClaim))
	if fit >= size {
		return size
	}
	s.Say("%d claims in place of %d: there are %d MiB of memory, and one takes %.0f KiB of the control plane", fit, size, available/1024, s.perClaim/1024)
	return fit
}

// fill makes foreign claims until there are so many.
func (s *scale) fill(ctx context.Context, size int) {
	if size == s.foreign {
		return
	}
	s.Say("making %d claims of other nodes, with a volume each", size-s.foreign)
	before := s.planeMemory()
	s.Must(fillWith(ctx, s.Client, s.foreign, size), "making claims")
	s.perClaim = max(1, float64(s.planeMemory()-before)*1024/float64(size-s.foreign))
	s.foreign = size
	s.Say("  the control plane has %d MiB", s.planeMemory()/1024)
}

// planeMemory is what the control plane has resident, in KiB.
func (s *scale) planeMemory() int {
	status := harness.Need(process.Status(s.Cluster.PID()))(s, "reading the control plane's memory")
	return status["VmRSS"]
}

// measure measures all contenders at one size: first those that read all claims, then the daemon
// with the index.
func (s *scale) measure(ctx context.Context, size int) (rows []row) {
	s.Say("%d claims of other nodes", size)
	s.daemon.name = daemonAll
	rows = append(rows, s.several(ctx, s.daemon, size))
	for _, c := range s.informer {
		rows = append(rows, s.run(ctx, c, size))
	}
	s.change(ctx, append([]*contender{s.daemon}, s.informer...), rows)
	s.Must(s.daemon.stop(s.Soon()), "stopping the daemon")
	s.Must(s.Cluster.Apply(ctx, []byte(claimindex.VolumesManifest+claimindex.Manifest)), "applying the policies")
	rows = append(rows, s.firstIndexed(ctx, size))
	s.daemon.name = daemonIndexed
	rows = append(rows, s.several(ctx, s.daemon, size))
	s.change(ctx, []*contender{s.daemon}, rows[len(rows)-1:])
	s.Must(s.daemon.stop(s.Soon()), "stopping the daemon")
	s.removeIndex(ctx)
	return rows
}

// firstIndexed starts the daemon on a node that does not know the index yet: it reads all claims,
// and does so again to see whether each has its label, and then all volumes. What it received in
// all is in the row, and its memory then.
func (s *scale) firstIndexed(ctx context.Context, size int) row {
	s.daemon.name = daemonFirst
	before := s.daemon.meter.received()
	r := s.run(ctx, s.daemon, size)
	s.indexFound(s.daemon)
	s.rest(s.daemon)
	r.Resident, r.Peak = s.memory(s.daemon)
	r.StartBytes = s.daemon.meter.received() - before
	s.Say("  %-48s %6.1f MiB, %9.4f MB received until the index is in use", "", r.Resident, float64(r.StartBytes)/1e6)
	s.Must(s.daemon.stop(s.Soon()), "stopping the daemon")
	return r
}

// change lets foreign claims change and notes in the rows what the contenders receive. Those that
// are no daemons end then.
func (s *scale) change(ctx context.Context, all []*contender, rows []row) {
	n := min(s.opt.change, s.foreign)
	before := make([]int64, len(all))
	for i, c := range all {
		before[i] = c.meter.received()
	}
	if n > 0 {
		s.Say("  %d of them change", n)
		s.Must(changeClaims(ctx, s.Client, n, fmt.Sprint(s.foreign, all[0].name)), "changing claims")
	}
	for i, c := range all {
		s.rest(c)
		rows[i].Changed, rows[i].ChangeByte = n, c.meter.received()-before[i]
	}
	for _, c := range all {
		if c.daemon == nil {
			s.Must(c.stop(s.Soon()), "stopping "+c.name)
		}
	}
}

func median[T cmp.Ordered](all []row, of func(row) T) T {
	values := make([]T, len(all))
	for i, r := range all {
		values[i] = of(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// sizes measures all contenders in clusters of several sizes.
func (s *scale) sizes(ctx context.Context) (rows []row) {
	s.build(ctx)
	for _, size := range s.opt.sizes {
		size = s.affordable(size)
		s.fill(ctx, size)
		rows = append(rows, s.measure(ctx, size)...)
	}
	return rows
}

func (r results) write(file string) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
