// Package follow has volume objects follow their disk to another node. The node affinity and the
// source of an object cannot be changed, so it is deleted and made again, of the same name and for
// the same claim: the claim is Lost for some seconds, and then Bound.
//
// What a volume is, its record on the disk proves; the object that is to be made is in the record
// before the other one goes. The package touches no directory, and it moves nothing of a volume
// that a pod on the former node uses. Whether that node is gone the caller has found out.
package follow

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/unpublish"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// API is the part of Kubernetes that is used. An object that does not exist is nil without an
// error.
type API interface {
	unpublish.API
	unpublish.Claims
	EachVolume(ctx context.Context, visit func(*corev1.PersistentVolume)) error
	EachPod(ctx context.Context, namespace, fields string, visit func(*corev1.Pod)) error
	EachContent(ctx context.Context, visit func(*snapshotapi.Content)) error
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
	// CheckVolume reports whether the server would take an object, whatever has its name.
	CheckVolume(ctx context.Context, pv *corev1.PersistentVolume) error
	// CreateVolume returns the object that has the name already, if there is one.
	CreateVolume(ctx context.Context,
		pv *corev1.PersistentVolume) (existing *corev1.PersistentVolume, err error)
	// TakeContent writes the name of the node that has a snapshot on its content.
	TakeContent(ctx context.Context, of *snapshotapi.Content,
		node string) (*snapshotapi.Content, error)
	Event(ref corev1.ObjectReference, eventType, reason, message string)
	Flush(ctx context.Context) error
}

// Store is the part of volume.Pool that is used.
type Store interface {
	List(ctx context.Context, id mounts.Identity) (volume.Inventory, error)
	Lookup(ctx context.Context, id mounts.Identity, pv string) (record.Record, error)
	LookupArchived(ctx context.Context, id mounts.Identity,
		pv, claimUID string) (record.Record, error)
	Moving(ctx context.Context, id mounts.Identity, pv, object string) error
	Moved(ctx context.Context, id mounts.Identity, pv, node string) error
}

// Options are one pool, which is this node's now.
type Options struct {
	plan.Self
	Pool     plan.Pool
	From     string // the node that had it
	Store    Store
	Identity mounts.Identity // of the pool's directory, as it was checked
	API      API
	DryRun   bool
	Forced   bool // the administrator typed the former node's name again
}

// Row is what became of one volume or snapshot, or would.
type Row struct {
	Name    string      `json:"name"`
	Of      string      `json:"of,omitempty"` // namespace/name of claim or VolumeSnapshot
	Action  plan.Action `json:"action"`
	Message string      `json:"message,omitempty"`
}

