package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// publish creates the object for a directory that was made.
func (c *claims) publish(
	ctx context.Context, f plan.ClaimFacts, pv *corev1.PersistentVolume,
) (time.Duration, error) {
	w := c.workers[f.Pool.Name]
	existing, err := c.API.CreateVolume(ctx, pv)
	if err != nil {
		return 0, err
	}
	if existing != nil {
		if plan.MadeElsewhere(existing, pv) {
			c.Log.Info("another node made the claim's volume",
				"claim", f.Claim.Namespace+"/"+f.Claim.Name, "volume", pv.Name)
			c.abandon(string(f.Claim.UID))
			return time.Minute, nil
		}
		if difference := plan.Same(existing, pv); difference != "" {
			return c.nameTaken(w, f, difference), nil
		}
	}
	took := c.inFlight.published(string(f.Claim.UID))
	c.Metrics.Claim(w.Name, plan.ReasonProvisioningSucceeded, took)
	c.reportClaim(f.Claim, plan.Verdict{Action: plan.Provision, Reason: plan.ReasonProvisioningSucceeded,
		Message: fmt.Sprintf("volume %s is %s%s", pv.Name, whereOf(f), c.copies.takeNotes(f))}, w.Name)
	c.pods.waiting.Drop(f.Claim.Namespace, string(f.Claim.UID))
	c.pods.end(string(f.Claim.UID))
	return c.inFlight.awaited(string(f.Claim.UID)), nil // it is looked at once more whether the object is there
}

func whereOf(f plan.ClaimFacts) string {
	switch f.Pool.Scope {
	case plan.ScopeShared: // which nodes have it mounted, no daemon knows
		return "in shared pool " + f.Pool.Name + ", for pods on each node that has it"
	case plan.ScopeEveryNode:
		return "on every node in pool " + f.Pool.Name
	default:
		return "on node " + f.Node + " in pool " + f.Pool.Name
	}
}

// nameTakenAgain is when a claim is tried again whose volume's name is taken. No watch brings the
// end of an object without our labels.
const nameTakenAgain = 10 * time.Second

// nameTaken: the object of our name is not the one that this node would make. It may be for the
// same claim, of a node that has the same filesystem mounted, so that the directory may be in a
// pod: what was made here stays for as long as the object does, and then goes by its record.
func (c *claims) nameTaken(w *poolWorker, f plan.ClaimFacts, difference string) time.Duration {
	c.inFlight.published(string(f.Claim.UID))
	c.reportClaim(f.Claim, plan.Verdict{Action: plan.Refuse, Reason: plan.ReasonNameTaken,
		Message: fmt.Sprintf("a volume %s exists already and is not this node's: %s", plan.VolumeName(f.Claim), difference)}, w.Name)
	return nameTakenAgain
}
