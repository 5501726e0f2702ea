package cost

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
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
		is := func(*corev1.PersistentVolume) bool { return true }
		_, err := cluster.WaitFor(ctx, s.Volumes(), "pvc-"+string(claim.UID), is)
		s.Must(err, "waiting for a volume of "+c.name)
		r.First = time.Since(began)
	}
	s.rest(c)
	r.PlaneCPU = s.cpuOf(s.Cluster.PID()) - plane
	r.Resident, r.Peak = s.memory(c)
	r.StartBytes = c.meter.received() - before
	s.Say("  %-48s %6.1f MiB, %9.4f MB received, first volume after %.2f s", c.name, r.Resident, float64(r.StartBytes)/1e6, r.First.Seconds())
	return r
}

// memory is what a contender has resident, and had at most, in MiB.
func (s *scale) memory(c *contender) (resident, peak float64) {
	status := harness.Need(process.Status(c.pid()))(s, "reading the memory of "+c.name)
	return float64(status["VmRSS"]) / 1024, float64(status["VmHWM"]) / 1024
}

// waitingClaim makes a claim that the contender is to provision at once.
func (s *scale) waitingClaim(ctx context.Context, c *contender) *corev1.PersistentVolumeClaim {
	c.claims++
	claim := cluster.Claim(s.Namespace, fmt.Sprintf("%s-%d", c.class, c.claims), c.class, "1Mi")
	claim.Annotations = map[string]string{plan.SelectedNode: c.node, plan.StorageProvisioner: s.provisioner(c)}
	made := harness.Need(s.Claims().Create(ctx, claim, metav1.CreateOptions{}))(s, "making a claim")
	return made
}

// rest waits until a contender is at rest. No event tells that.
func (s *scale) rest(c *contender) {
	if !s.calm(c.pid(), restTicks) {
		s.Say("  %s does not come to rest in %s", c.name, restIn)
	}
}

// calm waits until a process uses so little processor time in restFor, and reports whether it does.
func (s *scale) calm(pid int, most time.Duration) bool {
	for end := time.Now().Add(restIn); time.Now().Before(end); {
		before := s.cpuOf(pid)
		time.Sleep(restFor) // a span, not a wait
		if s.cpuOf(pid)-before <= most {
			return true
		}
	}
	return false
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

// simulatedNode has the watches of a provisioner on a connection of its own.
type simulatedNode struct {
	client *http.Client
	host   string
	bytes  atomic.Int64
	cut    atomic.Int64
}

// simulate begins the watches of so many nodes, and returns when the API server has accepted all of
// them.
func (s *scale) simulate(ctx context.Context, name string, n int) (all []*simulatedNode) {
	config := s.Cluster.Config()
	now, err := s.Client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{Limit: 1})
	s.Must(err, "listing claims")
	ctx, cancel := context.WithCancel(ctx)
	s.Cleanup(func() error { cancel(); return nil })
	for i := range n {
		transport := harness.Need(ownTransport(config))(s, "connecting a simulated node")
		node := &simulatedNode{client: &http.Client{Transport: transport}, host: config.Host}
		for _, path := range watchesOf(name, fmt.Sprintf("simulated-%03d", i)) {
			body, err := node.watch(ctx, path, now.ResourceVersion)
			s.Must(err, "watching for a simulated node")
			go s.keepWatch(ctx, node, path, body)
		}
		all = append(all, node)
	}
	return all
}

// ownTransport is not shared with other clients of this process, as those of client-go are.
func ownTransport(config *rest.Config) (http.RoundTripper, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	return rest.HTTPWrappersForConfig(config, &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true})
}

// watchesOf are the paths that a node's provisioner watches.
func watchesOf(name, node string) []string {
	const (
		claims, volumes, classes = "/api/v1/persistentvolumeclaims?", "/api/v1/persistentvolumes?", "/apis/storage.k8s.io/v1/storageclasses?"
		policies                 = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
	)
	if name == library {
		return []string{claims, volumes, classes}
	}
	all := []string{
		volumes + "labelSelector=" + url.QueryEscape(plan.NodeLabel+"="+plan.NodeLabelValue(node)), classes,
		"/api/v1/nodes?fieldSelector=" + url.QueryEscape("metadata.name="+node),
	}
	if name == daemonAll {
		return append(all, claims)
	}
	selector := claimindex.SelectionOf(plan.Self{Provisioner: plan.DefaultProvisioner, Node: node}).String()
	one := "?fieldSelector=" + url.QueryEscape("metadata.name="+claimindex.Name)
	return append(all, claims+"labelSelector="+url.QueryEscape(selector), policies+one, policies[:len(policies)-len("policies")]+"policybindings"+one)
}

// watch begins a watch, as client-go asks for it.
func (n *simulatedNode) watch(ctx context.Context, path, version string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.host+path+"&watch=true&allowWatchBookmarks=true&resourceVersion="+version, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON)
	response, err := n.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, response.Status)
	}
	return response.Body, nil
}

// keepWatch reads a watch, and begins it again whenever the API server ends it: it does that to a
// slow reader, and counts as one that was cut.
func (s *scale) keepWatch(ctx context.Context, node *simulatedNode, path string, body io.ReadCloser) {
	for {
		_, _ = io.Copy(countingWriter{io.Discard, &node.bytes}, body)
		_ = body.Close()
		if ctx.Err() != nil {
			return
		}
		node.cut.Add(1)
		now, err := s.Client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			body, err = node.watch(ctx, path, now.ResourceVersion)
		}
		if err != nil {
			if ctx.Err() == nil {
				s.Fault("watches that could not be begun again", "%v", err)
			}
			return
		}
	}
}

func received(all []*simulatedNode) (sum int64) {
	for _, n := range all {
		sum += n.bytes.Load()
	}
	return sum
}

func cuts(all []*simulatedNode) (sum int) {
	for _, n := range all {
		sum += int(n.cut.Load())
	}
	return sum
}
