package cost

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// A storm is claims that come to a cluster of many nodes at once, and all of which are bound in the
// end.
//
// A few nodes have real provisioners, which make the volumes. All other nodes are simulated: each
// has a connection of its own with the watches that a real one keeps, and reads them without a look
// at what comes. To the API server that is the same, and 500 provisioners of the usual library with
// 5,000 claims would take more memory than the machine has.
//
// The control plane is one process, so that its processor time has etcd's and
// kube-controller-manager's in it: what nodes cost is the difference between a storm with simulated
// nodes and one without.

// storm is what one storm cost.
type storm struct {
	Contender string        `json:"contender"`
	Nodes     int           `json:"nodes"` // with a real provisioner
	Simulated int           `json:"simulated"`
	Claims    int           `json:"claims"`
	Settled   time.Duration `json:"settledNanoseconds"` // from the first claim's creation until all are bound
	PlaneCPU  time.Duration `json:"planeCPUNanoseconds"`
	PlaneMiB  float64       `json:"planeMiBOfSimulated,omitempty"` // what the control plane grew by when the simulated nodes came
	NodeBytes int64         `json:"nodeBytes,omitempty"`           // received by one simulated node, without TLS
	Peak      float64       `json:"peakMiB"`                       // of a real provisioner, the median
	NodeCPU   time.Duration `json:"nodeCPUNanoseconds"`            // of a real provisioner, the median
	Cut       int           `json:"cut,omitempty"`                 // watches of simulated nodes that ended
	// Terminated are the watches that the API server ended in the storm because their readers were
	// slow, by resource.
	Terminated map[string]int `json:"terminated,omitempty"`
}

// String is a line for the eyes.
func (r storm) String() string {
	return fmt.Sprintf("%s: %d claims, %d simulated nodes: bound in %.1f s, %.1f s of the control plane's processors, %.1f MiB of it for the simulated; %.1f MiB and %.1f s in a provisioner, %.3f MB to a simulated node, %d watches cut, terminated by the API server: %v",
		r.Contender, r.Claims, r.Simulated, r.Settled.Seconds(), r.PlaneCPU.Seconds(), r.PlaneMiB, r.Peak, r.NodeCPU.Seconds(), float64(r.NodeBytes)/1e6, r.Cut, r.Terminated)
}

const (
	stormIn     = 15 * time.Minute
	stormAlone  = "alone"
	stormBeside = "beside"
)

// storms measures each contender on a control plane of its own, at first with a fifth of the claims
// and without simulated nodes.
func (s *scale) storms(ctx context.Context) (all []storm) {
	for _, name := range []string{daemonIndexed, daemonAll, library} {
		s.Plane = s.program.StartPlane(ctx, "storm", cluster.Options{})
		s.Say("%s: a storm", name)
		nodes := s.stormNodes(ctx, name)
		all = append(all, s.storm(ctx, name, stormAlone, max(1, s.opt.claims/5), nodes, nil))
		before := s.planeMemory()
		simulated := s.simulate(ctx, name, s.opt.simulated)
		s.restOfPlane()
		grown := float64(s.planeMemory()-before) / 1024
		beside := s.storm(ctx, name, stormBeside, s.opt.claims, nodes, simulated)
		beside.PlaneMiB = grown
		all = append(all, beside)
		for _, c := range nodes {
			s.Must(c.stop(s.Soon()), "stopping "+c.name)
		}
		s.Must(s.program.CleanUp(), "cleaning up")
	}
	return all
}

// stormNodes starts the real provisioners.
func (s *scale) stormNodes(ctx context.Context, name string) (all []*contender) {
	if name == daemonIndexed {
		s.Must(s.Cluster.Apply(ctx, []byte(claimindex.VolumesManifest+claimindex.Manifest)), "applying the policies")
	}
	class, provisioner := ours, plan.DefaultProvisioner
	if name == library {
		class, provisioner = theirs, theirs
	}
	s.AddClass(ctx, class, provisioner, whenConsumed)
	for i := range s.opt.nodes {
		node := stormNode(i)
		var c *contender
		if name == library {
			c = s.newPeer(ctx, node)
		} else {
			c = s.newDaemon(ctx, node)
		}
		c.name = name
		all = append(all, c)
	}
	if name == daemonIndexed {
		s.shareIndex(ctx, all)
	}
	for i, c := range all {
		if name != daemonIndexed || i > 0 {
			s.Must(c.start(), "starting "+c.name)
		}
		s.rest(c)
	}
	return all
}

