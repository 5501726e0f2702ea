package e2e

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
)

// webhookDown has the API server ask a webhook whose service is down about some requests, until the
// returned function is called: each of them is refused with 500.
func (w *environment) webhookDown(rule admissionv1.Rule, condition string) (up func()) {
	w.Helper()
	l := need(net.Listen("tcp", "127.0.0.1:0"))(w)
	url := "https://" + l.Addr().String() + "/validate"
	w.Must(l.Close())
	fail, none := admissionv1.Fail, admissionv1.SideEffectClassNone
	hooks := w.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	made := createIn(w, hooks, &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "down-"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "policy-engine.example.test", FailurePolicy: &fail, SideEffects: &none,
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig:            admissionv1.WebhookClientConfig{URL: &url},
			Rules:                   []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{"*"}, Rule: rule}},
			MatchConditions:         []admissionv1.MatchCondition{{Name: "ours", Expression: condition}},
		}},
	})
	up = func() { w.Must(hooks.Delete(w.Ctx, made.Name, metav1.DeleteOptions{})) }
	w.Cleanup(func() { _ = hooks.Delete(w.Ctx, made.Name, metav1.DeleteOptions{}) })
	return up
}

func ruleOf(group, version, resource string) admissionv1.Rule {
	return admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{version},
		Resources: []string{resource}}
}

const byWebhook = `failed calling webhook "policy-engine.example.test"`

// toldOf waits until an object was told by an event that the API server refuses its requests, with
// the webhook's error.
func (w *environment) toldOf(o metav1.Object, words string) {
	w.Helper()
	w.Eventually(o.GetName()+" is told "+words, func() bool {
		events := listIn(w, w.Client().CoreV1().Events(""),
			metav1.ListOptions{FieldSelector: "reason=APIRefused,involvedObject.name=" + o.GetName()})
		for _, e := range events.Items {
			if strings.Contains(e.Message, words) && (o.GetUID() == "" || e.InvolvedObject.UID == o.GetUID()) {
				return true
			}
		}
		return false
	})
}

// refuses reads the status: what of it is refused, and whether the command said that all is well.
func (h *host) refuses() (objects string, well bool) {
	h.w.Helper()
	out, code := h.Call("status", "--json")
	var s daemon.Status
	h.w.Must(json.Unmarshal([]byte(out), &s))
	for _, one := range s.Refused {
		if one.What == "the capacity for the scheduler" { // the manifests here do not give that right
			continue
		}
		objects += one.What + "; "
	}
	if s.API != "" || !s.Ready {
		h.w.Errorf("status: %s", s.Sentence)
	}
	return objects, code == 0
}

// A policy engine is down, and each request about volumes is refused with 500. What waits is told
// so: a new claim, one that grows and a volume that goes; the log and the status say it, too. All
// of it goes on when the engine is up.
func TestWebhookDown(t *testing.T) {
	w, h := running(t)
	class := w.Class("c", immediate, fixture.Expandable)
	w.claim("grows", class, "1Mi")
	goes := w.bound("goes", class, "1Mi")
	w.Bound("grows")
	up := w.webhookDown(ruleOf("", "v1", "persistentvolumes"),
		`(object == null ? oldObject : object).metadata.annotations["pv.kubernetes.io/provisioned-by"] == "`+w.Provisioner+`"`)

	made := w.claim("made", class, "1Mi")
	w.Must(w.Request("grows", "2Mi"))
	w.DeleteClaim("goes")
	w.toldOf(made, byWebhook)
	w.toldOf(w.get("grows"), byWebhook)
	w.toldOf(goes, byWebhook)
	w.Eventually("the status has all three", func() bool {
		objects, well := h.refuses()
		return !well && strings.Contains(objects,
			"claim "+w.Namespace+"/made;") && strings.Contains(objects, "claim "+w.Namespace+"/grows;") &&
			strings.Contains(objects, "volume "+goes.Name+";")
	})
	h.logged().Says("policy-engine.example.test")

	up()
	w.Bound("made")
	w.Sized("grows", "2Mi")
	w.Must(w.WaitVolumeGone(w.Soon(), goes.Name))
	w.Eventually("the status has nothing", func() bool {
		objects, well := h.refuses()
		return objects == "" && well
	})
}

// The lease of a shared pool is refused with 500: the node is told.
func TestWebhookDownForLeases(t *testing.T) {
	w := newEnvironment(t)
	up := w.webhookDown(ruleOf("coordination.k8s.io", "v1", "leases"), `object != null && object.metadata.name == "fast.`+w.Provisioner+`"`)
	h := w.sharedBy([]string{"a"})[0].host.run()
	w.toldOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.node}}, byWebhook)
	w.Eventually("the status has the lease", func() bool {
		objects, well := h.refuses()
		return objects == "the lease of pool fast; " && !well
	})
	w.claim("data", w.Class("c", immediate), "1Mi")
	up()
	w.Bound("data")
}

// Events of one namespace are refused with 500: claims of another one are told, and the daemon is
// well. When they are taken again the first claim is told, too.
func TestWebhookDownForEvents(t *testing.T) {
	w, h := running(t)
	other := need(w.NewNamespace(w.Ctx, "e2e-other"))(w)
	up := w.webhookDown(ruleOf("", "v1", "events"), `request.namespace == "`+w.Namespace+`"`)
	class := w.Class("c", immediate, fixture.Parameters("pool", "none"))
	silent := w.claim("silent", class, "1Mi")
	w.Eventually("the status has the event", func() bool {
		objects, well := h.refuses()
		return well && objects == "events of claim "+w.Namespace+"/silent; "
	})
	told := createIn(w, w.Client().CoreV1().PersistentVolumeClaims(other), cluster.Claim(other, "told", class, "1Mi"))
	w.refused(told, "UnknownPool")
	if objects, well := h.refuses(); !well || objects != "events of claim "+w.Namespace+"/silent; " {
		t.Errorf("the status has %q, and all is well: %t", objects, well)
	}
	up()
	w.refused(silent, "UnknownPool")
}

// What is between a daemon and the API server responds with a success and has not passed the
// request on. The claim is told of a response without the object, and gets its volume later; also
// where the response has an object that was never stored.
func TestSuccessesOfAProxy(t *testing.T) {
	w, h, door := hostBehindDoor(t)
	h.run()
	class := w.Class("c", immediate)
	for name, respond := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"page": func(rw http.ResponseWriter, _ *http.Request) bool {
			_, _ = rw.Write([]byte("<html>welcome</html>"))
			return true
		},
		"nothing": func(rw http.ResponseWriter,
			_ *http.Request) bool {
			rw.WriteHeader(http.StatusNoContent)
			return true
		},
		"unstored": func(_ http.ResponseWriter, r *http.Request) bool {
			query := r.URL.Query()
			query.Set("dryRun", metav1.DryRunAll)
			r.URL.RawQuery = query.Encode()
			return false
		},
	} {
		answered := make(chan struct{}, 1000)
		door.on(http.MethodPost, volumesAt, func(rw http.ResponseWriter, r *http.Request) bool {
			select {
			case answered <- struct{}{}:
			default:
			}
			return respond(rw, r)
		})
		claim := w.claim(name, class, "1Mi")
		if name == "unstored" {
			fixture.Receive(w.Environment, answered, "the request")
		} else {
			w.toldOf(claim, "does not have the object pvc-"+string(claim.UID))
		}
		door.instead(func(http.ResponseWriter, *http.Request) bool { return false })
		w.Bound(name)
	}
}
