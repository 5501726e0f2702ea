package controllers

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// mount is a pool's mount, which is there or not, and a disk on which nothing is made: it goes
// before the call ends.
type mount struct {
	shelf
	mu      sync.Mutex
	missing string // why; "" while it is mounted
}

func (m *mount) set(missing string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.missing = missing
}

func (m *mount) Probe(context.Context) hostcheck.Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := hostcheck.Report{Pool: "fast", Size: 1 << 40, Available: 1 << 40, Free: 1 << 40, Mark: hostcheck.Marker{Cluster: "c"}}
	if m.missing != "" {
		r.Findings = []hostcheck.Finding{{Reason: hostcheck.ReasonNotMounted, Severity: hostcheck.Close, Message: m.missing}}
	}
	return r
}

func (m *mount) Create(context.Context, mounts.Identity, volume.Spec) (string, error) {
	return "", volume.ErrDirectoryReplaced
}

// audience keeps the events of each object.
type audience struct {
	mu     sync.Mutex
	events map[types.UID][]string
}

func (a *audience) Event(ref corev1.ObjectReference, _, reason, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.events == nil {
		a.events = map[types.UID][]string{}
	}
	a.events[ref.UID] = append(a.events[ref.UID], reason+": "+message)
}

func (a *audience) of(uid types.UID) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.events[uid]
}

// many is a store of these claims.
type many map[string]*corev1.PersistentVolumeClaim

func (m many) Get(key string) (*corev1.PersistentVolumeClaim, bool) { c, ok := m[key]; return c, ok }
func (m many) List() (all []*corev1.PersistentVolumeClaim) {
	for _, c := range m {
		all = append(all, c)
	}
	return all
}
func (many) Watched() bool { return true }

const waiting = 500

// waitingClaim is a claim for which node-a was chosen.
func waitingClaim(i int, class string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i)), Namespace: "ns", Name: fmt.Sprint("claim-", i),
		Annotations: map[string]string{plan.StorageProvisioner: plan.DefaultProvisioner, plan.SelectedNode: "node-a"}}}
	claim.Spec.StorageClassName, claim.Spec.AccessModes = &class, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	return claim
}

// flapping runs the controllers of a pool for which 500 claims wait, and lets play change its
// mount.
func flapping(t *testing.T, play func(m *mount, changed func())) *audience {
	heard := &audience{}
	synctest.Test(t, func(t *testing.T) {
		wait, class, claims := storagev1.VolumeBindingWaitForFirstConsumer, "c", many{}
		for i := range waiting {
			claim := waitingClaim(i, class)
			claims["ns/"+claim.Name] = claim
		}
		m, changes := &mount{}, make(chan struct{}, 1)
		c := New(flappingOptions(m, heard, changes, class, wait, claims))
		ctx, cancel := context.WithCancel(t.Context())
		checked, started, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		close(started)
		go func() { c.Run(ctx, checked, started); close(ended) }()
		<-checked
		c.requeueClaims("")
		play(m, func() { changes <- struct{}{}; synctest.Wait(); c.requeueClaims("") })
		cancel()
		<-ended
	})
	return heard
}

// flappingOptions are of a controller of pool fast, whose mount is m.
func flappingOptions(m *mount, heard *audience, changes chan struct{}, class string, wait storagev1.VolumeBindingMode, claims many) Options {
	o := Options{Self: plan.Self{Node: "node-a", Provisioner: plan.DefaultProvisioner}, API: &api{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Listers: Listers{Volumes: none[*corev1.PersistentVolume]{}}}
	o.Gate, o.Events, o.Mounts, o.Tick, o.Deadline, o.Workers = gate.New("fast"), heard, changes, 10*time.Second, time.Second, 64
	o.Metrics, o.BoundNode, o.Holder = deafToAll{}, nobody, nobody
	o.Pools = []PoolParts{{
		Pool: plan.Pool{Name: "fast", Directory: func(pv, _, _ string) (string, error) { return pv, nil }}, Storage: m, Probe: m,
		Opened: func(hostcheck.Marker) error { return nil },
	}}
	o.Listers.Claims = claims
	o.Listers.Classes = one[*storagev1.StorageClass]{&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: o.Provisioner, VolumeBindingMode: &wait}}
	o.Listers.Nodes = one[*corev1.Node]{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Node, Labels: map[string]string{corev1.LabelHostname: o.Node}}}}
	return o
}

