// Package overview lists the nodes, pools, volumes and snapshots of a cluster, from the API alone,
// with the rights of who asks: what the daemons tell of themselves in their nodes' leases, beside
// what the objects say.
//
// It will not change anything, ask a node, or take what a node tells for true: a node that was taken
// over tells what it likes, and only of itself.
package overview

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/presence"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// API is what is read.
type API interface {
	EachLease(ctx context.Context, visit func(*coordinationv1.Lease)) error
	EachNode(ctx context.Context, visit func(*corev1.Node)) error
	EachVolume(ctx context.Context, visit func(*corev1.PersistentVolume)) error
	EachContent(ctx context.Context, visit func(*snapshotapi.Content)) error
}

// Options of an overview.
type Options struct {
	plan.Self // whose volumes are ours
	API
	Now time.Time
}

// States of a Node, in the order in which the first that applies counts.
const (
	NodeGone     = "gone"     // the cluster has no Node of the name
	NodeUnknown  = "unknown"  // no daemon ever told of itself
	NodeSilent   = "silent"   // it has not for presence.Silent
	NodeAhead    = "ahead"    // by a clock so far ahead that it may be silent
	NodeNotReady = "NotReady" // its kubelet does not report, or that it is not
	NodeReady    = "ready"    // any other word is the reason of what is wrong
)

// Node is one node with a daemon, or with volumes.
type Node struct {
	Name    string    `json:"name"`
	Status  string    `json:"status"`
	Message string    `json:"message,omitempty"`
	Seen    time.Time `json:"seen,omitzero"` // when its daemon told of itself last, by its clock
	Version string    `json:"version,omitempty"`
	Open    int       `json:"poolsOpen"`
	Pools   int       `json:"pools"`
	Volumes int       `json:"volumes"`
	Lost    int       `json:"volumesLost,omitempty"`
	Free    uint64    `json:"free"` // the most that one more volume can get
}

// Well reports whether a node needs nobody.
func (n Node) Well() bool { return n.Status == NodeReady && n.Open == n.Pools && n.Lost == 0 }

// Pool is one pool of a node.
type Pool struct {
	Node       string `json:"node"`
	NodeStatus string `json:"nodeStatus"`
	presence.Pool
}

// Volume is one PersistentVolume.
type Volume struct {
	Name       string    `json:"name"`
	Namespace  string    `json:"namespace,omitempty"` // of its claim
	Claim      string    `json:"claim,omitempty"`
	Node       string    `json:"node,omitempty"` // "" where nodes share it
	NodeStatus string    `json:"nodeStatus,omitempty"`
	Pool       string    `json:"pool,omitempty"`
	Scope      string    `json:"scope,omitempty"`
	Class      string    `json:"class,omitempty"`
	Reclaim    string    `json:"reclaimPolicy,omitempty"`
	Size       int64     `json:"size"`
	Status     string    `json:"status"` // its phase, or Terminating
	Created    time.Time `json:"created"`
}

// Snapshot is one VolumeSnapshotContent.
type Snapshot struct {
	Name      string    `json:"name"` // of the VolumeSnapshot
	Namespace string    `json:"namespace"`
	Content   string    `json:"content"`
	Node      string    `json:"node,omitempty"`
	Size      int64     `json:"size,omitempty"`
	Status    string    `json:"status"` // ready, waiting, failed or Terminating
	Message   string    `json:"message,omitempty"`
	Created   time.Time `json:"created"`
}

// Overview is what was asked for. Unseen is what this user may not read.
type Overview struct {
	Options
	Unseen []string

	nodes  map[string]*Node
	pools  []Pool
	exists map[string]bool // by the value of a node's label; nil: that may not be read
}

// Look reads what the daemons tell, and the nodes.
func Look(ctx context.Context, o Options) *Overview {
	v := &Overview{Options: o, nodes: map[string]*Node{}}
	key := presence.StateKey(o.Provisioner)
	told := map[string]presence.State{}
	v.seen("leases of the daemons", o.EachLease(ctx, func(l *coordinationv1.Lease) {
		name, is := strings.CutPrefix(l.Name, presence.Name(""))
		text, has := l.Annotations[key]
		if !is || !has || !heldBy(l, name) {
			return
		}
		state, ok := presence.DecodeState(text)
		if !ok {
			state = presence.Unreadable(l)
		}
		told[name] = state
	}))
	ready, exists := map[string]bool{}, map[string]bool{}
	known := v.seen("nodes", o.EachNode(ctx, func(n *corev1.Node) {
		ready[n.Name], _ = plan.NodeReady(n)
		exists[plan.NodeLabelValue(n.Name)] = true
	}))
	if known {
		v.exists = exists
	}
	for name, state := range told {
		isReady, exists := ready[name]
		v.add(name, state, !known || isReady, !known || exists)
	}
	return v
}

// heldBy reports whether a lease was written in the name of the node that its name is of. The
// policies let no other node's daemon write there; without policies any can.
func heldBy(l *coordinationv1.Lease, node string) bool {
	holder := l.Spec.HolderIdentity
	return holder != nil && leadership.NodeOf(*holder) == node
}

