// Package adopt takes over the volumes that other provisioners made in one of this node's pools,
// and undoes that again.
//
// It writes records on the disk and labels on volume objects, and nothing else: no
// directory is made, moved, removed or looked into. What becomes of each volume is plan's decision.
// It works beside a running daemon, which learns of an adopted volume by its label.
package adopt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/unpublish"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// API is the part of Kubernetes that adoption needs.
type API interface {
	unpublish.API
	unpublish.Claims
	EachVolume(ctx context.Context, visit func(*corev1.PersistentVolume)) error
	EachPod(ctx context.Context, namespace, fields string, visit func(*corev1.Pod)) error
	// EachLock reads leader election objects, whose kubeconfig allows it.
	EachLock(ctx context.Context, name string, visit func(*coordinationv1.Lease)) error
	// GetNode returns nil without an error for what does not exist.
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
	// CSIDrivers are those that kubelet has registered on a node.
	CSIDrivers(ctx context.Context, node string) ([]string, error)
	// CheckVolume reports whether the server would take an object, whatever has its name.
	CheckVolume(ctx context.Context, pv *corev1.PersistentVolume) error
	// CreateVolume returns the object that has the name already, if there is one.
	CreateVolume(ctx context.Context, pv *corev1.PersistentVolume) (existing *corev1.PersistentVolume, err error)
	// CheckPatch returns the error of PatchVolume, and changes nothing.
	CheckPatch(ctx context.Context, pv *corev1.PersistentVolume, m plan.MetadataPatch) error
}

// Store is the part of volume.Pool that adoption needs.
type Store interface {
	List(ctx context.Context, id mounts.Identity) (volume.Inventory, error)
	Lookup(ctx context.Context, id mounts.Identity, pv string) (record.Record, error)
	Usable(ctx context.Context, id mounts.Identity, directory string) error
	Adopt(ctx context.Context, id mounts.Identity, r record.Record) error
	Forget(ctx context.Context, id mounts.Identity, pv string) error
}

// Options are one pool of one node, and the operator's flags.
type Options struct {
	Pool     plan.Pool
	Store    Store
	Identity mounts.Identity // of the pool's directory, as it was checked
	plan.Self
	API       API
	Mounts    []mounts.Mount // of this host
	Overrides adoptrules.Overrides
	Served    []string // CSI drivers that this node's own service is: their volumes are adopted as they are
	Driver    string   // FromCSI: the CSI driver's name
	Kubelet   string   // FromCSI: kubelet's directory, where drivers have their sockets
	DryRun    bool
	Say       func(text string) // why nothing happens for a while; nil: nobody is told
}

// Row is what became of one volume, or would.
type Row struct {
	Volume      string      `json:"volume"`
	Claim       string      `json:"claim,omitempty"` // namespace/name
	Path        string      `json:"path,omitempty"`  // as its object says
	Provisioner string      `json:"provisioner,omitempty"`
	Action      plan.Action `json:"action"`
	Reason      string      `json:"reason,omitempty"`
	Message     string      `json:"message,omitempty"`
	Notes       []string    `json:"notes,omitempty"`
	Done        bool        `json:"done,omitempty"`
}

