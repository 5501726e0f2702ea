package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// caseCluster is what a user waits for: pods with claims on a control plane with the defaults of
// its components.
const caseCluster = "cluster"

// nameBound is the floor of this case: pods whose claims are bound already.
const nameBound = "bound"

const (
	clusterLimit = 5 * time.Minute // for each part of a run
	// refill is how long kube-controller-manager takes to have all of its burst of 30 requests
	// again, at 20 a second, and a little: so that no part of a run pays for the one before.
	refill = 3 * time.Second
)

// measureCluster gives each contender a control plane of its own in each repeat: what one leaves
// behind would take requests of kube-controller-manager from the next.
func (b *bench) measureCluster(ctx context.Context) error {
	who := b.inCluster()
	for repeat := range b.clusterRuns {
		for i := range who {
			harness.Check(b.runCluster(ctx, who[(i+repeat)%len(who)], repeat))
		}
	}
	fmt.Fprint(b.out, "\n", b.clusterReport())
	return b.writeCluster()
}

// inCluster are the contenders of this case: the library as shipped limits itself.
func (b *bench) inCluster() []string {
	who := []string{nameBound}
	for _, contender := range b.contenders {
		if contender == nameTuned || isDaemon(contender) {
			who = append(who, contender)
		}
	}
	return who
}

func (b *bench) runCluster(ctx context.Context, contender string, repeat int) error {
	ctx, a := b.newEnvironment(ctx, []string{contender},
		"--kcm-qps=0", "--kcm-burst=0", "--scheduler-qps=0")
	err := b.onFixtures(ctx, a, []string{contender}, caseCluster, repeat, func(ctx context.Context, all []*running) {
		all[0].fault = harness.Outcome(func() error { return all[0].asUser(ctx) })
	})
	return errors.Join(err, b.CleanUp())
}

// asUser is one run.
func (r *running) asUser(ctx context.Context) error {
	s := sample{contender: r.fixture.contender, kase: caseCluster, repeat: r.repeat, claims: r.pods}
	harness.Check(r.settleIn(ctx))
	pods := harness.Got(r.burstOfPods(ctx, &s))
	harness.Check(r.ordered(ctx, &s))
	if r.provisions() {
		harness.Check(r.verify())
		harness.Check(r.removal(ctx, pods, &s))
	}
	fmt.Fprintln(r.out, s.clusterLine())
	r.samples = append(r.samples, s)
	return nil
}

// provisions reports whether the contender makes volumes.
func (r *running) provisions() bool { return r.fixture.contender != nameBound }

// settleIn has everything there that the pods need, and the contender warm.
func (r *running) settleIn(ctx context.Context) (err error) {
	accounts := r.environment.client.CoreV1().ServiceAccounts(r.fixture.name)
	harness.Got(cluster.WaitFor(ctx, accounts, "default", func(*corev1.ServiceAccount) bool { return true }))
	if !r.provisions() {
		return r.bindAll(ctx)
	}
	r.process = harness.Got(r.start(r.fixture))
	_, pod := harness.Got2(r.podWithClaim(ctx, "warm"))
	return r.placed(ctx, []*corev1.Pod{pod})
}

// names are those of the claims: of the pods' and of the StatefulSet's.
func (r *running) names() (all []string) {
	for i := range r.pods {
		all = append(all, podName(i))
	}
	for i := range r.replicas {
		all = append(all, fmt.Sprintf("data-%s-%d", setName, i))
	}
	return all
}

const setName = "set"

func podName(i int) string { return fmt.Sprintf("pod-%04d", i) }

// bindAll makes the claims and a volume for each, and waits until they are bound.
func (r *running) bindAll(ctx context.Context) error {
	names := r.names()
	claims := make([]*corev1.PersistentVolumeClaim, len(names))
	core := r.environment.client.CoreV1()
	err := harness.Each(len(names), func(i int) (err error) {
		claim := cluster.Claim(r.fixture.name, names[i], r.fixture.name, "1Mi")
		claim.Spec.VolumeName = r.fixture.name + "-" + names[i]
		if claims[i], err = core.PersistentVolumeClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err = core.PersistentVolumes().Create(ctx, r.volumeOf(claims[i]), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return r.within(ctx, uidsOf(claims), isBound)
}

func (r *running) volumeOf(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests, StorageClassName: r.fixture.name,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(r.fixture.pool, claim.Name)}},
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		},
	}
}

