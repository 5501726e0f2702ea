package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// apiServer is an address that responds as an API server does that refuses, or that is another
// cluster's. What a cluster does that works is in test/e2e.
func (h *host) apiServer(respond http.HandlerFunc) {
	h.t.Helper()
	server := httptest.NewServer(respond)
	h.t.Cleanup(server.Close)
	h.write("kubeconfig", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": [{"name": "c", "context": {"cluster": "c"}}], "clusters": [{"name": "c", "cluster": {"server": %q}}]}`, server.URL))
}

// refusing responds to each request as the API server does without a right, or with a token that it
// does not know.
func refusing(code int, reason, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": %q, "reason": %q, "code": %d}`, message, reason, code)
	}
}

// What an API server refuses is told in its words, and the disk is listed all the same. Nothing is
// adopted.
func TestRefusedByTheAPI(t *testing.T) {
	h, s := preparedStory(t)
	h.record("node-a", "pvc-1")
	s.says("a right that is lacking")
	h.apiServer(refusing(http.StatusForbidden, "Forbidden", `persistentvolumes is forbidden: User "x" cannot list resource "persistentvolumes"`))
	s.call("volumes", "fast")
	s.call("adopt", "fast", "--dry-run")
	s.call("adopt", "fast", "--undo")
	s.call("adopt", "fast", "--from-csi", "d")
	s.call("withdraw-capacity")
	s.says("a token that is not known")
	h.apiServer(refusing(http.StatusUnauthorized, "Unauthorized", "Unauthorized"))
	s.call("volumes", "fast")
	s.call("adopt", "fast")
	golden(t, "refused-by-the-api", s.b.String())
}

// Where nothing was configured yet, the removal of the package takes nothing back. Without a
// kubeconfig it says what is left, and how it is deleted.
func TestWithdraw(t *testing.T) {
	h := newHost(t, plain)
	const cure = "kubectl delete csistoragecapacities -A -l hostpath-provisioner/node=node-a\n"
	got := h.call("withdraw-capacity")
	if !strings.Contains(got, cure) || !strings.HasSuffix(got, "exit 1\n") {
		t.Errorf("without a kubeconfig: %s", got)
	}
	h.write("config.toml", "# nothing yet\n")
	if got := h.call("withdraw-capacity"); got != "exit 0\n" {
		t.Errorf("without a configuration: %s", got)
	}
}

// A kubeconfig of another cluster than the pool's: no volume is taken for one without an object.
func TestKubeconfigOfAnotherCluster(t *testing.T) {
	h := newHost(t, plain)
	h.call("prepare", "fast")
	h.record("node-a", "pvc-1")
	h.own("node-a", "0a1b")
	h.apiServer(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/namespaces/kube-system"):
			fmt.Fprint(w, `{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "kube-system", "uid": "2c3d"}}`)
		case r.URL.Query().Get("watch") == "":
			fmt.Fprint(w, `{"kind": "PersistentVolumeList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": []}`)
		default: // the list with the watch, which ends with a bookmark, and the watch
			fmt.Fprint(w, `{"type": "BOOKMARK", "object": {"kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}}}`+"\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})
	s := &story{h: h}
	s.call("volumes", "fast")
	s.call("adopt", "fast", "--dry-run")
	golden(t, "another-cluster", s.b.String())
}

// Words of the command line that contradict the pool are refused before the API is asked.
func TestAdoptWords(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		args   []string
		want   string
	}{
		"an empty driver":             {plain, []string{"--from-csi", ""}, "--from-csi: no driver is named\nhint: run: hostpath-provisioner adopt --help\nexit 2\n"},
		"a driver, of a shared pool":  {plain + "scope = 'shared'\n", []string{"--from-csi", "d"}, "pool \"fast\" has scope shared, and a CSI driver's volumes are one node's\nexit 1\n"},
		"undo with data of this node": {plain, []string{"--undo", "--yes-this-node-has-the-data"}, "--undo cannot be combined with --from-csi, --stopped, --released, --yes-nothing-runs-outside or --yes-this-node-has-the-data\nhint: run: hostpath-provisioner adopt --help\nexit 2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, c.config)
			if got := h.call(append([]string{"adopt", "fast"}, c.args...)...); got != "--\nhostpath-provisioner: "+c.want {
				t.Errorf("%s\nwant\n%s", got, c.want)
			}
		})
	}
}
