package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// listing responds to lists and watches of volumes with none, and has one named volume, which no
// label tells.
func listing(name, uid string, asked *atomic.Int32, labels ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		wanted := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		switch {
		case wanted == "kube-system":
			fmt.Fprint(w, `{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "kube-system", "uid": "0a1b"}}`)
		case wanted == "pvc-refused":
			refusing(http.StatusForbidden, "Forbidden", "not this one")(w, r)
		case wanted == name:
			asked.Add(1)
			fmt.Fprintf(w, `{"kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"name": %[1]q, "uid": "of-%[1]s", "labels": {%[3]s}},
				"spec": {"claimRef": {"namespace": "shop", "name": "data", "uid": %[2]q}}, "status": {"phase": "Bound"}}`, name, uid, strings.Join(labels, ", "))
		case wanted != "persistentvolumes":
			asked.Add(1)
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
				"code": 404, "details": {"name": %q}}`, wanted)
		case r.URL.Query().Get("watch") == "":
			fmt.Fprint(w, `{"kind": "PersistentVolumeList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": []}`)
		default:
			fmt.Fprint(w, `{"type": "BOOKMARK", "object": {"kind": "PersistentVolume", "apiVersion": "v1", "metadata":
				{"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}}}`+"\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}
}

// Each record that no listed object is of is asked for by its name: what has an object is
// what that says, what has none is orphaned, and what could not be asked for is not known.
func TestVolumesByName(t *testing.T) {
	h := newHost(t, plain)
	h.call("prepare", "fast")
	for i := range 40 { // more than are asked for at once
		h.record("node-a", fmt.Sprintf("pvc-%02d", i))
	}
	h.record("node-a", "pvc-refused")
	h.own("node-a", "0a1b")
	var asked atomic.Int32
	h.apiServer(listing("pvc-07", "u-pvc-07", &asked))
	out := h.call("volumes", "fast")
	for line, n := range map[string]int{"orphaned\n": 39, "bound (not watched)\n": 1, "unknown\n": 1} {
		if got := strings.Count(out, line); got != n {
			t.Errorf("%d times %q, want %d", got, line, n)
		}
	}
	if asked.Load() != 2*40 { // what is orphaned is so at a second look, too
		t.Errorf("%d requests", asked.Load())
	}
	for _, warning := range []string{"whether volume pvc-refused has a PersistentVolume is not known", "finds it: 1; see LabelsMissing"} {
		if strings.Count(out, warning) != 1 {
			t.Errorf("no warning %q:\n%s", warning, out)
		}
	}
	if json := h.call("volumes", "fast", "--json"); strings.Count(json, `"unwatched": true`) != 1 {
		t.Errorf("%s", json)
	}
}

// A bound volume of a disk that came from another node is told as that node's, with the command that
// takes it over: who reads "orphaned" removes it.
func TestVolumeOfAnotherNode(t *testing.T) {
	h := newHost(t, plain)
	h.call("prepare", "fast")
	h.record("node-b", "pvc-a")
	h.record("node-b", "pvc-b")
	h.own("node-a", "0a1b")
	var asked atomic.Int32
	h.apiServer(listing("pvc-a", "u-pvc-a", &asked,
		`"hostpath-provisioner/node": "node-b"`, `"hostpath-provisioner/pool": "fast"`))
	out := h.call("volumes", "fast")
	for _, want := range []string{"bound (of node node-b)\n",
		"whose PersistentVolume is another node's: 1; if their disk was moved to this node for good, run: hostpath-provisioner import fast --from-node node-b\n"} {
		if strings.Count(out, want) != 1 {
			t.Errorf("no %q:\n%s", want, out)
		}
	}
	if strings.Count(out, "orphaned\n") != 1 || strings.Contains(out, "LabelsMissing") {
		t.Errorf("%s", out)
	}
	if json := h.call("volumes", "fast", "--json"); strings.Count(json, `"node": "node-b"`) != 1 {
		t.Errorf("%s", json)
	}
}
