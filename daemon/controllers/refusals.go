package controllers

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// Refused returns how much the API server refuses again and again of what this daemon asks for, and
// the first of it.
func (c *frame) Refused(most int) (count int, first []report.Refusal) {
	return c.refusals.Lasting(most)
}

// EventWritten notes whether an event about an object was written.
func (c *frame) EventWritten(ref corev1.ObjectReference, err error) {
	c.refusals.Note(report.AboutEvents(ref), err)
}

// EventLost notes that an event about an object is given up, and logs why unless that is nil.
func (c *frame) EventLost(ref corev1.ObjectReference, err error) {
	c.refusals.Forget(report.AboutEvents(ref))
	if err != nil && c.said.New("lost events", err.Error()) && c.mayWarn(ref.Namespace) {
		c.Log.Warn("an event was not written: "+err.Error(), "reason", plan.ReasonAPIRefused)
	}
}

// OptionalRequest notes how a request ended that is about this node, and that nothing waits for.
func (c *frame) OptionalRequest(what string, err error) {
	c.refusals.Note(report.About{What: what, Refs: []corev1.ObjectReference{report.Node(c.Node)},
		Optional: true}, err)
}

// NodeRequest notes how a request ended that is about this node.
func (c *frame) NodeRequest(what string, err error) {
	c.refusals.Note(report.About{What: what,
		Refs: []corev1.ObjectReference{report.Node(c.Node)}}, err)
}

func (c *frame) newRefusals() *report.Refusals {
	return &report.Refusals{Log: c.Log, Events: eventsOf{c}, Allow: c.mayWarn,
		Reachable: func() bool { return c.Listers.Claims.Watched() }}
}

// eventsOf is what the controller tells by events.
type eventsOf struct{ c *frame }

func (e eventsOf) Event(ref corev1.ObjectReference, kind, reason, message string) {
	e.c.Events.Event(ref, kind, reason, message)
}

// noteClaim notes how the work on a claim ended.
func (c *frame) noteClaim(i item, err error) {
	c.refusals.Note(report.AboutObjects(report.RecordedClaim(i.namespace, i.name, i.uid)), err)
}

// noteVolume notes how the work on a volume ended, which its claim's people may look for, too.
func (c *frame) noteVolume(name string, err error) {
	pv, watched := c.Listers.Volumes.Get(name)
	if !watched {
		pv = &corev1.PersistentVolume{}
		pv.Name = name
	}
	c.refusals.Note(report.AboutObjects(report.Volume(pv)), err)
}

// noteContent notes how the work on a VolumeSnapshotContent ended, for which its VolumeSnapshot
// waits. The policies let no event be about the content. Of success nobody is told, and nothing is
// looked up, where a copy goes on beside this (Do waits for that, and the model plays one of both).
func (c *copies) noteContent(i item, err error) {
	about := report.About{What: "VolumeSnapshotContent " + i.name}
	if err == nil {
		c.refusals.Note(about, nil)
		return
	}
	if known, is := c.Contents.Get(i.name); is {
		about.Refs = []corev1.ObjectReference{report.Snapshot(known.Spec.SnapshotRef)}
	}
	c.refusals.Note(about, err)
}
