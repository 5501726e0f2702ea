package forget

import (
	"cmp"
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/unpublish"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/presence"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// API is the part of Kubernetes that is used. An object that does not exist is nil without an
// error. What is deleted has the UID that is given, or nothing is; it is no error if it is gone.
type API interface {
	unpublish.API
	unpublish.Claims
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
	EachVolume(ctx context.Context, visit func(*corev1.PersistentVolume)) error
	EachClaim(ctx context.Context, visit func(*corev1.PersistentVolumeClaim)) error
	// MarkClaim writes an annotation and the finalizers, if the claim is as given.
	MarkClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, key string, value *string,
		finalizers []string) (*corev1.PersistentVolumeClaim, error)
	DeleteClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error
	EachPod(ctx context.Context, namespace, fields string, visit func(*corev1.Pod)) error
	DeletePod(ctx context.Context, pod *corev1.Pod) error
	EachContent(ctx context.Context, visit func(*snapshotapi.Content)) error
	GetContent(ctx context.Context, name string) (*snapshotapi.Content, error)
	DeleteContent(ctx context.Context, of *snapshotapi.Content) error
	// ReleaseContent takes the finalizer of the driver's side off a content.
	ReleaseContent(ctx context.Context, of *snapshotapi.Content) (was bool, err error)
	// EachLease reads those in the daemons' namespace; ReadLease and WriteLease are the elector's.
	EachLease(ctx context.Context, visit func(*coordinationv1.Lease)) error
	ReadLease(ctx context.Context, name string) (*leadership.Lease, error)
	WriteLease(ctx context.Context, l leadership.Lease) (*leadership.Lease, error)
	// DeleteNodeLease deletes the lease of a node's name, of whichever host with "".
	DeleteNodeLease(ctx context.Context, node, host string) error
	// EachCapacity reads what a node publishes for these drivers, by its label's value.
	EachCapacity(ctx context.Context, drivers []string, node string,
		visit func(*storagev1.CSIStorageCapacity)) error
	// Event queues an event; Flush writes what is queued, and returns the first error.
	Event(ref corev1.ObjectReference, eventType, reason, message string)
	Flush(ctx context.Context) error
}

// Options are one call.
type Options struct {
	plan.Self // the provisioners that are meant, and the node that is forgotten
	API       API
	Claims    bool // delete the claims whose data is gone, too
	Forced    bool // the node looks alive, and the administrator knows better
	// Withdraw removes what the scheduler was told of the node.
	Withdraw func(ctx context.Context) error
	// Watch is how long a node's lease is watched for a renewal.
	Watch time.Duration
}

// Row is an object, and what becomes of it.
type Row struct {
	Kind    string      `json:"kind"`
	Name    string      `json:"name"` // namespace/name of a claim
	Claim   string      `json:"claim,omitempty"`
	Pool    string      `json:"pool,omitempty"`
	Size    int64       `json:"size,omitempty"` // bytes that were asked for
	Action  plan.Action `json:"action"`
	Message string      `json:"message,omitempty"`
}

// Kinds of rows.
const (
	KindVolume  = "PersistentVolume"
	KindContent = "VolumeSnapshotContent"
	KindClaim   = "PersistentVolumeClaim"
)

// Stay is why volumes of a pool stay.
type Stay struct{ Pool, Why string }

// Survey is what there is of a node, and what is decided about it.
type Survey struct {
	Options
	Node       plan.Verdict // about the node
	NodeGone   bool         // the cluster has no Node of the name
	Rows       []Row        // what goes, and what cannot
	Stays      map[Stay]int
	Leases     []string // of pools, that the node's daemon holds
	NodeLease  bool     // there is the one that says which host has the node's name
	Capacities int      // objects that the node publishes

	shared   map[string]bool
	volumes  []*corev1.PersistentVolume
	contents []*snapshotapi.Content
}

