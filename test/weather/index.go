package weather

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// What the daemon logs when it begins to read claims by their label, and when it reads all again.
const (
	byLabel   = "claims are read by the label"
	allClaims = "all claims of the cluster are read"

	keptByLabel = "kept volumes are selected by the label"
)

// idle is a mutation that changes nothing, in the place of the policy's own.
const idle = `[{"op":"replace","path":"/spec/mutations/0/jsonPatch/expression","value":"[JSONPatch{op: \"test\", path: \"/kind\", value: \"\"}]"}]`

// indexed has the API server label claims, and takes that away in each way while claims come and go
// and the daemon's requests fail.
func (e *chaos) indexed(ctx context.Context) {
	admission := e.Cluster.Client().AdmissionregistrationV1()
	label := func() {
		e.Must(e.Cluster.Apply(ctx, []byte(claimindex.VolumesManifest+claimindex.Manifest)), "applying the policies")
	}
	label()
	e.recast(ctx, e.Binary) // it looks for a policy every ten minutes
	for i, end := range []func(policy string) error{
		func(policy string) error {
			return admission.MutatingAdmissionPolicyBindings().Delete(ctx, policy, metav1.DeleteOptions{})
		},
		func(policy string) error {
			_, err := admission.MutatingAdmissionPolicies().Patch(ctx, policy, types.JSONPatchType, []byte(idle), metav1.PatchOptions{})
			return err
		},
		func(policy string) error {
			return admission.MutatingAdmissionPolicies().Delete(ctx, policy, metav1.DeleteOptions{})
		},
	} {
		e.logged(ctx, byLabel, i+1)
		e.logged(ctx, keptByLabel, i+1)
		e.pass(ctx, time.Second)
		e.faults.set(misery)
		e.Must(end(claimindex.Name), "ending the index")
		e.Must(end(claimindex.VolumesName), "ending the index of volumes")
		e.pass(ctx, e.time/6)
		if i == 1 {
			e.remove(ctx)
		}
		label()
		e.faults.set(fair)
	}
	e.logged(ctx, byLabel, 4)
	e.logged(ctx, keptByLabel, 4)
	e.logged(ctx, allClaims, 3)
	e.remove(ctx)
}

// remove removes both policies.
func (e *chaos) remove(ctx context.Context) {
	for _, policy := range []string{claimindex.Name, claimindex.VolumesName} {
		e.Must(e.Cluster.Client().AdmissionregistrationV1().MutatingAdmissionPolicies().Delete(ctx, policy, metav1.DeleteOptions{}), "removing the policy "+policy)
	}
}

// logged waits until the daemon's log has a text so often.
func (e *chaos) logged(ctx context.Context, text string, times int) {
	is := func() bool { return strings.Count(e.Log(), text) >= times }
	if e.until(ctx, is); !is() && ctx.Err() == nil {
		e.Fatalf("the daemon did not log %q %d times within %s", text, times, harness.Timeout)
	}
}
