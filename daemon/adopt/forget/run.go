package forget

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/unpublish"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// Done is what a call did.
type Done struct {
	Volumes, Contents, Claims, Pods, Leases int
	// Notes are what stays to be done by others.
	Notes []string
}

// Run does what was decided. A crash leaves, after
//
//	contents       nothing that the next call does not find as it found these
//	marks, events  claims with the mark, and the volumes' objects
//	volumes        claims that are Lost, with the mark that says why
//	deletion       claims that are being deleted, held by the mark's finalizer, and their pods
//	pods           the same without the pods that keep the claim, or wait for another one
//	finalizers     nothing of them
//
// Each is finished by the next call. What meets an error is told, and keeps nothing else waiting.
func (s *Survey) Run(ctx context.Context) (d Done, err error) {
	if s.Node.Action != Forget {
		return d, errors.New(s.Node.Message)
	}
	var errs []error
	for _, c := range s.contents {
		errs = append(errs, s.content(ctx, c, &d))
	}
	errs = append(errs, s.mark(ctx, &d))
	for _, v := range s.volumes {
		errs = append(errs, unpublish.Again(ctx, func() error { return s.volume(ctx, v.Name, &d) }))
	}
	errs = append(errs, s.claims(ctx, &d))
	for _, name := range s.Leases {
		errs = append(errs, s.lease(ctx, name, &d))
	}
	if s.NodeLease {
		errs = append(errs, s.API.DeleteNodeLease(ctx, s.Self.Node, ""))
	}
	errs = append(errs, s.Withdraw(ctx))
	return d, errors.Join(errs...)
}

