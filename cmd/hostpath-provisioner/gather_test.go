package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/clustercheck"
)

// clusterAPI responds as an API server without policies and without a claim index, in which node-a
// is enrolled. What is refused is by the end of a path; a right is there unless it is in lacks.
type clusterAPI struct {
	refuse map[string]refusal
	lacks  map[string]bool // VERB RESOURCE[/SUBRESOURCE]
	has    map[string]string
}

type refusal struct {
	code            int
	reason, message string
}

func (c clusterAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for end, is := range c.refuse {
		if strings.HasSuffix(r.URL.Path, end) {
			refusing(is.code, is.reason, is.message)(w, r)
			return
		}
	}
	for end, object := range c.has {
		if strings.HasSuffix(r.URL.Path, end) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, object)
			return
		}
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		c.review(w, r.Body)
	default: // with the name, as the API server has it; without one the client takes it for a proxy's
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "details": {"name": %q}}`, path.Base(r.URL.Path))
	}
}

func (c clusterAPI) review(w http.ResponseWriter, body io.Reader) {
	var asked struct {
		Spec struct {
			ResourceAttributes struct{ Verb, Resource, Subresource string }
		}
	}
	if err := json.NewDecoder(body).Decode(&asked); err != nil {
		refusing(http.StatusBadRequest, "BadRequest", err.Error())(w, nil)
		return
	}
	a := asked.Spec.ResourceAttributes
	right := strings.TrimSuffix(a.Verb+" "+a.Resource+"/"+a.Subresource, "/")
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": {"allowed": %t}}`, !c.lacks[right])
}

func newClusterAPI() clusterAPI {
	return clusterAPI{
		refuse: map[string]refusal{},
		lacks:  map[string]bool{"get secrets": true, "create pods": true, "patch nodes": true, "delete persistentvolumeclaims": true, "patch clusterroles": true},
		has: map[string]string{
			"/version": `{"gitVersion": "v1.36.0"}`,
			"/selfsubjectreviews": `{"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1", "status": {"userInfo": {
				"username": "system:serviceaccount:hostpath-provisioner:hostpath-provisioner", "extra": {"authentication.kubernetes.io/node-name": ["node-a"]}}}}`,
			"/nodes/node-a":      `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-a", "uid": "n", "labels": {"kubernetes.io/hostname": "a"}}}`,
			"/persistentvolumes": `{"kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"name": "hostpath-provisioner-confined", "uid": "v"}}`,
		},
	}
}

// report is STATUS REASON of each check, the message of one that failed, and the exit code.
func (h *host) report(c clusterAPI) map[string]string {
	h.t.Helper()
	h.apiServer(c.ServeHTTP)
	text := h.raw("check", "--cluster", "--json")
	var is clusterChecked
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&is); err != nil {
		h.t.Fatalf("%v\n%s", err, text)
	}
	all := map[string]string{"exit": strings.TrimSpace(text[strings.LastIndex(text, "exit ")+5:])}
	for _, l := range is.Cluster {
		all[l.Check] = strings.TrimSpace(l.Status + " " + l.Reason)
		if l.Status == clustercheck.Unknown {
			all[l.Check] += " " + l.Message
		}
		if hinted := l.Hint != ""; hinted != (l.Reason != "") {
			h.t.Errorf("%s: reason %q, hint %q", l.Check, l.Reason, l.Hint)
		}
	}
	return all
}

// A request that is refused, or fails, is told where it belongs, and every other check is as it
// was.
func TestGatherFromTheCluster(t *testing.T) {
	untouched := map[string]string{"API": "ok", "token": "ok", "identity": "ok", "node": "ok", "rights": "ok", "policies": "warning NoPolicies", "parameters": "ok", "claim index": "ok", "exit": "0"}
	forbidden, failed := refusal{http.StatusForbidden, "Forbidden", "not yours"}, refusal{http.StatusInternalServerError, "InternalError", "etcd is away"}
	denied := refusal{http.StatusUnprocessableEntity, "Invalid", `ValidatingAdmissionPolicy "p" denied request`}
	for name, c := range map[string]struct {
		change func(clusterAPI)
		want   map[string]string // in place of what is untouched
	}{
		"nothing":                {func(clusterAPI) {}, nil},
		"no Node":                {func(c clusterAPI) { delete(c.has, "/nodes/node-a") }, map[string]string{"node": "wrong NodeMissing", "exit": "1"}},
		"a Node that fails":      {func(c clusterAPI) { c.refuse["/nodes/node-a"] = failed }, map[string]string{"node": "unknown read node node-a: etcd is away", "exit": "1"}},
		"a Node that is refused": {func(c clusterAPI) { c.refuse["/nodes/node-a"] = forbidden }, map[string]string{"node": "unknown read node node-a: not yours", "exit": "1"}},
		"a token of another Node": {func(c clusterAPI) {
			c.has["/selfsubjectreviews"] = strings.ReplaceAll(c.has["/selfsubjectreviews"], "node-a", "node-b")
		}, map[string]string{"identity": "wrong BoundToOtherNode", "exit": "1"}},
		"a right that lacks":              {func(c clusterAPI) { c.lacks["patch persistentvolumeclaims"] = true }, map[string]string{"rights": "wrong RightsMissing", "exit": "1"}},
		"no right to pods":                {func(c clusterAPI) { c.lacks["list pods"] = true }, map[string]string{"rights": "warning PodsUnread"}},
		"a right too many":                {func(c clusterAPI) { delete(c.lacks, "get secrets") }, map[string]string{"rights": "warning TooManyRights"}},
		"reviews that fail":               {func(c clusterAPI) { c.refuse["/selfsubjectaccessreviews"] = failed }, map[string]string{"rights": `unknown review the rights of this identity: etcd is away`, "exit": "1"}},
		"policies that are not all there": {func(c clusterAPI) { c.refuse["/persistentvolumes"] = denied }, map[string]string{"policies": "wrong PoliciesMissing", "exit": "1"}},
		"policies that read a ConfigMap": {func(c clusterAPI) {
			c.has["/validatingadmissionpolicies/events.hostpath-provisioner.hostpath-provisioner"] = `{"kind": "ValidatingAdmissionPolicy", "apiVersion": "admissionregistration.k8s.io/v1",
				"metadata": {"name": "events.hostpath-provisioner.hostpath-provisioner", "uid": "p"}, "spec": {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}}`
		}, map[string]string{"policies": "wrong PoliciesReadConfigMap", "exit": "1"}},
		"a volume that another than a policy refuses": {func(c clusterAPI) { c.refuse["/persistentvolumes"] = failed }, map[string]string{"policies": "unknown the server would not take volume hostpath-provisioner-confined: etcd is away", "exit": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			api, want := newClusterAPI(), maps.Clone(untouched)
			c.change(api)
			maps.Copy(want, c.want)
			got := newHost(t, plain).report(api)
			for check, is := range got {
				if is != want[check] {
					t.Errorf("%s: %s, want %s", check, is, want[check])
				}
			}
			if len(got) != len(want) {
				t.Errorf("%v", got)
			}
		})
	}
}