// podWithClaim creates a pod and, unless it is there, its claim.
func (r *running) podWithClaim(ctx context.Context, name string) (began time.Time, pod *corev1.Pod, err error) {
	core := r.environment.client.CoreV1()
	if r.provisions() {
		claim, err := core.PersistentVolumeClaims(r.fixture.name).Create(ctx, cluster.Claim(r.fixture.name, name, r.fixture.name, "1Mi"), metav1.CreateOptions{})
		if err != nil {
			return began, nil, err
		}
		r.mu.Lock()
		r.claims = append(r.claims, claim)
		r.mu.Unlock()
	}
	began = time.Now()
	pod, err = core.Pods(r.fixture.name).Create(ctx, cluster.Pod(r.fixture.name, name, name), metav1.CreateOptions{})
	return began, pod, err
}

// burstOfPods creates all pods at once, and waits until each has its node.
func (r *running) burstOfPods(ctx context.Context, s *sample) ([]*corev1.Pod, error) {
	time.Sleep(refill) // a pace, not a wait
	first := len(r.claims)
	m := harness.Got(r.environment.begin(ctx, r))
	pods, began := make([]*corev1.Pod, r.pods), make([]time.Time, r.pods)
	harness.Check(harness.Each(r.pods, func(i int) (err error) {
		began[i], pods[i], err = r.podWithClaim(ctx, podName(i))
		return err
	}))
	harness.Check(r.placed(ctx, pods))
	m.end()
	seen := r.environment.observer.all(uidsOf(pods))
	for i, one := range seen {
		s.latency = append(s.latency, one.placed.Sub(began[i]))
	}
	slices.Sort(s.latency)
	s.rate = rateUntil(m.start, seen, func(one sighting) time.Time { return one.placed })
	if r.provisions() {
		s.bound = rateUntil(m.start, r.environment.observer.all(uidsOf(r.claims[first:])), func(one sighting) time.Time { return one.bound })
	}
	all, err := r.environment.settle(ctx)
	s.requests, s.others = all[nodeOf(r.fixture.contender)], m.others
	s.byBinder = all[binderNode]
	s.cpu = r.ownCPU() - m.own[r]
	return pods, err
}

// rateUntil is how many a second there were from start to the last.
func rateUntil(start time.Time, all []sighting, at func(sighting) time.Time) float64 {
	last := start
	for _, one := range all {
		if when := at(one); when.After(last) {
			last = when
		}
	}
	return float64(len(all)) / last.Sub(start).Seconds()
}

// ordered creates a StatefulSet, whose next pod is made when the one before is ready: the bench
// says so as soon as it has its node, in kubelet's place.
func (r *running) ordered(ctx context.Context, s *sample) error {
	time.Sleep(refill) // a pace, not a wait
	ctx, cancel := context.WithTimeout(ctx, clusterLimit)
	defer cancel()
	start := time.Now()
	harness.Got(r.environment.client.AppsV1().StatefulSets(r.fixture.name).Create(ctx, r.set(), metav1.CreateOptions{}))
	for i := range r.replicas {
		name := fmt.Sprintf("%s-%d", setName, i)
		harness.Got(r.environment.cluster.WaitPodScheduled(ctx, r.fixture.name, name))
		s.ordered = time.Since(start)
		harness.Check(r.runs(ctx, name))
	}
	return nil
}

func (r *running) set() *appsv1.StatefulSet {
	replicas, labels := int32(r.replicas), map[string]string{"app": setName}
	claim := cluster.Claim(r.fixture.name, "data", r.fixture.name, "1Mi")
	pod := cluster.Pod(r.fixture.name, setName, "data")
	pod.Spec.Volumes = nil // the set adds the claim
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: setName},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*claim},
		},
	}
}

