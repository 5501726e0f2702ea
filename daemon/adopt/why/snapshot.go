package why

import (
	"context"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// snapshot is the page of a VolumeSnapshot.
func (a *asker) snapshot(ctx context.Context, namespace, name string) (Page, error) {
	s, err := a.GetSnapshot(ctx, namespace, name)
	switch {
	case err != nil:
		return Page{}, err
	case s == nil:
		return Page{}, NotFoundError{"snapshot " + namespace + "/" + name}
	}
	page := Page{Object: "snapshot " + namespace + "/" + name, State: "not ready",
		Events: a.events(ctx, s)}
	if s.Status != nil && s.Status.ReadyToUse != nil && *s.Status.ReadyToUse {
		page.State = "ready"
		return page, nil
	}
	if s.Status == nil || s.Status.BoundContent == nil {
		page.Waits = "the snapshot-controller, which makes a VolumeSnapshotContent"
		if s.Spec.Source.Claim != nil {
			page.Waits += " once claim " + words.Name(*s.Spec.Source.Claim) + " is bound"
		}
		page.Help = "kubectl get pods -A | grep snapshot-controller; " +
			"docs/snapshots.md says how to install it"
		return page, nil
	}
	content, err := a.GetContent(ctx, *s.Status.BoundContent)
	if !a.seen("snapshot contents", err) {
		return page, nil
	}
	page.Waits, page.Help = a.contentWaits(ctx, *s.Status.BoundContent, content)
	return page, nil
}

func (a *asker) contentWaits(ctx context.Context, name string,
	c *snapshotapi.Content) (what, help string) {
	switch {
	case c == nil:
		return "its content " + words.Name(name) + ", which does not exist", ""
	case !a.Serves(c.Spec.Driver):
		return "driver " + words.Quoted(c.Spec.Driver) + ", which is none of ours", ""
	case c.Spec.Source.VolumeHandle == nil:
		return "a snapshot of handle " + words.Quoted(c.Handle()) + ", which a person named", ""
	}
	v, err := a.GetVolume(ctx, *c.Spec.Source.VolumeHandle)
	if !a.seen("volumes", err) || v == nil {
		return fmt.Sprintf("its volume %s, which does not exist",
			words.Name(*c.Spec.Source.VolumeHandle)), ""
	}
	n := a.node(ctx, v.Labels[plan.NodeLabel])
	if n.name == "" {
		return "a daemon that can work in the volume's pool", ""
	}
	if failure := c.Failure(); failure != "" {
		return n.String() + ": " + words.Line(failure, 600), n.help()
	}
	return n.String(), n.help()
}