// Run has everything follow that the pool has. Rows are sorted by name. The error is one that kept
// it from looking; what one volume met stands in its row.
func Run(ctx context.Context, o Options) (rows []Row, err error) {
	s, err := o.survey(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range s.names {
		if row := s.volumeNow(ctx, name); row.Action != plan.Ignore {
			rows = append(rows, row)
		}
		if ctx.Err() != nil {
			return rows, context.Cause(ctx)
		}
	}
	more, err := s.snapshots(ctx)
	return append(rows, more...), err
}

// volumeNow is volume, while others write to its object.
func (s *survey) volumeNow(ctx context.Context, name string) (row Row) {
	err := unpublish.Again(ctx, func() (err error) {
		row, err = s.volume(ctx, name)
		return err
	})
	if err != nil {
		row.Action, row.Message = plan.Refuse, err.Error()
	}
	return row
}

// survey is what is known before the first volume is decided on.
type survey struct {
	Options
	hostname string
	names    []string          // of volumes that are recorded here or have the former node's label
	handles  map[string]bool   // handles that are recorded here
	users    map[string]string // by namespace/name of a claim: a pod on the former node
	told     bool              // the two nodes were told
	park     string            // the stream in which the volume is sent
	stream   string            // the one that it came in
}

func (o Options) survey(ctx context.Context) (*survey, error) {
	s := &survey{Options: o, handles: map[string]bool{}}
	var err error
	if s.hostname, err = o.hostnameOf(ctx); err != nil {
		return nil, err
	}
	inventory, err := o.Store.List(ctx, o.Identity)
	if err != nil {
		return nil, err
	}
	for _, r := range inventory.Volumes {
		switch r.Kind {
		case record.Volume:
			s.names = append(s.names, r.PV)
		case record.Snapshot:
			s.handles[r.PV] = true
		}
	}
	err = o.API.EachVolume(ctx, func(v *corev1.PersistentVolume) {
		if v.Labels[plan.NodeLabel] == plan.NodeLabelValue(o.From) {
			s.names = append(s.names, v.Name)
		}
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(s.names)
	s.names = slices.Compact(s.names)
	s.users, err = Users(ctx, o.API, o.From)
	return s, err
}

// Pods reads the pods that a field selector leaves.
type Pods interface {
	EachPod(ctx context.Context, namespace, fields string, visit func(*corev1.Pod)) error
}

// Users are the pods on a node that did not end, by namespace/name of the claims that they use.
func Users(ctx context.Context, api Pods, node string) (map[string]string, error) {
	users := map[string]string{}
	on := "spec.nodeName=" + node + ",status.phase!=Succeeded,status.phase!=Failed"
	return users, api.EachPod(ctx, "", on, func(p *corev1.Pod) {
		for _, claim := range plan.PodClaimNames(p, len(p.Spec.Volumes)+1) {
			users[p.Namespace+"/"+claim] = p.Namespace + "/" + p.Name
		}
	})
}

// hostnameOf is the value of this node's hostname label.
func (o Options) hostnameOf(ctx context.Context) (string, error) {
	node, err := o.API.GetNode(ctx, o.Node)
	switch {
	case err != nil:
		return "", err
	case node == nil || node.Labels[plan.HostnameLabel] == "":
		return "", fmt.Errorf("the cluster has no node %q with a label %s",
			o.Node, plan.HostnameLabel)
	}
	return node.Labels[plan.HostnameLabel], nil
}

func (s *survey) facts(ctx context.Context, name string) (f Facts, err error) {
	f = Facts{Self: s.Self, From: s.From, Pool: s.Pool, Hostname: s.hostname,
		Park: s.park, Stream: s.stream}
	if f.Volume, err = s.API.GetVolume(ctx, name); err != nil {
		return f, err
	}
	f.Record, f.Unreadable, err = volume.Found(s.Store.Lookup(ctx, s.Identity, name))
	if err != nil {
		return f, err
	}
	if f.Record != nil {
		if f.Intent, err = s.intended(*f.Record); err != nil {
			f.Unreadable = err.Error()
		}
	}
	v := f.Volume
	if v == nil || v.Spec.ClaimRef == nil {
		return f, nil
	}
	f.User = s.users[v.Spec.ClaimRef.Namespace+"/"+v.Spec.ClaimRef.Name]
	if f.Record == nil && f.Unreadable == "" {
		archived, unreadable, err := volume.Found(s.Store.LookupArchived(ctx, s.Identity, name,
			string(v.Spec.ClaimRef.UID)))
		if f.Archived, f.Unreadable = archived != nil, unreadable; err != nil {
			return f, err
		}
	}
	return f, nil
}

// intended is what a record has of an object that is to be made, for this node: the call that noted
// it may have died on another one, from which the disk went on.
func (s *survey) intended(r record.Record) (*Intent, error) {
	i, err := decode(r.Moving)
	if i != nil && i.Object.Labels[plan.NodeLabel] != "" {
		i.Object = Successor(Facts{Self: s.Self, From: s.From, Pool: s.Pool, Volume: i.Object,
			Record: &r, Hostname: s.hostname})
	}
	return i, err
}

// volume decides about one volume, and carries it out.
func (s *survey) volume(ctx context.Context, name string) (Row, error) {
	row := Row{Name: name, Action: plan.Refuse}
	f, err := s.facts(ctx, name)
	if err != nil {
		return row, err
	}
	seen := f.Volume
	if seen == nil && f.Intent != nil {
		seen = f.Intent.Object
	}
	if seen != nil && seen.Spec.ClaimRef != nil {
		row.Of = seen.Spec.ClaimRef.Namespace + "/" + seen.Spec.ClaimRef.Name
	}
	v := For(f)
	row.Action, row.Message = v.Action, v.Message
	switch {
	case s.DryRun && v.Action == Move:
		return row, s.API.CheckVolume(ctx, Successor(f))
	case s.DryRun:
		return row, nil
	case v.Action == Move:
		s.tell(ctx)
		return row, s.move(ctx, f)
	case v.Action == Finish:
		s.tell(ctx)
		return row, s.finish(ctx, name, *f.Intent)
	case v.Action == Drop:
		return row, unpublish.Volume(ctx, s.API, f.Volume)
	}
	return row, nil
}

// tell tells both nodes, before the first volume moves. An event that is refused keeps nothing
// waiting.
func (s *survey) tell(ctx context.Context) {
	if s.told || s.From == s.Node {
		return
	}
	s.told = true
	for _, node := range []string{s.From, s.Node} {
		s.API.Event(report.Node(node), corev1.EventTypeNormal, plan.ReasonVolumeMoved,
			fmt.Sprintf("the volumes of pool %s come with their disk from node %s to node %s",
				s.Pool.Name, s.From, s.Node))
	}
	_ = s.API.Flush(ctx)
}

// Elsewhere returns a volume that the pool has recorded, and that is a third node's by its object,
// "" if there is none. Then that node has a disk with the same records: one of the two is a copy.
func Elsewhere(ctx context.Context, o Options) (volume, node string, err error) {
	inventory, err := o.Store.List(ctx, o.Identity)
	if err != nil {
		return "", "", err
	}
	directories := map[string]string{}
	for _, r := range inventory.Volumes {
		if r.HasObject() && r.Sent == "" {
			directories[r.PV] = r.Directory
		}
	}
	return volume, node, o.API.EachVolume(ctx, func(v *corev1.PersistentVolume) {
		on := v.Labels[plan.NodeLabel]
		theirs := on != plan.NodeLabelValue(o.From) && on != plan.NodeLabelValue(o.Node)
		if theirs && on != "" && directories[v.Name] != "" &&
			directories[v.Name] == path.Base(plan.PathOf(v)) {
			volume, node = v.Name, on
		}
	})
}

// move makes an object for this node in the place of the former node's. A crash leaves, after
//
//	intent        the former node's object, and in the record the one that is to be made
//	deletion      the same, being deleted: its finalizers hold it
//	finalizers    no object; the claim is Lost until the next call
//	new object    an intent that is carried out
//	deletion      the same, where the former node's object was being deleted
//
// Each is finished by the next call. The daemon undoes nothing as long as the record has an intent.
func (s *survey) move(ctx context.Context, f Facts) error {
	v, i := f.Volume, f.Intent
	if i == nil || i.UID != v.UID || v.DeletionTimestamp == nil {
		claim, err := unpublish.Claim(ctx, s.API, v.Spec.ClaimRef)
		if err != nil {
			return err
		}
		i = &Intent{UID: v.UID, Deleting: v.DeletionTimestamp != nil, Claimed: claim != nil,
			Begun: true, Object: Successor(f)}
		if err := s.API.CheckVolume(ctx, i.Object); err != nil {
			return err
		}
		text, err := i.encode()
		if err != nil {
			return err
		}
		if err := s.Store.Moving(ctx, s.Identity, v.Name, text); err != nil {
			return err
		}
	}
	if err := unpublish.Volume(ctx, s.API, v); err != nil {
		return err
	}
	return s.finish(ctx, v.Name, *i)
}

// finish makes the object that is intended, unless it is there, and lets the intent go.
func (s *survey) finish(ctx context.Context, name string, i Intent) error {
	claim, err := unpublish.Claim(ctx, s.API, i.Object.Spec.ClaimRef)
	if err != nil {
		return err
	}
	want := i.Object.DeepCopy()
	if i.Claimed && claim == nil { // people took the Lost claim for one whose data is lost
		want.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}
	now, err := s.API.GetVolume(ctx, name)
	if err == nil && now == nil {
		now, err = s.API.CreateVolume(ctx, want)
	}
	if err != nil {
		return err
	}
	if now != nil {
		if why := Differs(now, want); why != "" {
			return fmt.Errorf("another object has its name: %s", why)
		}
	}
	if i.Deleting {
		now, err := s.API.GetVolume(ctx, name)
		if err == nil && now != nil && now.DeletionTimestamp == nil {
			err = s.API.DeleteVolume(ctx, now)
		}
		if err != nil {
			return err
		}
	}
	var untold error
	if claim != nil {
		said := fmt.Sprintf("volume %s came with its disk from node %s to node %s",
			name, s.From, s.Node)
		switch {
		case s.park != "":
			said = fmt.Sprintf("volume %s is sent by node %s: no pod can use it until another "+
				"node has received it", name, s.From)
		case s.stream != "":
			said = fmt.Sprintf("volume %s came in a stream to node %s", name, s.Node)
		case s.From == s.Node:
			said = fmt.Sprintf("volume %s says now where node %s has it", name, s.Node)
		case s.From == "":
			said = fmt.Sprintf("volume %s was found on a disk of node %s", name, s.Node)
		}
		s.API.Event(report.Claim(claim), corev1.EventTypeNormal, plan.ReasonVolumeMoved, said)
		if err := s.API.Flush(ctx); err != nil { // an event that is refused keeps nothing waiting
			untold = fmt.Errorf("it was moved, and its claim was not told: %w", err)
		}
	}
	return cmp.Or(s.Store.Moved(ctx, s.Identity, name, s.Node), untold)
}

// snapshots has the contents of the snapshots that are recorded here name this node. A content says
// nothing else of it.
func (s *survey) snapshots(ctx context.Context) (rows []Row, err error) {
	if s.From == s.Node {
		return nil, nil
	}
	var all []*snapshotapi.Content
	err = s.API.EachContent(ctx, func(c *snapshotapi.Content) {
		if s.Serves(c.Spec.Driver) && plan.NodeOfContent(c) == s.From && s.handles[c.Handle()] {
			one := *c
			all = append(all, &one)
		}
	})
	slices.SortFunc(all, func(a, b *snapshotapi.Content) int { return cmp.Compare(a.Name, b.Name) })
	for _, c := range all {
		ref := c.Spec.SnapshotRef
		row := Row{Name: c.Name, Of: ref.Namespace + "/" + ref.Name, Action: Move}
		if !s.DryRun {
			if _, err := s.API.TakeContent(ctx, c, s.Node); err != nil {
				row.Action, row.Message = plan.Refuse, err.Error()
			}
		}
		rows = append(rows, row)
	}
	return rows, err
}
