package cost

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

const (
	restFor   = time.Second // one that used at most restTicks of processor time in it is at rest
	restTicks = 10 * time.Millisecond
	restIn    = 2 * time.Minute
	startIn   = 5 * time.Minute
)

// contender is a program that is measured.
type contender struct {
	name   string
	class  string // of the claims that it provisions; "" if it provisions none
	node   string
	meter  *meter
	daemon *rig.Daemon // nil: args
	args   []string
	child  *process.Child // of args
	claims int
}

func (s *scale) newMeter() *meter {
	m, err := newMeter(s.Cluster.Config().Host)
	s.Must(err, "listening")
	s.Cleanup(m.Close)
	return m
}

// newDaemon is a node's daemon, which reaches the API server through a meter.
func (s *scale) newDaemon(ctx context.Context, node string) *contender {
	c := &contender{class: ours, node: node, meter: s.newMeter()}
	c.daemon = s.plane.newDaemon(node, plan.DefaultProvisioner, "1g")
	s.ApplyManifests(ctx, c.daemon)
	direct := c.daemon.Path("direct")
	s.Must(s.addNode(ctx, node, direct), "adding a node")
	s.Must(c.meter.kubeconfig(direct, c.daemon.Path("kubeconfig")), "writing a kubeconfig")
	return c
}

// newPeer is a provisioner on the usual library.
func (s *scale) newPeer(ctx context.Context, node string) *contender {
	s.Must(s.Cluster.AddHost(ctx, node, nil), "adding a node")
	c := s.newProgram(library, filepath.Join(s.opt.build, "bench-peer"), "-kubeconfig", "KUBECONFIG", "-provisioner", theirs, "-node", node,
		"-pool", hosttest.Dir(s), "-threads=100", "-qps=1000", "-burst=2000", "-leader-election=false")
	c.class, c.node = theirs, node
	return c
}

// newProgram is a program that takes the path of a kubeconfig in place of the word KUBECONFIG in
// its arguments.
func (s *scale) newProgram(name string, args ...string) *contender {
	c := &contender{name: name, meter: s.newMeter()}
	kubeconfig := filepath.Join(hosttest.Dir(s), "kubeconfig")
	s.Must(c.meter.kubeconfig(s.Cluster.Kubeconfig(), kubeconfig), "writing a kubeconfig")
	c.args = slices.Clone(args)
	for i, arg := range args {
		if arg == "KUBECONFIG" {
			c.args[i] = kubeconfig
		}
	}
	return c
}

func (c *contender) start() (err error) {
	if c.daemon != nil {
		return c.daemon.Start()
	}
	cmd := exec.Command(c.args[0], c.args[1:]...)
	c.child, err = process.Start(cmd)
	return err
}

func (c *contender) pid() int {
	if c.daemon != nil {
		return c.daemon.PID()
	}
	return c.child.PID()
}

func (c *contender) stop(ctx context.Context) error {
	if c.daemon != nil {
		_, _, err := c.daemon.Stop(ctx)
		return err
	}
	return c.child.End(ctx, syscall.SIGKILL)
}

// run starts a contender and waits until it is at rest. A provisioner has one claim to make a
// volume for.
func (s *scale) run(ctx context.Context, c *contender, foreign int) row {
	ctx, cancel := context.WithTimeout(ctx, startIn)
	defer cancel()
	r := row{Foreign: foreign, Contender: c.name}
	var claim *corev1.PersistentVolumeClaim
	if c.class != "" {
		claim = s.waitingClaim(ctx, c)
	}
	before, plane, began := c.meter.received(), s.cpuOf(s.Cluster.PID()), time.Now()
	s.Must(c.start(), "starting "+c.name)
	if claim != nil {
		_, err := cluster.WaitFor(ctx, s.Client.CoreV1().PersistentVolumes(), "pvc-"+string(claim.UID), func(*corev1.PersistentVolume) bool { return true })
		s.Must(err, "waiting for a volume of "+c.name)
		r.First = time.Since(began)
	}
	s.rest(c)
	r.PlaneCPU = s.cpuOf(s.Cluster.PID()) - plane
	status, err := process.Status(c.pid())
	s.Must(err, "reading the memory of "+c.name)
	r.Resident, r.Peak, r.StartBytes = float64(status["VmRSS"])/1024, float64(status["VmHWM"])/1024, c.meter.received()-before
	s.Say("  %-48s %6.1f MiB, %9.4f MB received, first volume after %.2f s", c.name, r.Resident, float64(r.StartBytes)/1e6, r.First.Seconds())
	return r
}

// waitingClaim makes a claim that the contender is to provision at once.
func (s *scale) waitingClaim(ctx context.Context, c *contender) *corev1.PersistentVolumeClaim {
	c.claims++
	claim := cluster.Claim(s.Namespace, fmt.Sprintf("%s-%d", c.class, c.claims), c.class, "1Mi")
	claim.Annotations = map[string]string{plan.SelectedNode: c.node, plan.StorageProvisioner: s.provisioner(c)}
	made, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	s.Must(err, "making a claim")
	return made
}

// rest waits until a contender is at rest. No event tells that.
func (s *scale) rest(c *contender) {
	for end := time.Now().Add(restIn); time.Now().Before(end); {
		before, err := process.CPUTime(c.pid())
		s.Must(err, "reading the processor time of "+c.name)
		time.Sleep(restFor) // a span, not a wait
		after, err := process.CPUTime(c.pid())
		s.Must(err, "reading the processor time of "+c.name)
		if after-before <= restTicks {
			return
		}
	}
	s.Say("  %s does not come to rest in %s", c.name, restIn)
}

// several starts a contender several times and returns the medians. It runs afterwards.
func (s *scale) several(ctx context.Context, c *contender, foreign int) row {
	var all []row
	for i := range s.opt.starts {
		if i > 0 {
			s.Must(c.stop(s.Soon()), "stopping "+c.name)
		}
		all = append(all, s.run(ctx, c, foreign))
	}
	return row{
		Foreign: foreign, Contender: c.name,
		Resident: median(all, func(r row) float64 { return r.Resident }), Peak: median(all, func(r row) float64 { return r.Peak }),
		PlaneCPU:   median(all, func(r row) time.Duration { return r.PlaneCPU }),
		StartBytes: median(all, func(r row) int64 { return r.StartBytes }), First: median(all, func(r row) time.Duration { return r.First }),
	}
}