// Look reads the cluster, and decides. It changes nothing.
func Look(ctx context.Context, o Options) (*Survey, error) {
	s := &Survey{Options: o, Stays: map[Stay]int{}, shared: map[string]bool{}}
	for _, read := range []func(context.Context) error{
		s.lookAtNode, s.lookAtVolumes, s.lookAtContents, s.lookAtClaims,
	} {
		if err := read(ctx); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(s.Rows, func(a, b Row) int {
		return cmp.Or(-cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return s, nil
}

// Empty reports whether nothing is left of the node.
func (s *Survey) Empty() bool { return len(s.Rows)+len(s.Leases)+s.Capacities == 0 && !s.NodeLease }

// lookAtNode looks for signs of life, twice where a lease is held in the node's name.
func (s *Survey) lookAtNode(ctx context.Context) error {
	f := NodeFacts{Name: s.Self.Node, Forced: s.Forced}
	var err error
	if f.Signs, err = s.signs(ctx); err != nil {
		return err
	}
	f.Now = time.Now()
	renewed := func(sign Sign) bool { return sign.Renewed }
	if f.Node, err = s.API.GetNode(ctx, f.Name); err != nil {
		return err
	}
	s.NodeGone = f.Node == nil
	s.Node = ForNode(f)
	if s.Node.Action != Forget || s.Forced || !slices.ContainsFunc(f.Signs, renewed) {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(s.Watch):
	}
	if f.Later, err = s.signs(ctx); err == nil {
		s.Node = ForNode(f)
	}
	return err
}

// signs reads what only the node's daemon writes, and notes it.
func (s *Survey) signs(ctx context.Context) (all []Sign, err error) {
	s.Leases, s.Capacities, s.NodeLease = nil, 0, false
	err = s.API.EachLease(ctx, func(l *coordinationv1.Lease) {
		if l.Name == presence.Name(s.Self.Node) {
			s.NodeLease = true
			all = append(all, signOf(l, false))
			return
		}
		pool := l.Labels[plan.PoolLabel]
		if pool == "" || l.Name != leadership.Name(s.Provisioner, pool) {
			return
		}
		s.shared[pool] = true
		if h := l.Spec.HolderIdentity; h == nil || leadership.NodeOf(*h) != s.Self.Node {
			return
		}
		s.Leases = append(s.Leases, l.Name)
		all = append(all, signOf(l, true))
	})
	if err != nil {
		return nil, err
	}
	node := plan.NodeLabelValue(s.Self.Node)
	drivers := s.Publishing()
	if len(drivers) == 0 {
		return all, nil
	}
	err = s.API.EachCapacity(ctx, drivers, node, func(o *storagev1.CSIStorageCapacity) {
		s.Capacities++
		all = append(all, Sign{What: "the capacity of class " + o.StorageClassName,
			Version: o.ResourceVersion, Written: written(o)})
	})
	return all, err
}

// Publishing are the drivers for which a node can publish something.
func (o Options) Publishing() []string {
	return slices.DeleteFunc(o.Drivers(), func(name string) bool {
		return !plan.DriverNamePossible(name)
	})
}

func signOf(l *coordinationv1.Lease, renewed bool) Sign {
	sign := Sign{What: "lease " + l.Name, Version: l.ResourceVersion, Renewed: renewed}
	if l.Spec.RenewTime != nil {
		sign.Written = l.Spec.RenewTime.Time
	}
	return sign
}

// written is when an object was last written, by the API server's clock.
func written(o metav1.Object) time.Time {
	last := o.GetCreationTimestamp().Time
	for _, m := range o.GetManagedFields() {
		if m.Time != nil && m.Time.After(last) {
			last = m.Time.Time
		}
	}
	return last
}

func (s *Survey) lookAtVolumes(ctx context.Context) error {
	return s.API.EachVolume(ctx, func(v *corev1.PersistentVolume) {
		switch verdict := s.ofVolume(v); verdict.Action {
		case plan.Ignore:
		case plan.Keep:
			s.Stays[Stay{words.Name(v.Labels[plan.PoolLabel]), verdict.Message}]++
		default:
			size, _ := plan.Bytes(plan.SizeOf(v))
			row := Row{Kind: KindVolume, Name: v.Name, Pool: v.Labels[plan.PoolLabel], Size: size,
				Action: verdict.Action, Message: verdict.Message}
			if ref := v.Spec.ClaimRef; ref != nil {
				row.Claim = ref.Namespace + "/" + ref.Name
			}
			s.Rows = append(s.Rows, row)
			if verdict.Action == Forget {
				s.volumes = append(s.volumes, v.DeepCopy()) // v is a part of its page, which goes
			}
		}
	})
}

func (s *Survey) ofVolume(v *corev1.PersistentVolume) plan.Verdict {
	return ForVolume(VolumeFacts{Self: s.Self, Volume: v, SharedPools: s.shared, Forced: s.Forced})
}

func (s *Survey) lookAtContents(ctx context.Context) error {
	names := map[string]bool{}
	for _, v := range s.volumes {
		names[v.Name] = true
	}
	return s.API.EachContent(ctx, func(c *snapshotapi.Content) {
		verdict := ForContent(ContentFacts{Self: s.Self, Content: c, Volumes: names})
		if verdict.Action == plan.Ignore {
			return
		}
		ref := c.Spec.SnapshotRef
		s.Rows = append(s.Rows, Row{Kind: KindContent, Name: c.Name,
			Claim:  ref.Namespace + "/" + ref.Name,
			Action: verdict.Action, Message: verdict.Message})
		if verdict.Action == Forget {
			one := *c
			s.contents = append(s.contents, &one)
		}
	})
}

// lookAtClaims finds the claims that lost their volume to an earlier call.
func (s *Survey) lookAtClaims(ctx context.Context) error {
	claims, err := s.marked(ctx)
	for _, c := range claims {
		verdict, err := s.ofClaim(ctx, c)
		if err != nil {
			return err
		}
		if verdict.Action == Forget && (s.Claims || c.DeletionTimestamp != nil) {
			s.Rows = append(s.Rows, Row{Kind: KindClaim, Name: c.Namespace + "/" + c.Name,
				Action: Forget, Message: verdict.Message})
		}
	}
	return err
}

// marked are the claims that have the mark of the node.
func (s *Survey) marked(ctx context.Context) (all []*corev1.PersistentVolumeClaim, err error) {
	err = s.API.EachClaim(ctx, func(c *corev1.PersistentVolumeClaim) {
		if c.Annotations[Annotation] == s.Self.Node {
			all = append(all, c.DeepCopy())
		}
	})
	return all, err
}

func (s *Survey) ofClaim(ctx context.Context,
	c *corev1.PersistentVolumeClaim) (plan.Verdict, error) {
	f := ClaimFacts{Node: s.Self.Node, Claim: c}
	var err error
	if c.Spec.VolumeName != "" {
		f.Volume, err = s.API.GetVolume(ctx, c.Spec.VolumeName)
	}
	return ForClaim(f), err
}

// Alive returns why a node must not be taken for gone; its action is Forget where it may.
func Alive(ctx context.Context, o Options) (plan.Verdict, error) {
	s := &Survey{Options: o, shared: map[string]bool{}}
	err := s.lookAtNode(ctx)
	return s.Node, err
}