// Run adopts what can be adopted; with DryRun it only says so. Rows are sorted by volume. The error
// is one that kept it from looking; what one volume met stands in its row.
func Run(ctx context.Context, o Options) ([]Row, error) {
	s, err := o.survey(ctx)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, v := range s.volumes {
		row := s.decide(ctx, v)
		if ctx.Err() != nil {
			return append(rows, row), context.Cause(ctx)
		}
		if row.Action != plan.Ignore {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// tries is how often one volume is decided on while others write to its object.
const tries = 5

// decide decides about one volume and carries it out. When the object was changed meanwhile, by
// another node's call or by kube-controller-manager, it is decided on anew, by what it is now.
func (s *survey) decide(ctx context.Context, v *corev1.PersistentVolume) Row {
	for try := 1; ; try++ {
		facts, err := s.facts(ctx, v)
		if err != nil {
			return rowOf(v, adoptrules.Verdict{}).after(err)
		}
		verdict := adoptrules.ForAdoption(facts)
		row := rowOf(facts.Volume, verdict)
		switch {
		case verdict.Stale && !s.DryRun:
			if err := s.Store.Forget(ctx, s.Identity, v.Name); err != nil {
				row.Message = err.Error()
			}
			return row
		case verdict.Action == adoptrules.Ours:
			return s.grown(ctx, facts, row)
		case verdict.Action != adoptrules.Adopt:
			return row
		}
		err = s.adopt(ctx, v, adoptrules.Size(facts.Volume, facts.Claim))
		if apierrors.IsConflict(err) && try < tries {
			if now, wrong := s.API.GetVolume(ctx, v.Name); wrong == nil && now != nil {
				v = now
				continue
			}
		}
		return s.tried(row, err)
	}
}

// grown notes on a volume that was adopted before that its claim requests more by now. Kubernetes
// takes such a claim for satisfied, as its volume's capacity is more than that.
func (s *survey) grown(ctx context.Context, f adoptrules.Facts, row Row) Row {
	size, has := adoptrules.Size(f.Volume, f.Claim), plan.SizeOf(f.Volume)
	if size.Cmp(has) <= 0 {
		return row
	}
	err := s.unmark(ctx, f.Volume, adoptrules.SizePatch(f.Volume, size))
	if err != nil {
		return row.after(err)
	}
	row.Notes = append(row.Notes,
		fmt.Sprintf("its claim requests %s by now: the pool keeps that for it",
			size.String()))
	return row
}

// tried is the row when its action was tried, or only the server was asked.
func (o Options) tried(row Row, err error) Row {
	row = row.after(err)
	row.Done = row.Done && !o.DryRun
	return row
}

func rowOf(v *corev1.PersistentVolume, verdict adoptrules.Verdict) Row {
	row := Row{
		Volume: v.Name, Path: plan.PathOf(v), Provisioner: v.Annotations[plan.ProvisionedBy],
		Action: verdict.Action, Reason: verdict.Reason, Message: verdict.Message, Notes: verdict.Notes,
	}
	if ref := v.Spec.ClaimRef; ref != nil {
		row.Claim = ref.Namespace + "/" + ref.Name
	}
	return row
}

// after is the row when its action was tried.
func (r Row) after(err error) Row {
	if err != nil {
		r.Action, r.Message = plan.Refuse, err.Error()
		if apierrors.IsForbidden(err) || strings.Contains(r.Message, "ValidatingAdmissionPolicy") {
			r.Reason = adoptrules.ReasonDenied
		}
		return r
	}
	r.Done = true
	return r
}

// adopt takes the object first, so that of two nodes one writes a record. Before that mark and
// after it no daemon watches the object; the label that has it watched is put on when the record is
// there. A crash leaves
//
//	adopting       an object that is kept for this node's next call, which goes on, or for its --undo
//	record         the same, and a record whose object has no label: the daemon keeps it
//	label          nothing missing
func (o Options) adopt(ctx context.Context, v *corev1.PersistentVolume,
	size resource.Quantity) error {
	marks := adoptrules.SizedPatch(v, o.Pool, o.Node, size)
	if o.DryRun {
		return o.API.CheckPatch(ctx, v, marks)
	}
	ours, err := o.API.PatchVolume(ctx, v, marks)
	if err != nil {
		return err
	}
	r := o.record(o.served(ours), size)
	r.Source = plan.SourceOf(ours)
	if err := o.Store.Adopt(ctx, o.Identity, r); err != nil {
		return err
	}
	_, err = o.API.PatchVolume(ctx, ours, adoptrules.AdoptedPatch(ours, o.Pool, o.Node))
	return err
}

func (o Options) record(v *corev1.PersistentVolume, size resource.Quantity) record.Record {
	bytes, _ := plan.Bytes(size)
	return record.Record{
		PV: v.Name, Namespace: v.Spec.ClaimRef.Namespace, Claim: v.Spec.ClaimRef.Name, ClaimUID: string(v.Spec.ClaimRef.UID),
		Class: plan.VolumeClass(v), Provisioner: v.Annotations[plan.ProvisionedBy], Node: o.Node,
		Scope: o.Pool.Scope, Source: plan.SourceOf(v), Reclaim: string(v.Spec.PersistentVolumeReclaimPolicy), OnDelete: o.Pool.OnDelete,
		Directory: adoptrules.DirectoryOf(o.Pool, v), Requested: bytes, Created: time.Now().UTC(),
	}
}

// survey is what is known of the cluster and the pool before the first volume is decided on.
type survey struct {
	Options
	labels    map[string]string          // of this node
	volumes   []*corev1.PersistentVolume // all that may lie in the pool, by name
	claimants map[string][]string        // by entry of the pool: whose data lies there
	recorded  map[string]string          // by directory: the volume whose record has it
	begun     []string                   // volumes whose records have the object that was replaced
	running   map[string]string          // by provisioner: what shows that its program runs
	notKnown  string                     // why that is not known
}

func (o Options) survey(ctx context.Context) (*survey, error) {
	s := &survey{Options: o, claimants: map[string][]string{}, recorded: map[string]string{}, running: map[string]string{}}
	node, err := o.API.GetNode(ctx, o.Node)
	switch {
	case err != nil:
		return nil, err
	case node == nil:
		return nil, fmt.Errorf("the cluster has no node %q", o.Node)
	}
	s.labels = node.Labels
	err = o.API.EachVolume(ctx, func(v *corev1.PersistentVolume) {
		known := s.known(v)
		if known.Elsewhere() {
			return
		}
		for _, entry := range o.entries(v) {
			s.claimants[entry] = append(s.claimants[entry], v.Name)
		}
		if o.Driver == "" && adoptrules.ForAdoption(known).Action != plan.Ignore && o.has(ctx, v) || adoptrules.OfDriver(v, o.Driver) {
			s.volumes = append(s.volumes, v.DeepCopy()) // v is a part of its page, which goes
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(s.volumes, func(a, b *corev1.PersistentVolume) int { return cmp.Compare(a.Name, b.Name) })
	inventory, err := o.Store.List(ctx, o.Identity)
	for _, v := range inventory.Volumes {
		s.recorded[v.Directory] = v.PV
		if v.Replaced != "" && v.Place == record.InPool && !v.Retained {
			s.begun = append(s.begun, v.PV)
		}
	}
	if err == nil {
		s.lookForPrograms(ctx)
	}
	return s, err
}

// known is what can be said of a volume without the disk.
func (s *survey) known(v *corev1.PersistentVolume) adoptrules.Facts {
	return adoptrules.Facts{
		Volume: s.served(v), Pool: s.Pool, Self: s.Self, NodeLabels: s.labels,
		Running: s.running[v.Annotations[plan.ProvisionedBy]], NotKnown: s.notKnown, Overrides: s.Overrides,
	}
}

func (s *survey) facts(ctx context.Context, v *corev1.PersistentVolume) (adoptrules.Facts, error) {
	f := s.known(v)
	directory := adoptrules.DirectoryOf(s.Pool, f.Volume)
	if directory == "" {
		return f, nil
	}
	f.Other, f.Shown = s.other(directory, v.Name), s.shown(directory, kubelets)
	var err error
	f.Record, f.Unreadable, err = volume.Found(s.Store.Lookup(ctx, s.Identity, v.Name))
	if err != nil {
		return f, err
	}
	err = s.Store.Usable(ctx, s.Identity, directory)
	switch {
	case errors.Is(err, volume.ErrDirectoryReplaced):
		return f, err
	case errors.Is(err, unix.ENOENT):
		f.Unusable = fmt.Sprintf("the pool has no directory %q", directory)
	case err != nil:
		f.Unusable = err.Error()
	}
	f.Claim, err = unpublish.Claim(ctx, s.API, v.Spec.ClaimRef)
	return f, err
}

// other is another volume that has the directory, by its object or by a record.
func (s *survey) other(directory, name string) string {
	if pv := s.recorded[directory]; pv != "" && pv != name {
		return pv
	}
	for _, pv := range s.claimants[directory] {
		if pv != name {
			return pv
		}
	}
	return ""
}
