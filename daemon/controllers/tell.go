package controllers

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// reportClaim tells a verdict once, in the same words, to the claim, the log and the metric. It is
// left out, which is false, if there was too much to say of the namespace.
func (c *frame) reportClaim(claim *corev1.PersistentVolumeClaim, v plan.Verdict, pool string) bool {
	if v.Reason == "" || !c.said.New(string(claim.UID), v.Reason+" "+v.Message) {
		return true
	}
	if v.Action != plan.Provision && !c.mayWarn(claim.Namespace) {
		c.said.Retract(string(claim.UID))
		return false
	}
	kind := corev1.EventTypeWarning
	switch {
	case v.Action == plan.Provision:
		kind = corev1.EventTypeNormal
		c.Log.Info(v.Message, "reason", v.Reason, "claim", claim.Namespace+"/"+claim.Name, "volume", plan.VolumeName(claim), "pool", pool)
	case v.Reason == plan.ReasonPopulator: // another controller's work, and nothing is wrong
		kind = corev1.EventTypeNormal
		c.Log.Info(v.Message, "reason", v.Reason, "claim", claim.Namespace+"/"+claim.Name)
	default:
		c.Metrics.Claim(pool, v.Reason, 0)
		c.Log.Warn(v.Message, "reason", v.Reason, "claim", claim.Namespace+"/"+claim.Name, "pool", pool)
	}
	c.Events.Event(report.Claim(claim), kind, v.Reason, v.Message)
	return true
}

// tellClaim is reportClaim that returns when to look at the claim again.
func (c *frame) tellClaim(claim *corev1.PersistentVolumeClaim, v plan.Verdict, pool string) time.Duration {
	if !c.reportClaim(claim, v, pool) {
		return report.LimitedRetry
	}
	return c.lookAgainAfter(string(claim.UID), v)
}

// lookAgainAfter returns when to look again at the claim or volume with this UID, about which a
// verdict was reported: sooner than the verdict asks for if its message is held.
func (c *frame) lookAgainAfter(uid string, v plan.Verdict) time.Duration {
	if held := c.said.Held(uid); held > 0 && v.Reason != "" && (v.After == 0 || held < v.After) {
		return held
	}
	return v.After
}

// warnOnce logs an error of what is done in a pool, unless that was done lately.
func (c *frame) warnOnce(what, pool string, err error, doing string) {
	if c.said.New(what+"/"+pool, err.Error()) {
		c.Log.Warn(err.Error(), "pool", pool, "doing", doing)
	}
}

// mayWarn reports whether a warning about an object of a namespace may be written now, and logs
// that some are not.
func (c *frame) mayWarn(namespace string) bool {
	allowed, logIt := c.limiter.Allow(namespace, time.Now())
	if logIt {
		c.Log.Warn("there is too much to say about claims of one namespace: some of it is said later", "namespace", namespace)
	}
	return allowed
}

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
	return &report.Refusals{Log: c.Log, Events: c.Events, Allow: c.mayWarn,
		Reachable: func() bool { return c.Listers.Claims.Watched() }}
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
