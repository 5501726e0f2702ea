package main

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/claimindex"
)

// What the daemon logs when it begins to read claims by their label, and when it reads all again.
const (
	byLabel   = "claims are read by the label"
	allClaims = "all claims of the cluster are read"
)

// idle is a mutation that changes nothing, in the place of the policy's own.
const idle = `[{"op":"replace","path":"/spec/mutations/0/jsonPatch/expression","value":"[JSONPatch{op: \"test\", path: \"/kind\", value: \"PersistentVolumeClaim\"}]"}]`

// indexed has the API server label claims, and takes that away in each way while claims come and go and the daemon's requests
// fail.
func (e *environment) indexed(ctx context.Context) {
	admission := e.Cluster.Client().AdmissionregistrationV1()
	label := func() { e.Must(e.Cluster.Apply(ctx, []byte(claimindex.Manifest)), "applying the policy") }
	label()
	e.recast(ctx, e.opt.daemon) // it looks for a policy every ten minutes
	for i, end := range []func() error{
		func() error {
			return admission.MutatingAdmissionPolicyBindings().Delete(ctx, claimindex.Name, metav1.DeleteOptions{})
		},
		func() error {
			_, err := admission.MutatingAdmissionPolicies().Patch(ctx, claimindex.Name, types.JSONPatchType, []byte(idle), metav1.PatchOptions{})
			return err
		},
		func() error {
			return admission.MutatingAdmissionPolicies().Delete(ctx, claimindex.Name, metav1.DeleteOptions{})
		},
	} {
		e.logged(ctx, byLabel, i+1)
		e.pass(ctx, time.Second)
		e.faults.set(misery)
		e.Must(end(), "ending the index")
		e.pass(ctx, e.opt.time/6)
		if i == 1 {
			e.Must(admission.MutatingAdmissionPolicies().Delete(ctx, claimindex.Name, metav1.DeleteOptions{}), "removing the changed policy")
		}
		label()
		e.faults.set(fair)
	}
	e.logged(ctx, byLabel, 4)
	e.logged(ctx, allClaims, 3)
	e.Must(admission.MutatingAdmissionPolicies().Delete(ctx, claimindex.Name, metav1.DeleteOptions{}), "removing the policy")
}

// logged waits until the daemon's log has a text so often.
func (e *environment) logged(ctx context.Context, text string, times int) {
	is := func() bool { return strings.Count(e.Log(), text) >= times }
	if e.until(ctx, is); !is() && ctx.Err() == nil {
		e.Fatalf("the daemon did not log %q %d times within %s", text, times, e.opt.settle)
	}
}