func (v *Overview) add(name string, s presence.State, ready, exists bool) {
	n := &Node{Name: name, Status: NodeReady, Seen: s.Time, Version: s.Version,
		Pools: len(s.Pools) + s.More}
	for _, p := range s.Pools {
		if p.State == presence.PoolOpen {
			n.Open++
		}
		n.Volumes, n.Lost = n.Volumes+p.Volumes, n.Lost+p.Lost
		if p.Free != nil && p.State == presence.PoolOpen {
			n.Free = max(n.Free, *p.Free)
		}
	}
	switch {
	case !exists:
		n.Status = NodeGone
	case v.Now.Sub(s.Time) > presence.Silent:
		n.Status = NodeSilent
	case s.Time.Sub(v.Now) > presence.Silent:
		n.Status = NodeAhead
	case !ready:
		n.Status = NodeNotReady
	case s.Reason != "":
		n.Status, n.Message = s.Reason, s.Message
	}
	v.nodes[name] = n
	for _, p := range s.Pools {
		v.pools = append(v.pools, Pool{Node: name, NodeStatus: n.Status, Pool: p})
	}
}

// seen reports whether a request had a response, and notes what may not be read.
func (v *Overview) seen(what string, err error) bool {
	switch {
	case err == nil:
		return true
	case apierrors.IsForbidden(err):
		v.Unseen = append(v.Unseen, what+": this user may not list them")
	case apierrors.IsNotFound(err):
		v.Unseen = append(v.Unseen, what+": the cluster has no such kind of object")
	default:
		v.Unseen = append(v.Unseen, fmt.Sprintf("%s: %s", what, words.Line(err.Error(), 300)))
	}
	return false
}

// Nodes are the nodes by name: those whose daemons told of themselves, and those with volumes.
func (v *Overview) Nodes(ctx context.Context) (all []Node) {
	told := maps.Clone(v.nodes)
	for _, one := range v.Volumes(ctx) {
		if one.Node == "" || told[one.Node] != nil {
			continue
		}
		if v.nodes[one.Node] == nil {
			v.nodes[one.Node] = &Node{Name: one.Node, Status: one.NodeStatus}
		}
		v.nodes[one.Node].Volumes++
	}
	for _, name := range slices.Sorted(maps.Keys(v.nodes)) {
		all = append(all, *v.nodes[name])
	}
	return all
}

// Pools are the pools that daemons told of, by node and name.
func (v *Overview) Pools() []Pool {
	slices.SortFunc(v.pools, func(a, b Pool) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name))
	})
	return v.pools
}

// Volumes are the volumes of our provisioners, by the namespace and name of their claims.
func (v *Overview) Volumes(ctx context.Context) (all []Volume) {
	byLabel := map[string]*Node{}
	for name, n := range v.nodes {
		byLabel[plan.NodeLabelValue(name)] = n
	}
	v.seen("persistentvolumes", v.EachVolume(ctx, func(pv *corev1.PersistentVolume) {
		if !v.Serves(pv.Annotations[plan.ProvisionedBy]) {
			return
		}
		one := Volume{Name: pv.Name, Node: words.Name(pv.Labels[plan.NodeLabel]),
			Pool: words.Name(pv.Labels[plan.PoolLabel]), Scope: words.Name(pv.Labels[plan.ScopeLabel]),
			Class: pv.Spec.StorageClassName, Reclaim: string(pv.Spec.PersistentVolumeReclaimPolicy),
			Status: words.Name(string(pv.Status.Phase)), Created: pv.CreationTimestamp.Time}
		one.Size, _ = plan.Bytes(plan.SizeOf(pv))
		if ref := pv.Spec.ClaimRef; ref != nil {
			one.Namespace, one.Claim = ref.Namespace, ref.Name
		}
		if pv.DeletionTimestamp != nil {
			one.Status = "Terminating"
		}
		switch n := byLabel[one.Node]; {
		case one.Node != "" && n != nil:
			one.Node, one.NodeStatus = n.Name, n.Status
		case one.Node != "":
			one.NodeStatus = v.untold(one.Node)
		}
		all = append(all, one)
	}))
	slices.SortFunc(all, func(a, b Volume) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim),
			cmp.Compare(a.Name, b.Name))
	})
	return all
}

// untold is the status of a node whose daemon never told of itself, by the value of its label.
func (v *Overview) untold(label string) string {
	if v.exists != nil && !v.exists[label] {
		return NodeGone
	}
	return NodeUnknown
}

// Snapshots are the contents of our drivers, by the namespace and name of their VolumeSnapshots.
func (v *Overview) Snapshots(ctx context.Context) (all []Snapshot) {
	v.seen("volumesnapshotcontents", v.EachContent(ctx, func(c *snapshotapi.Content) {
		if !slices.Contains(v.Drivers(), c.Spec.Driver) {
			return
		}
		one := Snapshot{Name: c.Spec.SnapshotRef.Name, Namespace: c.Spec.SnapshotRef.Namespace,
			Content: c.Name, Node: words.Name(c.Annotations[plan.NodeLabel]),
			Status: "waiting", Created: c.CreationTimestamp.Time}
		if s := c.Status; s != nil {
			if s.RestoreSize != nil {
				one.Size = max(*s.RestoreSize, 0)
			}
			switch {
			case s.ReadyToUse != nil && *s.ReadyToUse:
				one.Status = "ready"
			case s.Error != nil && s.Error.Message != nil:
				one.Status, one.Message = "failed", words.Line(*s.Error.Message, words.MessageMax)
			}
		}
		if c.DeletionTimestamp != nil {
			one.Status = "Terminating"
		}
		all = append(all, one)
	}))
	slices.SortFunc(all, func(a, b Snapshot) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Content, b.Content))
	})
	return all
}