// runs writes what kubelet does of a pod that is ready.
func (r *running) runs(ctx context.Context, pod string) error {
	status := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
	_, err := r.environment.client.CoreV1().Pods(r.fixture.name).Patch(ctx, pod, types.StrategicMergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	return err
}

// removal deletes the pods and then all of their claims at once, and waits until the volumes are
// gone.
func (r *running) removal(ctx context.Context, pods []*corev1.Pod, s *sample) error {
	core, now := r.environment.client.CoreV1(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	harness.Check(harness.Each(len(pods), func(i int) error { return core.Pods(r.fixture.name).Delete(ctx, pods[i].Name, now) }))
	time.Sleep(refill) // a pace, not a wait
	var claims, kept []*corev1.PersistentVolumeClaim
	for _, c := range r.claims {
		if strings.HasPrefix(c.Name, "pod-") {
			claims = append(claims, c)
		} else {
			kept = append(kept, c)
		}
	}
	r.claims = kept
	start := time.Now()
	harness.Check(harness.Each(len(claims), func(i int) error {
		return core.PersistentVolumeClaims(r.fixture.name).Delete(ctx, claims[i].Name, metav1.DeleteOptions{})
	}))
	err := r.within(ctx, uidsOf(claims), isGone)
	s.removed = rateUntil(start, r.environment.observer.all(uidsOf(claims)), func(one sighting) time.Time { return one.gone })
	return err
}

// placed waits until the pods have their nodes.
func (r *running) placed(ctx context.Context, pods []*corev1.Pod) error {
	return r.within(ctx, uidsOf(pods), func(s *sighting) bool { return !s.placed.IsZero() })
}

func (r *running) within(ctx context.Context, uids []types.UID, is func(*sighting) bool) error {
	ctx, cancel := context.WithTimeout(ctx, clusterLimit)
	defer cancel()
	_, err := r.environment.observer.wait(ctx, uids, is)
	return err
}

// clusterResults are the medians of the case cluster, as a file has them.
type clusterResults struct {
	Machine string       `json:"machine"`
	Pods    int          `json:"pods"`
	Rows    []clusterRow `json:"rows"`
}

type clusterRow struct {
	Contender        string  `json:"contender"`
	Floor            bool    `json:"floor,omitempty"` // it makes no volumes
	Runs             int     `json:"runs"`
	PodsPerSecond    float64 `json:"podsPerSecond"`
	ClaimsPerSecond  float64 `json:"claimsPerSecond,omitempty"`
	PodP50           float64 `json:"podP50Seconds"`
	PodP99           float64 `json:"podP99Seconds"`
	StatefulSet      float64 `json:"statefulSetSeconds"`
	RemovedPerSecond float64 `json:"removedPerSecond,omitempty"`
	BinderRequests   float64 `json:"binderRequestsPerClaim"`
	Others           float64 `json:"othersUsed"` // share of the machine that other programs used
}

// writeCluster writes the results of the case cluster if a file was asked for. A contender that
// failed is not in it.
func (b *bench) writeCluster() error {
	if b.json == "" {
		return nil
	}
	data := harness.Got(json.MarshalIndent(b.clusterResults(harness.Machine()), "", "\t"))
	return os.WriteFile(b.json, append(data, '\n'), 0o644)
}

func (b *bench) clusterResults(machine string) clusterResults {
	all := clusterResults{Machine: machine, Pods: b.pods}
	for _, contender := range b.inCluster() {
		mine := b.samples.of(contender, caseCluster)
		if b.samples.failure(contender) != nil || len(mine) == 0 {
			continue
		}
		all.Rows = append(all.Rows, clusterRow{
			Contender: titles[contender], Floor: contender == nameBound, Runs: len(mine),
			PodsPerSecond: median(mine, rateOf), ClaimsPerSecond: median(mine, boundOf),
			PodP50: median(mine, sample.p50).Seconds(), PodP99: median(mine, sample.p99).Seconds(),
			StatefulSet: median(mine, orderedOf).Seconds(), RemovedPerSecond: median(mine, removedOf),
			BinderRequests: median(mine, binderOf), Others: median(mine, strangers),
		})
	}
	return all
}