type deafToAll struct{ deafObserver }

func (deafToAll) Claim(string, string, time.Duration) {}
func (deafToAll) Pool(gate.State)                     {}
func (deafToAll) Usage(string, usage.Pool)            {}

// A mount that comes and goes each second for a minute: the node has a bounded number of events,
// each claim a few, and the last event of each tells what is so in the end.
func TestFlappingMount(t *testing.T) {
	heard := flapping(t, func(m *mount, changed func()) {
		for i := range 60 {
			m.set([]string{"", "/srv/fast is not a mount point", "", "/srv/fast does not respond"}[i%4])
			changed()
			time.Sleep(time.Second)
		}
		m.set("/srv/fast is not a mount point")
		changed()
		time.Sleep(10 * time.Minute) // the claims of one namespace are told one each second (report.Limiter)
	})
	node := heard.of("node-a")
	if len(node) < 6 || len(node) > 6+2*60/30+1 {
		t.Errorf("%d events on the node:\n%s", len(node), strings.Join(node, "\n"))
	}
	if last := node[len(node)-1]; !strings.Contains(last, "NotMounted: pool fast: /srv/fast is not a mount point (its state changed ") {
		t.Errorf("the last event on the node is %q", last)
	}
	for i := range waiting {
		claim := heard.of(types.UID(fmt.Sprint(i)))
		if len(claim) == 0 || len(claim) > 4 {
			t.Fatalf("claim %d has %d events: %q", i, len(claim), claim)
		}
		if last := claim[len(claim)-1]; !strings.Contains(last, "pool fast: /srv/fast is not a mount point") {
			t.Fatalf("the last event of claim %d is %q", i, last)
		}
	}
}

// A mount that is away for a moment: the node is told, and none of the claims.
func TestMountThatIsAwayForAMoment(t *testing.T) {
	heard := flapping(t, func(m *mount, changed func()) {
		time.Sleep(time.Minute)
		m.set("/srv/fast is not a mount point")
		changed()
		time.Sleep(time.Second)
		m.set("")
		changed()
		time.Sleep(time.Minute)
	})
	if node := heard.of("node-a"); len(node) != 2 || !strings.HasPrefix(node[1], "PoolOpened") {
		t.Errorf("events on the node: %q", node)
	}
	for i := range waiting {
		if claim := heard.of(types.UID(fmt.Sprint(i))); len(claim) != 0 {
			t.Fatalf("claim %d has events: %q", i, claim)
		}
	}
}

// A mount that stays away: each claim is told which pool is closed, and why.
func TestMountThatStaysAway(t *testing.T) {
	heard := flapping(t, func(m *mount, changed func()) {
		time.Sleep(time.Minute)
		m.set("/srv/fast is not a mount point")
		changed()
		time.Sleep(explainAfter + time.Second)
	})
	for i := range waiting {
		if claim := heard.of(types.UID(fmt.Sprint(i))); len(claim) != 1 || !strings.HasSuffix(claim[0], "pool fast: /srv/fast is not a mount point") {
			t.Fatalf("claim %d has events: %q", i, claim)
		}
	}
}

// A claim that waits with a message that is not due yet, and then does not concern this node any
// more: nothing is to be reported, and it is not looked at again until it changes. It was looked at
// each millisecond.
func TestNothingIsHeldForAClaimWithoutAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, claim, m := flappingClaim(t, &audience{})
		r, i := c.workers["fast"], claimItem(claim)
		var after time.Duration
		for _, missing := range []string{"/srv/fast is not a mount point", "/srv/fast does not respond", "/srv/fast is not a mount point"} {
			m.set(missing)
			c.look(t.Context(), r)
			time.Sleep(explainAfter)
			after, _ = c.claim(t.Context(), r, i)
		}
		if after <= 0 || after > report.Settle {
			t.Fatalf("looked at again after %s, want within %s: a message is held", after, report.Settle)
		}
		m.set("")
		c.look(t.Context(), r)
		delete(claim.Annotations, plan.SelectedNode) // the scheduler chooses anew
		time.Sleep(report.Settle)
		if after, err := c.claim(t.Context(), r, i); after != 0 || err != nil {
			t.Errorf("looked at again after %s, %v", after, err)
		}
	})
}

