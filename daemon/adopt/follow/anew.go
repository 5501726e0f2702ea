package follow

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Make is the action for a recorded volume that has no object: one is made from its record. Claim
// is the one for a volume whose object waits for a claim that there is not: the claim is made.
const (
	Make  plan.Action = "make"
	Claim plan.Action = "claim"
)

// AnewOptions are one pool, whose volumes have no objects in this cluster.
type AnewOptions struct {
	Options
	Claims  bool              // make the claims, too
	Classes map[string]string // by their names in the records: what they are called here
	// Own makes the pool this cluster's, if it is not.
	Own func(ctx context.Context) error
	// CreateClaim makes a claim, unless there is one.
	CreateClaim func(ctx context.Context, claim *corev1.PersistentVolumeClaim) error
}

// AnewFacts is everything that the decision about one recorded volume depends on.
type AnewFacts struct {
	plan.Self
	Pool   plan.Pool
	Record record.Record
	Volume *corev1.PersistentVolume      // the object of the name
	Claim  *corev1.PersistentVolumeClaim // the claim of the recorded name
	Intent *Intent                       // of the record
	Broken string                        // why the intent cannot be read
	Claims bool
}

var anewRules = []func(AnewFacts) (plan.Verdict, bool){
	anewBroken, anewBegun, anewThere, anewLeft, anewReplaced, anewNotServed, anewForeignClaim,
}

// ForAnew decides whether a recorded volume gets an object, or its claim.
func ForAnew(f AnewFacts) plan.Verdict {
	return plan.Decide(anewRules, f, plan.Verdict{Action: Make})
}

func anewBroken(f AnewFacts) (plan.Verdict, bool) {
	return plan.Verdict{Action: plan.Refuse, Message: f.Broken}, f.Broken != ""
}

// anewBegun: an earlier call noted what is to be made.
func anewBegun(f AnewFacts) (plan.Verdict, bool) {
	return plan.Verdict{Action: Finish}, f.Intent != nil
}

// anewThere: the volume has its object, which may wait for a claim.
func anewThere(f AnewFacts) (plan.Verdict, bool) {
	v := f.Volume
	if v == nil {
		return plan.Verdict{}, false
	}
	ours := v.Labels[plan.NodeLabel] == plan.NodeLabelValue(f.Node) &&
		f.Serves(v.Annotations[plan.ProvisionedBy])
	ref := v.Spec.ClaimRef
	waits := ours && ref != nil && ref.UID == "" && f.Claim == nil && f.Claims &&
		ref.Namespace == f.Record.Namespace && ref.Name == f.Record.Claim
	if waits {
		return plan.Verdict{Action: Claim}, true
	}
	return plan.Verdict{Action: plan.Ignore}, true
}

// anewLeft: an object without a claim was let go before, or the volume is on its way out or in.
func anewLeft(f AnewFacts) (plan.Verdict, bool) {
	r, v := f.Record, plan.Verdict{Action: plan.Keep}
	switch {
	case r.Kind != record.Volume, r.Unpublished:
		v.Action = plan.Ignore
	case r.Retained:
		v.Message = "its claim was deleted, and its data kept"
	case r.Place != record.InPool:
		v.Message = "it was being removed"
	default:
		return v, false
	}
	return v, true
}

func anewReplaced(f AnewFacts) (plan.Verdict, bool) {
	v := plan.Verdict{Action: plan.Refuse,
		Message: "it was adopted from a CSI driver: adopt makes its object"}
	return v, f.Record.Replaced != ""
}

func anewNotServed(f AnewFacts) (plan.Verdict, bool) {
	by := f.Record.Provisioner
	return plan.Verdict{Action: plan.Refuse, Message: fmt.Sprintf(
		"its provisioner is %s, which is neither this daemon's nor one of its aliases", by),
	}, by != "" && !f.Serves(by)
}

// anewForeignClaim: a claim that neither was the volume's nor names it has another volume, or
// waits for one. Nothing of the record is its own.
func anewForeignClaim(f AnewFacts) (plan.Verdict, bool) {
	c := f.Claim
	own := c == nil || c.Spec.VolumeName == f.Record.PV ||
		string(c.UID) == f.Record.ClaimUID && c.Spec.VolumeName == ""
	return plan.Verdict{Action: plan.Refuse, Message: "a claim of the name is there, and is not " +
		"its own"}, !own
}

// FromRecord is the object of a recorded volume. What a record does not have, the access modes, its
// claim says, and without one ReadWriteOnce is right.
func FromRecord(f AnewFacts, classes map[string]string, hostname string) *corev1.PersistentVolume {
	r := f.Record
	by, mode := cmp.Or(r.Provisioner, f.Provisioner), corev1.PersistentVolumeFilesystem
	pool := f.Pool
	pool.Source = r.Source
	at := pool.Path + "/" + r.Directory
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: r.PV, Labels: plan.VolumeLabels(pool, f.Node),
			Annotations: map[string]string{plan.ProvisionedBy: by},
			Finalizers:  []string{plan.Finalizer}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    sized(r),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:  &mode, StorageClassName: classOf(r, classes),
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1",
				Namespace: r.Namespace, Name: r.Claim},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimPolicy(
				cmp.Or(r.Reclaim, string(corev1.PersistentVolumeReclaimDelete))),
			PersistentVolumeSource: plan.VolumeSource(pool, at),
			NodeAffinity:           plan.NodeAffinity(hostname),
		},
	}
	if r.Source == plan.SourceCSI {
		v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: by, VolumeHandle: r.PV,
				VolumeAttributes: map[string]string{
					plan.AttributePool: pool.Name, plan.AttributePath: at}}}
	}
	if c := f.Claim; c != nil {
		v.Spec.ClaimRef.UID, v.Spec.AccessModes = c.UID, c.Spec.AccessModes
		v.Spec.StorageClassName = plan.ClassName(c)
	}
	return v
}

