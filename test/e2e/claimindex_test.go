package e2e

import (
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

const (
	claimLabel  = "hostpath-provisioner/claim"
	claimPolicy = "hostpath-provisioner-claims"
	byLabel     = "claims are read by the label"
	allClaims   = "all claims of the cluster are read"

	volumePolicy   = "hostpath-provisioner-volumes"
	volumesByLabel = "pre-bound volumes are selected by the label"
)

// claimReads are the lists and watches of claims that passed a proxy: true if the API server
// selects by the label. looks are those of volumes that are kept for claims.
type claimReads struct {
	mu         sync.Mutex
	all, looks []bool
}

func (r *claimReads) front(server http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodGet && q.URL.Path == "/api/v1/persistentvolumeclaims" {
			r.mu.Lock()
			r.all = append(r.all, strings.HasPrefix(q.URL.Query().Get("labelSelector"), claimLabel+" in ("))
			r.mu.Unlock()
		}
		if label := q.URL.Query().Get("labelSelector"); q.Method == http.MethodGet && q.URL.Path == "/api/v1/persistentvolumes" && !q.URL.Query().Has("watch") {
			r.mu.Lock()
			if byLabel := strings.HasPrefix(label, "hostpath-provisioner/kept-for in ("); byLabel || label == "" {
				r.looks = append(r.looks, byLabel)
			}
			r.mu.Unlock()
		}
		server.ServeHTTP(w, q)
	})
}

// take returns how many there were since the last call, and how many of them by the label.
func (r *claimReads) take() (all, selected int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, is := range r.all {
		all++
		if is {
			selected++
		}
	}
	r.all = nil
	return all, selected
}

// takeLooks is take for the looks for kept volumes.
func (r *claimReads) takeLooks() (looks []bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	looks, r.looks = r.looks, nil
	return looks
}

// applyClaimIndex has the API server label claims, as an administrator does, and waits until it
// does.
func (w *environment) applyClaimIndex() {
	w.Helper()
	manifests := need(exec.CommandContext(w.Ctx, rig.Binary(), "manifests", "--claim-index").Output())(w)
	w.Must(w.Apply(w.Ctx, manifests))
	w.Must(fixture.TakeAway(w.Ctx, w.Cluster))
	w.labels(true)
}

// labels waits until the API server labels new claims, or does not.
func (w *environment) labels(want bool) {
	w.Helper()
	w.Eventually("the API server labels claims, or does not", func() bool {
		c := cluster.Claim(w.Namespace, "try", "none", "1Mi")
		got := need(w.pvcs().Create(w.Ctx, c, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))(w)
		_, is := got.Labels[claimLabel]
		return is == want
	})
}

// said waits until the daemon's log has a text so often.
func (h *host) said(text string, times int) {
	h.w.Helper()
	h.w.Eventually("the log has "+text, func() bool { return strings.Count(h.Log(), text) >= times })
}

// Where the API server labels claims the daemon reads those alone that it may have to act on; where
// that ends, all of them. No claim is missed: not one that was made before the policy, nor while it
// is gone, nor while it labels nothing.
func TestClaimIndex(t *testing.T) {
	w := ownEnvironment(t, unbound.Args...) // whose objects the policies change
	w.Since(cluster.MutatingPolicies, "MutatingAdmissionPolicy")
	h := w.newHost("a")
	reads := &claimReads{}
	h.through(w.Proxied(reads.front))
	class, here := w.Class("c", wait), annotate(selectedNode, h.node)
	h.run()
	w.made(w.claim("without", class, "1Mi", here))
	if _, selected := reads.take(); selected > 0 {
		t.Error("claims are read by a label that nothing writes")
	}
	if looks := reads.takeLooks(); len(looks) == 0 || slices.Contains(looks, true) {
		t.Errorf("kept volumes are looked for by the label that nothing writes, or not: %t", looks)
	}
	w.keptFor("kept-before", class, corev1.VolumeAvailable)
	h.stop()

	w.claim("waits", class, "1Mi") // the scheduler chooses its node later
	before := w.claim("before", class, "1Mi", here)
	w.applyClaimIndex()
	h.run()
	w.made(before)
	h.said(byLabel, 1)
	h.said(volumesByLabel, 1)
	if got := w.get("waits"); got.Labels[claimLabel] != "" || len(got.Labels) != 1 {
		t.Errorf("the labels of a claim from before the policy are %v", got.Labels)
	}
	w.annotateClaim("waits", selectedNode, h.node)
	w.made(w.get("waits"))
	reads.takeLooks()
	w.keptFor("kept-with", class, corev1.VolumeAvailable)
	for _, name := range []string{"kept-before", "kept-with"} {
		w.claim(name, class, "1Mi", here)
	}
	w.made(w.claim("with", class, "1Mi", here))
	if looks := reads.takeLooks(); len(looks) == 0 || slices.Contains(looks, false) {
		t.Errorf("volumes are looked for by the label: %t", looks)
	}
	w.Eventually("a read by the label", func() bool { _, selected := reads.take(); return selected > 0 })

	h.stop()
	reads.take()
	h.run()
	w.made(w.claim("again", class, "1Mi", here))
	if looks := reads.takeLooks(); len(looks) == 0 || slices.Contains(looks, false) {
		t.Errorf("after a restart volumes are looked for by the label: %t", looks)
	}
	if all, selected := reads.take(); all == 0 || selected != all {
		t.Errorf("after a restart %d of %d reads are by the label", selected, all)
	}

	admission := w.Client().AdmissionregistrationV1()
	w.Must(admission.MutatingAdmissionPolicyBindings().Delete(w.Ctx, claimPolicy, metav1.DeleteOptions{}))
	w.labels(false)
	w.Must(admission.MutatingAdmissionPolicyBindings().Delete(w.Ctx, volumePolicy, metav1.DeleteOptions{}))
	w.unlabelled("kept-gone", class)
	w.claim("kept-gone", class, "1Mi", here)
	w.made(w.claim("gone", class, "1Mi", here))
	if looks := reads.takeLooks(); len(looks) == 0 || looks[len(looks)-1] {
		t.Errorf("without the policy volumes are looked for by the label: %t", looks)
	}
	h.said(allClaims, 1)
	w.applyClaimIndex()
	w.made(w.claim("back", class, "1Mi", here))
	h.said(byLabel, 3)

	broken := []byte(`[{"op":"replace","path":"/spec/mutations/0/jsonPatch/expression","value":"[JSONPatch{op: \"test\", path: \"/kind\", value: \"PersistentVolumeClaim\"}]"}]`)
	need(admission.MutatingAdmissionPolicies().Patch(w.Ctx, claimPolicy, types.JSONPatchType, broken, metav1.PatchOptions{}))(w)
	w.labels(false)
	w.made(w.claim("broken", class, "1Mi", here))
	h.said(allClaims, 2)
	for _, name := range []string{"kept-before", "kept-with", "kept-gone"} {
		if _, err := w.pvs().Get(w.Ctx, "pvc-"+string(w.get(name).UID), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("claim %s, for which a volume is kept, has another one: %v", name, err)
		}
	}
}

// unlabelled keeps a volume for a claim that the API server does not label, as soon as it does not.
func (w *environment) unlabelled(claim, class string) {
	w.Helper()
	w.Eventually("the API server labels no volume", func() bool {
		pv := w.keptFor(claim, class, corev1.VolumeAvailable)
		if len(pv.Labels) > 0 {
			w.RemovesVolume(pv.Name)
		}
		return len(pv.Labels) == 0
	})
}