// What was written about a claim is forgotten with it: else memory grows with each claim that the
// process has seen.
func TestMessagesAreForgottenWithTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, claim, m := flappingClaim(t, &audience{})
		r, i := c.workers["fast"], claimItem(claim)
		m.set("/srv/fast is not a mount point")
		c.look(t.Context(), r)
		time.Sleep(explainAfter)
		if _, err := c.claim(t.Context(), r, i); err != nil || !c.said.Written(i.uid) {
			t.Fatalf("%v, and nothing was reported", err)
		}
		delete(c.Listers.Claims.(many), "ns/"+claim.Name) // it is bound, deleted, or another node's
		if _, err := c.claim(t.Context(), r, i); err != nil || c.said.Written(i.uid) {
			t.Errorf("%v; the messages about the claim are kept", err)
		}
	})
}

// flappingClaim is a controller that does not run, for which one claim waits.
func flappingClaim(t *testing.T, heard *audience) (*Controller, *corev1.PersistentVolumeClaim, *mount) {
	t.Helper()
	wait, class, m := storagev1.VolumeBindingWaitForFirstConsumer, "c", &mount{}
	claim := waitingClaim(0, class)
	c := New(flappingOptions(m, heard, nil, class, wait, many{"ns/" + claim.Name: claim}))
	t.Cleanup(func() { // its queues end
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Run(ctx, make(chan struct{}), make(chan struct{}))
	})
	return c, claim, m
}

// volumeServer is an API server with one volume.
type volumeServer struct {
	api
	pv *corev1.PersistentVolume
}

func (s *volumeServer) GetVolume(context.Context, string) (*corev1.PersistentVolume, error) {
	return s.pv, nil
}

// A volume whose path is not its directory's, in a pool whose mount goes and comes back: nothing
// changes afterwards that would bring it again, and its last event tells what is so.
func TestHeldMessageOfAVolumeIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := &audience{}
		c, _, m := flappingClaim(t, heard)
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-0", UID: "v",
			Annotations: map[string]string{plan.ProvisionedBy: plan.DefaultProvisioner}, Labels: map[string]string{plan.NodeLabel: "node-a", plan.PoolLabel: "fast"}}}
		pv.Spec.PersistentVolumeReclaimPolicy, pv.Status.Phase = corev1.PersistentVolumeReclaimDelete, corev1.VolumeReleased
		pv.Spec.HostPath, pv.Spec.ClaimRef = &corev1.HostPathVolumeSource{Path: "/etc"}, &corev1.ObjectReference{Namespace: "ns", Name: "c", UID: "0"}
		m.records = []record.Record{{PV: pv.Name, ClaimUID: "0", Directory: pv.Name, Place: record.InPool}}
		c.API = &volumeServer{pv: pv}
		w := c.workers["fast"]
		var after time.Duration
		for _, missing := range []string{"", "/srv/fast is not a mount point", ""} {
			m.set(missing)
			c.look(t.Context(), w)
			var err error
			if after, err = c.volume(t.Context(), w, pv.Name); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if after <= 0 || after > report.Settle {
			t.Errorf("looked at again after %s, want within %s", after, report.Settle)
		}
		time.Sleep(after)
		if after, err := c.volume(t.Context(), w, pv.Name); after != 0 || err != nil {
			t.Errorf("after its message was due: looked at again after %s, %v", after, err)
		}
		if got := heard.of(pv.UID); len(got) != 3 || !strings.HasPrefix(got[2], plan.ReasonPathMismatch) {
			t.Errorf("events: %q", got)
		}
	})
}
