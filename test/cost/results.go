package cost

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// The contenders' names, as they are in tables and in JSON.
const (
	daemonIndexed = "hostpath-provisioner, claim index"
	daemonFirst   = "hostpath-provisioner, claim index, first start" // it does not know yet that the index is whole
	daemonAll     = "hostpath-provisioner"
	library       = "usual library"
	plain         = "client-go's informers"
)

// results are what a run measured.
type results struct {
	Machine string  `json:"machine"`
	Rows    []row   `json:"rows,omitempty"`
	Storms  []storm `json:"storms,omitempty"`
	Looks   []look  `json:"looks,omitempty"`
}

// row is what one contender needed at one size of the cluster.
type row struct {
	Foreign    int           `json:"foreign"` // claims of other nodes, with a volume each
	Contender  string        `json:"contender"`
	Resident   float64       `json:"residentMiB"`                   // at rest after the start; the median of several starts, as all others
	Peak       float64       `json:"peakMiB"`                       // at most until then
	StartBytes int64         `json:"startBytes"`                    // received until then
	PlaneCPU   time.Duration `json:"planeCPUNanoseconds,omitempty"` // of the control plane until then
	First      time.Duration `json:"firstClaimNanoseconds,omitempty"`
	Changed    int           `json:"changed,omitempty"`     // foreign claims that changed while it ran
	ChangeByte int64         `json:"changeBytes,omitempty"` // received meanwhile
}

// The limits of what is measured.
const (
	indexedMore  = 2.0   // MiB above the empty cluster
	indexedMost  = 40.0  // MiB
	allTimes     = 1.5   // of the memory in the empty cluster
	indexedShare = 0.001 // of the bytes of client-go's informers at the start
	allShare     = 0.05
	indexedEach  = 1.0 // bytes for each foreign claim that changes: pings and bookmarks come in any case, and an event has hundreds
	indexedFirst = time.Second
)

// of returns the row of a contender at a size.
func (r results) of(contender string, foreign int) (row, bool) {
	for _, one := range r.Rows {
		if one.Contender == contender && one.Foreign == foreign {
			return one, true
		}
	}
	return row{}, false
}

// sizes are those of the run, in its order.
func (r results) sizes() (all []int) {
	for _, one := range r.Rows {
		if len(all) == 0 || all[len(all)-1] != one.Foreign {
			all = append(all, one.Foreign)
		}
	}
	return all
}

// missed returns a sentence for each limit that was missed. Bytes at the start are compared in the
// largest cluster: what a connection itself takes is most of them in a small one.
func (r results) missed() (all []string) {
	limit := func(foreign int, what string, got, most float64) {
		if got > most {
			all = append(all, fmt.Sprintf("%d foreign claims: %s is %.4g, want %.4g at most", foreign, what, got, most))
		}
	}
	sizes := r.sizes()
	if len(sizes) == 0 {
		return nil
	}
	largest := sizes[len(sizes)-1]
	indexedEmpty, _ := r.of(daemonIndexed, sizes[0])
	allEmpty, _ := r.of(daemonAll, sizes[0])
	for _, size := range sizes {
		indexed, _ := r.of(daemonIndexed, size)
		unindexed, _ := r.of(daemonAll, size)
		limit(size, "MiB resident with the index", indexed.Resident, min(indexedMost, indexedEmpty.Resident+indexedMore))
		limit(size, "MiB resident without the index", unindexed.Resident, allTimes*allEmpty.Resident)
		if indexed.Changed > 0 {
			limit(size, "bytes received with the index, for each foreign claim that changed,", float64(indexed.ChangeByte)/float64(indexed.Changed), indexedEach)
		}
		if informers, known := r.of(plain, size); known && size == largest && size > 0 {
			limit(size, "share of the informers' bytes with the index", float64(indexed.StartBytes)/float64(informers.StartBytes), indexedShare)
			limit(size, "share of the informers' bytes without the index", float64(unindexed.StartBytes)/float64(informers.StartBytes), allShare)
		}
		limit(size, "seconds to the first volume with the index", indexed.First.Seconds(), indexedFirst.Seconds())
	}
	return all
}

// table is the rows for the eyes.
func (r results) table() string {
	var text strings.Builder
	fmt.Fprintln(&text, r.Machine)
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "foreign claims\tcontender\tMiB resident\tat most\tMB received at start\tseconds to the first volume\tcontrol plane's seconds\tMB received while claims change\tclaims that changed\t")
	for _, one := range r.Rows {
		first, changed := "-", "-"
		if one.First > 0 {
			first = fmt.Sprintf("%.2f", one.First.Seconds())
		}
		if one.Changed > 0 {
			changed = fmt.Sprintf("%.4f", float64(one.ChangeByte)/1e6)
		}
		fmt.Fprintf(w, "%d\t%s\t%.1f\t%.1f\t%.4f\t%s\t%.2f\t%s\t%d\t\n", one.Foreign, one.Contender, one.Resident, one.Peak, float64(one.StartBytes)/1e6, first, one.PlaneCPU.Seconds(), changed, one.Changed)
	}
	w.Flush()
	for _, one := range r.Storms {
		fmt.Fprintln(&text, one)
	}
	for _, one := range r.Looks {
		fmt.Fprintln(&text, one)
	}
	return text.String()
}

