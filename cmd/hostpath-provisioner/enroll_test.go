package main

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// unsigned is a token that no server signed, of a node, issued so long ago, for an hour.
func unsigned(node string, ago time.Duration) string {
	issued := time.Now().Add(-ago)
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d,"kubernetes.io":{"namespace":"hostpath-provisioner","node":{"name":%q,"uid":"n"},"serviceaccount":{"name":"hostpath-provisioner","uid":"a"}}}`, issued.Unix(), issued.Add(time.Hour).Unix(), node)
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

// Mistakes on the command line, and kubeconfigs that are none.
func TestEnrollCommandLine(t *testing.T) {
	h := newHost(t, plain)
	for line, want := range map[string]string{
		"enroll":                          "--admin-kubeconfig: none is named, and this node has no identity that lasts",
		"enroll now":                      `unknown command "now" for "hostpath-provisioner enroll"`,
		"enroll --duration 1m":            "--duration: 1m0s is less than ten minutes",
		"enroll --all":                    "--all: -o names no directory",
		"enroll --admin-kubeconfig /none": `kubeconfig "/none": no such file or directory`,
		"enroll --offline n --admin-kubeconfig /none":  `kubeconfig "/none": no such file or directory`,
		"enroll --all -o /x --admin-kubeconfig /etc":   `kubeconfig "/etc": is a directory`,
		"enroll --admin-kubeconfig - --duration 8760h": "names no cluster",
	} {
		if got := h.raw(strings.Fields(line)...); !strings.Contains(got, want) || strings.HasSuffix(got, "exit 0\n") {
			t.Errorf("%s:\n%s\nwant %s", line, got, want)
		}
	}
}

// An identity that lasts is kept, and its rights are reviewed: of another node, or near its end, it
// is not.
func TestEnrollLasts(t *testing.T) {
	for name, c := range map[string]struct {
		node  string
		ago   time.Duration
		lasts bool
	}{"new": {"node-a", time.Minute, true}, "at three quarters": {"node-a", 44 * time.Minute, true}, "near its end": {"node-a", 46 * time.Minute, false}, "over": {"node-a", 2 * time.Hour, false}, "of another node": {"node-b", time.Minute, false}} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, plain)
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if strings.Contains(r.URL.Path, "/nodes/") {
					fmt.Fprint(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"node-a","uid":"n"}}`)
					return
				}
				fmt.Fprint(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false}}`)
			}))
			defer server.Close()
			authority := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
			h.write("kubeconfig", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
				"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority-data": %q}}], "users": [{"name": "u", "user": {"token": %q}}]}`, server.URL, authority, unsigned(c.node, c.ago)))
			before, err := os.ReadFile(h.path("kubeconfig"))
			h.must(err)
			if got := h.raw("enroll", "--admin-kubeconfig", "/none"); !strings.Contains(got, `"/none": no such file or directory`) || strings.Contains(got, "hint:") {
				t.Errorf("an administrator's kubeconfig that is not there:\n%s", got)
			}
			got := h.raw("enroll")
			if kept := strings.Contains(got, "nothing was changed"); kept != c.lasts {
				t.Errorf("kept: %t\n%s", kept, got)
			}
			if c.lasts && (!strings.Contains(got, "has no right to patch persistentvolumeclaims\n") || !strings.Contains(got, "hint: an administrator runs: hostpath-provisioner manifests")) {
				t.Errorf("without rights:\n%s", got)
			}
			if after, err := os.ReadFile(h.path("kubeconfig")); err != nil || string(after) != string(before) {
				t.Errorf("the kubeconfig changed, or %v", err)
			}
		})
	}
}

// What an API server refuses an administrator is told, and nothing is written.
func TestEnrollRefused(t *testing.T) {
	for name, c := range map[string]struct {
		code         int
		reason, want string
	}{"no right": {http.StatusForbidden, "Forbidden", "read node node-a: not yours"}, "no such user": {http.StatusUnauthorized, "Unauthorized", "read node node-a: not yours"}} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, strings.Replace(plain, "BASE/kubeconfig", "BASE/own", 1))
			h.apiServer(refusing(c.code, c.reason, "not yours"))
			if got := h.raw("enroll", "--admin-kubeconfig", h.path("kubeconfig")); !strings.Contains(got, c.want) || !strings.HasSuffix(got, "exit 1\n") {
				t.Error(got)
			}
			for _, file := range []string{"own", "state/token"} {
				if _, err := os.Stat(h.path(file)); !os.IsNotExist(err) {
					t.Errorf("%s: %v", file, err)
				}
			}
		})
	}
}

// granting responds as an API server does that has the node and gives a token.
func granting(given string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/serviceaccounts/hostpath-provisioner/token"):
			fmt.Fprintf(w, `{"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "status": {"token": %q}}`, given)
		case strings.HasSuffix(r.URL.Path, "/nodes/node-a"):
			fmt.Fprint(w, `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-a", "uid": "n", "labels": {"kubernetes.io/hostname": "a"}}}`)
		case strings.HasSuffix(r.URL.Path, "/nodes"):
			fmt.Fprint(w, `{"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "gone"}}, {"metadata": {"name": "node-a"}}]}`)
		default:
			http.NotFound(w, r)
		}
	}
}

// What is written where: with a file of its own for the token on the node, and in one file for
// another machine. A token that is not the node's is not written. Of all nodes, one without labels
// is one, and one that fails does not stop the others.
func TestEnrollWrites(t *testing.T) {
	own := unsigned("node-a", 0)
	for name, c := range map[string]struct {
		given, args string
		files       []string // with the token
		says        string
	}{
		"here":           {own, "", []string{"state/token"}, "with the token in BASE/state/token"},
		"to a directory": {own, " --offline node-a -o BASE/out", []string{"out/kubeconfig-node-a"}, "BASE/out/kubeconfig-node-a until "},
		"for all nodes":  {own, " --all -o BASE/out", []string{"out/kubeconfig-node-a"}, "BASE/out/kubeconfig-node-a until "},
		"for all but one": {own, " --all -o BASE/out", []string{"out/kubeconfig-node-a"},
			"read node gone: "},
		"to be seen":        {own, " --offline node-a", nil, own},
		"of another node":   {unsigned("node-b", 0), "", nil, "the server gave one that is not bound to it"},
		"of no node":        {"rubbish", " --offline node-a", nil, "the server gave one that is not bound to it"},
		"no such directory": {own, " --offline node-a -o BASE/none", nil, "BASE/none: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, strings.Replace(plain, "BASE/kubeconfig", "BASE/own", 1))
			h.must(os.Mkdir(h.path("out"), 0o700))
			h.apiServer(granting(c.given))
			got := h.raw(strings.Fields(strings.ReplaceAll("enroll --admin-kubeconfig BASE/kubeconfig"+c.args, "BASE", h.base))...)
			if !strings.Contains(strings.ReplaceAll(got, h.base, "BASE"), c.says) {
				t.Errorf("%s\nwant %s", got, c.says)
			}
			for _, file := range []string{"state/token", "out/kubeconfig-node-a"} {
				text, err := os.ReadFile(h.path(file))
				if has := err == nil && strings.Contains(string(text), own); has != slices.Contains(c.files, file) {
					t.Errorf("%s has the token: %t, %v", file, has, err)
				}
			}
			if text, err := os.ReadFile(h.path("own")); name == "here" && (err != nil || strings.Contains(string(text), own) || !strings.Contains(string(text), "tokenFile: "+h.path("state/token"))) {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}
