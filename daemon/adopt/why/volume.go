package why

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// volumeFacts are what the API says of a volume.
type volumeFacts struct {
	*corev1.PersistentVolume
	ours  bool
	node  node // whose disk it is on, the zero value where nodes share it
	claim *corev1.PersistentVolumeClaim
}

var volumeRules = []func(f volumeFacts) (waits, bool){
	volumeOfOther, volumeOfLostNode, volumeDeleted, volumeKept, volumeReleased,
}

// volume is the page of a volume.
func (a *asker) volume(ctx context.Context, name string) (Page, error) {
	v, err := a.GetVolume(ctx, name)
	switch {
	case err != nil:
		return Page{}, err
	case v == nil:
		return Page{}, NotFoundError{"volume " + name}
	}
	f := volumeFacts{PersistentVolume: v, ours: a.Serves(v.Annotations[plan.ProvisionedBy])}
	if f.ours {
		f.node = a.nodeOf(ctx, v.Labels[plan.NodeLabel])
	}
	if ref := v.Spec.ClaimRef; ref != nil && v.DeletionTimestamp != nil {
		claim, err := a.GetClaim(ctx, ref.Namespace, ref.Name)
		if a.seen("claims", err) && claim != nil && claim.UID == ref.UID {
			f.claim = claim
		}
	}
	page := Page{Object: "volume " + name, State: f.state(), on: f.node.name}
	page.Events = a.events(ctx, v)
	w := plan.Decide(volumeRules, f, waits{})
	page.Waits, page.Help = w.what, w.help
	return page, nil
}

func (f volumeFacts) state() string {
	text := fmt.Sprintf("%s, %s, policy %s", f.Status.Phase, f.Spec.Capacity.Storage(),
		f.Spec.PersistentVolumeReclaimPolicy)
	if pool := f.Labels[plan.PoolLabel]; pool != "" {
		text += ", in pool " + words.Name(pool)
	}
	if f.node.name != "" {
		text += " of node " + words.Name(f.node.name)
	}
	if scope := f.Labels[plan.ScopeLabel]; scope != "" {
		text += ", of scope " + words.Name(scope)
	}
	return text
}

func volumeOfOther(f volumeFacts) (waits, bool) {
	by := f.Annotations[plan.ProvisionedBy]
	if by == "" {
		return waits{}, !f.ours
	}
	return waits{what: "provisioner " + words.Quoted(by) + ", which is none of ours"},
		!f.ours && f.DeletionTimestamp != nil
}

// volumeOfLostNode: whatever it waits for, only that node's daemon does it.
func volumeOfLostNode(f volumeFacts) (waits, bool) {
	return waits{f.node.String(), f.node.lost()},
		f.node.gone || f.node.name != "" && !f.node.ready && !f.node.unknown
}

func volumeDeleted(f volumeFacts) (waits, bool) {
	if f.claim != nil {
		return waits{what: fmt.Sprintf("its claim %s/%s, which still exists: it is removed after "+
			"that", f.claim.Namespace, f.claim.Name)}, true
	}
	return f.removal(finalizers(f.Finalizers)), f.DeletionTimestamp != nil
}

// removal is what waits for whoever removes a volume's data.
func (f volumeFacts) removal(why string) waits {
	if f.node.name == "" {
		return waits{"a daemon that can work in its pool: " + why,
			"on a node that has the pool: hostpath-provisioner status"}
	}
	return waits{f.node.String() + ": " + why, f.node.help()}
}

func volumeKept(f volumeFacts) (waits, bool) {
	return waits{
			"nobody: its claim is gone, and its policy keeps it",
			"kubectl delete pv " + f.Name + " keeps the data on the disk; to remove that, too: " +
				"kubectl patch pv " +
				f.Name + ` -p '{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}'`,
		}, f.Status.Phase == corev1.VolumeReleased &&
			f.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
}

func volumeReleased(f volumeFacts) (waits, bool) {
	return f.removal("its claim is gone, and it must be removed"),
		f.Status.Phase == corev1.VolumeReleased || f.Status.Phase == corev1.VolumeFailed
}