// look is what claims cost a daemon that comes before kube-controller-manager, and looks for
// volumes that are kept for them.
type look struct {
	Foreign  int              `json:"foreign"` // volumes of other nodes
	Index    bool             `json:"index"`   // the API server labels kept volumes
	Claims   int              `json:"claims"`
	Volumes  int              `json:"volumes"` // that were made before a provisioner was asked
	Bytes    int64            `json:"bytes"`   // received meanwhile
	Requests harness.Requests `json:"requests"`
}

// String is the line that is printed.
func (l look) String() string {
	with := map[bool]string{false: daemonAll, true: daemonIndexed}[l.Index]
	return fmt.Sprintf("%d volumes of other nodes, %s: %d of %d claims have a volume; for each claim %.1f KB and %.1f requests: %s",
		l.Foreign, with, l.Volumes, l.Claims, float64(l.Bytes)/1000/float64(l.Claims), float64(l.Requests.Total())/float64(l.Claims), l.Requests)
}

const (
	lookClaims = 20
	lookQuiet  = time.Second // without a request after a claim was made
	lookIn     = time.Minute
)

// looks measures the daemon in clusters of several sizes, each without the index and with it.
func (s *scale) looks(ctx context.Context) (all []look) {
	log, args, err := harness.NewAuditLog(hosttest.Dir(s.program), harness.AuditOfDaemons)
	s.program.Must(err, "writing an audit policy")
	s.Plane = s.program.StartPlane(ctx, "scale", cluster.Options{ExtraArgs: append(args, harness.QuietControllers)})
	s.AddClass(ctx, ours, plan.DefaultProvisioner, whenConsumed)
	s.daemon = s.newDaemon(ctx, "node-"+ours)
	s.daemon.name = daemonAll
	for _, size := range s.opt.sizes {
		s.fill(ctx, size)
		for _, index := range []bool{false, true} {
			all = append(all, s.look(ctx, log, index))
			s.Say("  %s", all[len(all)-1])
		}
	}
	return all
}

// look starts the daemon, has it make a first volume, and counts what the claims after that cost.
func (s *scale) look(ctx context.Context, log *harness.AuditLog, index bool) look {
	if index {
		s.Must(s.Cluster.Apply(ctx, []byte(claimindex.VolumesManifest+claimindex.Manifest)), "applying the policies")
	}
	s.run(ctx, s.daemon, s.foreign)
	if index {
		s.indexFound(s.daemon)
	}
	s.chosen(ctx, log, 0) // of many volumes the first look tells that they are many
	l := look{Foreign: s.foreign, Index: index, Claims: lookClaims, Requests: harness.Requests{}}
	before := s.daemon.meter.received()
	for i := range lookClaims {
		made, requests := s.chosen(ctx, log, 1+i)
		for request, n := range requests {
			l.Requests[request] += n
		}
		l.Volumes += made
	}
	l.Bytes = s.daemon.meter.received() - before
	s.Must(s.daemon.stop(s.Soon()), "stopping the daemon")
	if index {
		s.removeIndex(ctx)
	}
	return l
}

// chosen makes a claim for which the node was chosen and no provisioner was asked. It returns how
// many volumes it has when the daemon sends no more requests, and those that it has sent.
func (s *scale) chosen(ctx context.Context, log *harness.AuditLog, i int) (made int, requests harness.Requests) {
	harness.Need(log.Settle(ctx, lookQuiet, lookIn))(s, "reading the audit log")
	s.daemon.claims++
	claim := cluster.Claim(s.Namespace, fmt.Sprintf("chosen-%d-%d", s.daemon.claims, i), ours, "1Mi")
	claim.Annotations = map[string]string{plan.SelectedNode: s.daemon.node}
	claim, err := s.Claims().Create(ctx, claim, metav1.CreateOptions{})
	s.Must(err, "making a claim")
	sent := harness.Need(log.Settle(ctx, lookQuiet, lookIn))(s, "reading the audit log")
	_, err = s.Volumes().Get(ctx, "pvc-"+string(claim.UID), metav1.GetOptions{})
	if err == nil {
		made = 1
	} else if !apierrors.IsNotFound(err) {
		s.Must(err, "reading a volume")
	}
	return made, harness.SumRequests(sent)
}

// indexFiles are where a daemon keeps what it knows of the policies.
var indexFiles = []string{"claim-index", "volume-index"}

// knows reports whether one of these files has an index that was found whole.
func knows(data []byte) bool {
	text := string(data)
	return text != "" && text[0] != '\n' && !strings.Contains(text, `"identity":""`)
}

// indexFound waits until a daemon that runs reads its claims, and the volumes that are kept for
// them, by the labels. For the volumes it needs one of its own.
func (s *scale) indexFound(c *contender) {
	for _, file := range indexFiles {
		s.Must(harness.Eventually(s.Soon(), func() bool {
			data, err := os.ReadFile(c.daemon.Path("state", file))
			return err == nil && knows(data)
		}), "waiting until the index was found whole: "+file)
	}
}

// removeIndex takes the policies away, and with them what the daemon knows of them.
func (s *scale) removeIndex(ctx context.Context) {
	admission := s.Client.AdmissionregistrationV1()
	for _, policy := range []string{claimindex.Name, claimindex.VolumesName} {
		s.Must(ignoreGone(admission.MutatingAdmissionPolicyBindings().Delete(ctx, policy, metav1.DeleteOptions{})), "deleting the policy "+policy)
		s.Must(ignoreGone(admission.MutatingAdmissionPolicies().Delete(ctx, policy, metav1.DeleteOptions{})), "deleting the policy "+policy)
	}
	for _, file := range indexFiles {
		s.Must(os.Remove(s.daemon.daemon.Path("state", file)), "forgetting the index")
	}
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