func stormNode(i int) string { return fmt.Sprintf("real-%02d", i) }

// shareIndex has the first node find out that the index is whole, and the others know it as after a
// restart. An index is found by a claim.
func (s *scale) shareIndex(ctx context.Context, all []*contender) {
	s.waitingClaim(ctx, all[0])
	s.Must(all[0].start(), "starting a daemon")
	s.indexFound(all[0])
	for _, file := range indexFiles {
		known, err := os.ReadFile(all[0].daemon.Path("state", file))
		s.Must(err, "reading what is known of the index")
		for _, c := range all[1:] {
			s.Must(os.WriteFile(c.daemon.Path("state", file), known, 0o600), "writing what is known of the index")
		}
	}
}

// storm creates the claims, waits until all are bound, and returns what that cost.
func (s *scale) storm(ctx context.Context, name, prefix string, n int, nodes []*contender, simulated []*simulatedNode) storm {
	ctx, cancel := context.WithTimeout(ctx, stormIn)
	defer cancel()
	cpu := make([]time.Duration, len(nodes))
	for i, c := range nodes {
		cpu[i] = s.cpuOf(c.pid())
	}
	ended := s.terminated(ctx)
	plane, began, bytes := s.cpuOf(s.Cluster.PID()), time.Now(), received(simulated)
	s.provision(ctx, batch{nodes[0].class, prefix, n, func(i int) string { return stormNode(i % len(nodes)) }})
	r := storm{Contender: name, Nodes: len(nodes), Simulated: len(simulated), Claims: n, Settled: time.Since(began)}
	s.restOfPlane()
	r.PlaneCPU = s.cpuOf(s.Cluster.PID()) - plane
	r.Terminated = s.terminated(ctx)
	for resource, n := range ended {
		r.Terminated[resource] -= n
	}
	if len(simulated) > 0 {
		r.NodeBytes, r.Cut = (received(simulated)-bytes)/int64(len(simulated)), cuts(simulated)
	}
	var rows []row
	for i, c := range nodes {
		_, peak := s.memory(c)
		rows = append(rows, row{Peak: peak, First: s.cpuOf(c.pid()) - cpu[i]})
	}
	r.Peak, r.NodeCPU = median(rows, func(r row) float64 { return r.Peak }), median(rows, func(r row) time.Duration { return r.First })
	s.Say("  %s", r)
	return r
}

func (s *scale) cpuOf(pid int) time.Duration {
	return harness.Need(process.CPUTime(pid))(s, "reading a processor time")
}

// restOfPlane waits until the control plane has little to do: the last events are sent then.
func (s *scale) restOfPlane() { s.calm(s.Cluster.PID(), restFor/5) }

// terminated returns how many watches the API server has ended by itself because their buffers of
// events were full, by resource (apiserver_terminated_watchers_total; apiserver,
// pkg/storage/cacher, cacheWatcher.add).
func (s *scale) terminated(ctx context.Context) map[string]int {
	text, err := s.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	s.Must(err, "reading the API server's metrics")
	return terminatedIn(string(text))
}

// terminatedIn reads the counters in the text format of Prometheus.
func terminatedIn(text string) map[string]int {
	all := map[string]int{}
	for line := range strings.Lines(text) {
		rest, is := strings.CutPrefix(line, "apiserver_terminated_watchers_total{")
		labels, value, _ := strings.Cut(rest, "} ")
		_, resource, known := strings.Cut(labels, `resource="`)
		var n float64
		if _, err := fmt.Sscan(value, &n); !is || !known || err != nil {
			continue
		}
		resource, _, _ = strings.Cut(resource, `"`)
		all[resource] += int(n)
	}
	return all
}