// content removes a content. Its VolumeSnapshot stays, and is told.
func (s *Survey) content(ctx context.Context, c *snapshotapi.Content, d *Done) error {
	if c.DeletionTimestamp == nil {
		if c.Spec.SnapshotRef.UID != "" {
			s.tell(ctx, report.Snapshot(c.Spec.SnapshotRef), d,
				"node %s, which had the snapshot, does not come back: it is lost", s.Self.Node)
		}
		if err := s.API.DeleteContent(ctx, c); err != nil {
			return err
		}
	}
	return unpublish.Again(ctx, func() error {
		now, err := s.API.GetContent(ctx, c.Name)
		switch {
		case err != nil:
			return err
		case now != nil && now.UID == c.UID && now.DeletionTimestamp != nil:
			if _, err := s.API.ReleaseContent(ctx, now); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		d.Contents++
		return nil
	})
}

// mark marks the claims of all volumes that go, before the first one goes. Each was told why before
// it has the mark.
func (s *Survey) mark(ctx context.Context, d *Done) error {
	var errs []error
	for _, v := range s.volumes {
		errs = append(errs, unpublish.Again(ctx, func() error { return s.markOne(ctx, v, d) }))
	}
	return errors.Join(errs...)
}

func (s *Survey) markOne(ctx context.Context, v *corev1.PersistentVolume, d *Done) error {
	claim, err := unpublish.Claim(ctx, s.API, v.Spec.ClaimRef)
	if err != nil || claim == nil || claim.Annotations[Annotation] == s.Self.Node {
		return err
	}
	s.tell(ctx, report.Claim(claim), d, "node %s does not come back, and the data of volume %s is "+
		"lost with it: its object is removed, and the claim is Lost", s.Self.Node, v.Name)
	_, err = s.API.MarkClaim(ctx, claim, Annotation, &s.Self.Node, claim.Finalizers)
	return ignoreNotFound(err)
}

// tell writes an event. One that cannot be written keeps nothing waiting: the API server may refuse
// those of a namespace for ever.
func (s *Survey) tell(ctx context.Context, about corev1.ObjectReference, d *Done,
	format string, args ...any) {
	s.API.Event(about, corev1.EventTypeWarning, plan.ReasonNodeForgotten,
		fmt.Sprintf(format, args...))
	if err := s.API.Flush(ctx); err != nil {
		d.Notes = append(d.Notes, fmt.Sprintf("%s %s/%s was not told: %v",
			about.Kind, about.Namespace, about.Name, err))
	}
}

// volume removes a volume's object, if what it is now is still to go, and its claim has the mark.
func (s *Survey) volume(ctx context.Context, name string, d *Done) error {
	now, err := s.API.GetVolume(ctx, name)
	if err != nil || now == nil || s.ofVolume(now).Action != Forget {
		return err
	}
	claim, err := unpublish.Claim(ctx, s.API, now.Spec.ClaimRef)
	if err != nil {
		return err
	}
	if claim != nil && claim.Annotations[Annotation] != s.Self.Node {
		return fmt.Errorf("volume %s: its claim %s/%s is not marked, so that it was left",
			name, claim.Namespace, claim.Name)
	}
	if err := unpublish.Volume(ctx, s.API, now); err != nil {
		return fmt.Errorf("volume %s: %w", name, err)
	}
	d.Volumes++
	return nil
}

// claims deletes the claims that lost their volume to this call or an earlier one. Without
// Options.Claims it goes on with those that an earlier call began to delete.
func (s *Survey) claims(ctx context.Context, d *Done) error {
	marked, err := s.marked(ctx)
	errs := []error{err}
	for _, c := range marked {
		if s.Claims || c.DeletionTimestamp != nil {
			errs = append(errs, unpublish.Again(ctx, func() error {
				return s.claim(ctx, c.Namespace, c.Name, d)
			}))
		}
	}
	return errors.Join(errs...)
}

func (s *Survey) claim(ctx context.Context, namespace, name string, d *Done) error {
	c, err := s.API.GetClaim(ctx, namespace, name)
	if err != nil || c == nil {
		return err
	}
	if verdict, err := s.ofClaim(ctx, c); err != nil || verdict.Action != Forget {
		return err
	}
	if c.DeletionTimestamp == nil {
		if c, err = s.hold(ctx, c, d); err != nil {
			return ignoreNotFound(err)
		}
		if err := s.API.DeleteClaim(ctx, c); err != nil {
			return err
		}
	}
	if err := s.pods(ctx, c, d); err != nil {
		return err
	}
	now, err := s.API.GetClaim(ctx, namespace, name)
	if err != nil || now == nil || now.UID != c.UID {
		return err
	}
	if slices.ContainsFunc(now.Finalizers, isOurs) {
		left := slices.DeleteFunc(slices.Clone(now.Finalizers), isOurs)
		_, err = s.API.MarkClaim(ctx, now, Annotation, &s.Self.Node, left)
		if err := ignoreNotFound(err); err != nil {
			return err
		}
	}
	d.Claims++
	return nil
}

// hold tells a claim that it goes, and has it stay until its pods are gone.
func (s *Survey) hold(ctx context.Context, c *corev1.PersistentVolumeClaim,
	d *Done) (*corev1.PersistentVolumeClaim, error) {
	if slices.ContainsFunc(c.Finalizers, isOurs) {
		return c, nil
	}
	s.tell(ctx, report.Claim(c), d,
		"the claim's data went with node %s: the claim is deleted", s.Self.Node)
	return s.API.MarkClaim(ctx, c, Annotation, &s.Self.Node,
		append(slices.Clone(c.Finalizers), Annotation))
}

func isOurs(finalizer string) bool { return finalizer == Annotation }

// pods deletes the pods that keep a claim that is being deleted, or would wait for ever for another
// one.
func (s *Survey) pods(ctx context.Context, c *corev1.PersistentVolumeClaim, d *Done) error {
	var going []*corev1.Pod
	err := s.API.EachPod(ctx, c.Namespace, "", func(p *corev1.Pod) {
		if !slices.Contains(plan.PodClaimNames(p, len(p.Spec.Volumes)+1), c.Name) {
			return
		}
		switch v := ForPod(p, s.Self.Node); v.Action {
		case Forget:
			going = append(going, p.DeepCopy())
		case plan.Keep:
			d.Notes = append(d.Notes, fmt.Sprintf("pod %s/%s uses claim %s: %s",
				p.Namespace, p.Name, c.Name, v.Message))
		}
	})
	for _, p := range going {
		if err := s.API.DeletePod(ctx, p); err != nil {
			return err
		}
		d.Pods++
	}
	return err
}

// lease gives up a shared pool's lease in the node's name, as its daemon would have. The lease
// itself stays: it says which storage is the pool's.
func (s *Survey) lease(ctx context.Context, name string, d *Done) error {
	l, err := s.API.ReadLease(ctx, name)
	if err != nil || l == nil || leadership.NodeOf(l.Holder) != s.Self.Node {
		return err
	}
	l.Holder, l.Reporter = "", false
	now, err := s.API.WriteLease(ctx, *l)
	if err == nil && now != nil {
		d.Leases++
	}
	return err
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