func sized(r record.Record) corev1.ResourceList {
	size := resource.NewQuantity(r.Requested, resource.BinarySI)
	return corev1.ResourceList{corev1.ResourceStorage: *size}
}

func classOf(r record.Record, classes map[string]string) string {
	return cmp.Or(classes[r.Class], r.Class)
}

// claimFor is the claim that a volume's object waits for.
func claimFor(v *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	class := v.Spec.StorageClassName
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Spec.ClaimRef.Namespace, Name: v.Spec.ClaimRef.Name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: v.Spec.AccessModes, StorageClassName: &class, VolumeName: v.Name,
			Resources: corev1.VolumeResourceRequirements{Requests: v.Spec.Capacity},
		},
	}
}

// Anew has an object made of each recorded volume that has none. What is to be made is in the
// records before the pool is this cluster's: until then no daemon works in it, and after that none
// undoes what has an intent. Each step that was cut off is done by the next call.
func Anew(ctx context.Context, o AnewOptions) (rows []Row, err error) {
	s := &survey{Options: o.Options, told: true}
	if s.hostname, err = s.hostnameOf(ctx); err != nil {
		return nil, err
	}
	inventory, err := o.Store.List(ctx, o.Identity)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(inventory.Volumes, func(a, b record.Record) int {
		return cmp.Compare(a.PV, b.PV)
	})
	for _, r := range inventory.Volumes {
		if row, err := s.intends(ctx, o, r); row.Action != plan.Ignore {
			if err != nil {
				row.Action, row.Message = plan.Refuse, err.Error()
			}
			rows = append(rows, row)
		}
		if ctx.Err() != nil {
			return rows, context.Cause(ctx)
		}
	}
	if o.DryRun {
		return rows, nil
	}
	if err := o.Own(ctx); err != nil {
		return rows, err
	}
	for i, row := range rows {
		if row.Action != Make && row.Action != Finish && row.Action != Claim {
			continue
		}
		if err := s.makes(ctx, o, row.Name); err != nil {
			rows[i].Action, rows[i].Message = plan.Refuse, err.Error()
		}
	}
	return rows, ctx.Err()
}

// intends decides about one record, and notes in it what is to be made.
func (s *survey) intends(ctx context.Context, o AnewOptions, r record.Record) (Row, error) {
	row := Row{Name: r.PV, Of: r.Namespace + "/" + r.Claim, Action: plan.Refuse}
	if r.Kind != record.Volume {
		row.Action = plan.Ignore
		return row, nil
	}
	f := AnewFacts{Self: o.Self, Pool: o.Pool, Record: r, Claims: o.Claims}
	var err error
	if f.Volume, err = s.API.GetVolume(ctx, r.PV); err != nil {
		return row, err
	}
	if f.Claim, err = s.API.GetClaim(ctx, r.Namespace, r.Claim); err != nil {
		return row, err
	}
	if f.Intent, err = decode(r.Moving); err != nil {
		f.Broken = err.Error()
	}
	v := ForAnew(f)
	row.Action, row.Message = v.Action, v.Message
	if v.Action != Make {
		return row, nil
	}
	i := Intent{Claimed: f.Claim != nil, Object: FromRecord(f, o.Classes, s.hostname)}
	if err := s.API.CheckVolume(ctx, i.Object); err != nil || s.DryRun {
		return row, err
	}
	text, err := i.encode()
	if err != nil {
		return row, err
	}
	return row, s.Store.Moving(ctx, s.Identity, r.PV, text)
}

// makes makes what the record intends, and the claim that the object waits for. The claim comes
// last: one that names a volume that there is not is Lost.
func (s *survey) makes(ctx context.Context, o AnewOptions, pv string) error {
	r, unreadable, err := volume.Found(s.Store.Lookup(ctx, s.Identity, pv))
	switch {
	case err != nil:
		return err
	case r == nil:
		return fmt.Errorf("its record is gone, or cannot be read: %s", unreadable)
	}
	i, err := s.intended(*r)
	if err == nil && i != nil {
		err = s.finish(ctx, pv, *i)
	}
	if err != nil || !o.Claims {
		return err
	}
	now, err := s.API.GetVolume(ctx, pv)
	if err != nil || now == nil || now.Spec.ClaimRef == nil {
		return err
	}
	return o.claims(ctx, now)
}

// claims makes the claim that a volume's object waits for. Kubernetes binds one that came meanwhile
// to it. If that one was deleted, the object is Released, and the claim that was asked for does not
// exist. A slow kube-controller-manager binds to claims that were deleted before the object was
// made (pkg/controller/volume/persistentvolume, pv_controller.go, syncUnboundClaim: from its cache).
func (o AnewOptions) claims(ctx context.Context, v *corev1.PersistentVolume) error {
	ref := v.Spec.ClaimRef
	there, err := o.API.GetClaim(ctx, ref.Namespace, ref.Name)
	switch {
	case err != nil:
		return err
	case there != nil && there.DeletionTimestamp != nil:
		return fmt.Errorf("claim %s/%s of PersistentVolume %s is being deleted: call this again "+
			"once it is gone", ref.Namespace, ref.Name, v.Name)
	case ref.UID != "" && (there == nil || there.UID != ref.UID):
		return fmt.Errorf("PersistentVolume %s was bound to a claim %s/%s that was deleted "+
			"meanwhile: call this again once it is gone, or its spec.claimRef.uid is removed",
			v.Name, ref.Namespace, ref.Name)
	case there != nil:
		return nil
	}
	return o.CreateClaim(ctx, claimFor(v))
}
