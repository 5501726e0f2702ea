package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/footprint"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// The classes of the provisioners.
const (
	ours   = "ours"
	theirs = "theirs"
)

// whenConsumed is a change of a class.
func whenConsumed(c *storagev1.StorageClass) {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	c.VolumeBindingMode = &mode
}

// provisioner is the name that a contender's class has.
func (s *scale) provisioner(c *contender) string {
	if c.class == theirs {
		return theirs
	}
	return plan.DefaultProvisioner
}

// scale is the cluster and what is measured in it.
type scale struct {
	*harness.Plane
	program *harness.Program
	opt     options

	daemon   *contender
	informer []*contender // and the library
	foreign  int          // claims that other nodes have
	perClaim float64      // bytes that the control plane takes for each, 0 before it is known
}

// quietControllers writes nothing about claims and volumes.
const quietControllers = "--kcm-flag=--controllers=*,-persistentvolume-binder-controller,-persistentvolume-protection-controller,-persistentvolumeclaim-protection-controller"

func (s *scale) build(ctx context.Context) {
	s.Plane = s.program.StartPlane(ctx, "scale", cluster.Options{ExtraArgs: []string{quietControllers}})
	s.AddClass(ctx, ours, plan.DefaultProvisioner, whenConsumed)
	s.AddClass(ctx, theirs, theirs, whenConsumed)
	s.daemon, s.informer = s.newDaemon(ctx, "node-"+ours), nil
	informers := s.compile("./test/footprint/shared")
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
	data, err := os.ReadFile("/proc/meminfo")
	s.Must(err, "reading the memory that there is")
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
	s.Must(footprint.Fill(ctx, s.Client, s.foreign, size), "making claims")
	s.perClaim = max(1, float64(s.planeMemory()-before)*1024/float64(size-s.foreign))
	s.foreign = size
	s.Say("  the control plane has %d MiB", s.planeMemory()/1024)
}

// planeMemory is what the control plane has resident, in KiB.
func (s *scale) planeMemory() int {
	status, err := process.Status(s.Cluster.PID())
	s.Must(err, "reading the control plane's memory")
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
	before := s.daemon.meter.Received()
	r := s.run(ctx, s.daemon, size)
	s.indexFound(s.daemon)
	s.rest(s.daemon)
	status, err := process.Status(s.daemon.pid())
	s.Must(err, "reading the memory of the daemon")
	r.Resident, r.Peak, r.StartBytes = float64(status["VmRSS"])/1024, float64(status["VmHWM"])/1024, s.daemon.meter.Received()-before
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
		before[i] = c.meter.Received()
	}
	if n > 0 {
		s.Say("  %d of them change", n)
		s.Must(footprint.Change(ctx, s.Client, 0, n, fmt.Sprint(s.foreign, all[0].name)), "changing claims")
	}
	for i, c := range all {
		s.rest(c)
		rows[i].Changed, rows[i].ChangeByte = n, c.meter.Received()-before[i]
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
