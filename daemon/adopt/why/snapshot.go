package why

import (
	"context"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// snapshotFacts are what the API says of a VolumeSnapshot.
type snapshotFacts struct {
	*snapshotapi.Snapshot
	bound   string // the name of its content, "" for none
	content *snapshotapi.Content
	unseen  bool // the content may not be read
	ours    bool
	volume  bool // the content's volume exists, or may not be read
	node    node // whose daemon works on the content, the zero value where nodes share the pool
}

var snapshotRules = []func(f snapshotFacts) (waits, bool){
	snapshotDeleted, snapshotReady, snapshotUnbound, snapshotUnseen, contentGone, contentOfOther,
	contentFailed, contentNamed, contentWithoutVolume, contentTaken,
}

// snapshot is the page of a VolumeSnapshot.
func (a *asker) snapshot(ctx context.Context, namespace, name string) (Page, error) {
	s, err := a.GetSnapshot(ctx, namespace, name)
	switch {
	case err != nil:
		return Page{}, err
	case s == nil:
		return Page{}, NotFoundError{"snapshot " + namespace + "/" + name}
	}
	f := a.snapshotFacts(ctx, s)
	page := Page{Object: "snapshot " + namespace + "/" + name, State: "not ready"}
	if f.ready() {
		page.State = "ready"
	}
	page.Events = a.events(ctx, s)
	w := plan.Decide(snapshotRules, f, waits{})
	page.Waits, page.Help = w.what, w.help
	return page, nil
}

func (a *asker) snapshotFacts(ctx context.Context, s *snapshotapi.Snapshot) snapshotFacts {
	f := snapshotFacts{Snapshot: s, volume: true}
	if s.Status == nil || s.Status.BoundContent == nil {
		return f
	}
	var err error
	f.bound = *s.Status.BoundContent
	f.content, err = a.GetContent(ctx, f.bound)
	f.unseen = !a.seen("snapshot contents", err)
	if f.content == nil {
		return f
	}
	f.ours = a.Serves(f.content.Spec.Driver)
	f.node = a.node(ctx, f.content.Annotations[plan.NodeLabel])
	if of := f.content.Spec.Source.VolumeHandle; of != nil && f.ours {
		v, err := a.GetVolume(ctx, *of)
		f.volume = !a.seen("volumes", err) || v != nil
		if v != nil && f.node.name == "" {
			f.node = a.nodeOf(ctx, v.Labels[plan.NodeLabel])
		}
	}
	return f
}

func (f snapshotFacts) ready() bool {
	return f.Status != nil && f.Status.ReadyToUse != nil && *f.Status.ReadyToUse
}

// worker is who works on a content of ours.
func (f snapshotFacts) worker() waits {
	if f.node.name == "" {
		return waits{what: "a daemon that can work in its pool"}
	}
	return waits{f.node.String(), f.node.help()}
}

func snapshotDeleted(f snapshotFacts) (waits, bool) {
	w := waits{what: "its deletion: " + finalizers(f.Finalizers)}
	if f.content != nil && f.content.DeletionTimestamp != nil && f.ours {
		by := f.worker()
		w.what += ", and its content " + words.Name(f.bound) + " waits for " + by.what
		w.help = by.help
		if failure := f.content.Failure(); failure != "" {
			w.what += ": " + words.Line(failure, 600)
		}
	}
	return w, f.DeletionTimestamp != nil
}

func snapshotReady(f snapshotFacts) (waits, bool) { return waits{}, f.ready() }

func snapshotUnbound(f snapshotFacts) (waits, bool) {
	w := waits{"the snapshot-controller, which makes a VolumeSnapshotContent",
		"kubectl get pods -A | grep snapshot-controller; docs/snapshots.md says how to install it"}
	switch from := f.Spec.Source; {
	case f.Status.Failure() != "":
		w = waits{"the snapshot-controller, which cannot: " + words.Line(f.Status.Failure(), 600),
			"docs/snapshots.md says what a snapshot needs"}
	case from.Content != nil:
		w.what = "the snapshot-controller, which binds it to content " + words.Name(*from.Content)
	case from.Claim != nil:
		w.what += " once claim " + words.Name(*from.Claim) + " is bound"
	}
	return w, f.bound == ""
}

func snapshotUnseen(f snapshotFacts) (waits, bool) {
	return waits{what: "what its content says, which this user may not read"}, f.unseen
}

func contentGone(f snapshotFacts) (waits, bool) {
	return waits{what: "its content " + words.Name(f.bound) + ", which does not exist"},
		f.content == nil
}

func contentOfOther(f snapshotFacts) (waits, bool) {
	by := words.Quoted(f.content.Spec.Driver)
	return waits{what: "driver " + by + ", which is none of ours"}, !f.ours
}

func contentFailed(f snapshotFacts) (waits, bool) {
	w := f.worker()
	w.what += ": " + words.Line(f.content.Failure(), 600)
	return w, f.content.Failure() != ""
}

func contentNamed(f snapshotFacts) (waits, bool) {
	return waits{what: "a snapshot of handle " + words.Quoted(f.content.Handle()) +
		", which a person named"}, f.content.Spec.Source.VolumeHandle == nil
}

func contentWithoutVolume(f snapshotFacts) (waits, bool) {
	if f.volume {
		return waits{}, false
	}
	of := words.Name(*f.content.Spec.Source.VolumeHandle)
	return waits{what: fmt.Sprintf("its volume %s, which does not exist", of)}, true
}

func contentTaken(f snapshotFacts) (waits, bool) { return f.worker(), true }
