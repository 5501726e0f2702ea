package kube

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// bound makes a ServiceAccount that may renew its token, if may is true, a Node, and a kubeconfig
// with a token bound to it.
func bound(t *testing.T, name string, may bool) (kubeconfig string) {
	t.Helper()
	ctx, client := t.Context(), plane.Client()
	namespace, err := plane.NewNamespace(ctx, name)
	must(t, err)
	_, err = client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "daemon"}}, metav1.CreateOptions{})
	must(t, err)
	must(t, plane.AddNode(ctx, namespace, nil))
	if may {
		_, err = client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}, ResourceNames: []string{"daemon"}}}}, metav1.CreateOptions{})
		must(t, err)
		_, err = client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "r"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "daemon"}}}, metav1.CreateOptions{})
		must(t, err)
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	must(t, plane.ServiceAccountKubeconfig(ctx, namespace, "daemon", namespace, kubeconfig))
	return kubeconfig
}

// A real token says whose it is, on which node, and when it ends.
func TestCredential(t *testing.T) {
	t.Parallel()
	c, err := New(Options{Kubeconfig: bound(t, "credential", false)})
	must(t, err)
	is := c.Credential()
	if is.Account != "daemon" || is.Node == "" || is.Node != is.Namespace || is.NodeUID == "" || is.AccountUID == "" || !is.renewable() || is.Expires.Sub(is.Issued) != 24*time.Hour {
		t.Errorf("%+v", is)
	}
	admin, err := New(Options{Kubeconfig: plane.Kubeconfig()})
	must(t, err)
	if is := admin.Credential(); is.Expires.Before(time.Now()) || is.renewable() {
		t.Errorf("a client certificate: %+v", is)
	}
}

// The API server gives a token for the same node, which is saved, used at once, and used by the
// next process; a token without the right is told.
func TestRenew(t *testing.T) {
	t.Parallel()
	kubeconfig := bound(t, "renew", true)
	o := Options{Kubeconfig: kubeconfig, TokenFile: filepath.Join(t.TempDir(), "token")}
	c, w := newClient(t, o)
	was := c.Credential()
	time.Sleep(time.Until(was.Issued.Add(1100 * time.Millisecond))) // tokens have whole seconds
	must(t, c.renew(t.Context(), was, func(token []byte) error { write(t, o.TokenFile, string(token)); return nil }))
	now := c.Credential()
	if !now.succeeds(was) || now.Expires.Sub(now.Issued) != was.Expires.Sub(was.Issued) {
		t.Errorf("%+v after %+v", now, was)
	}
	token, err := os.ReadFile(o.TokenFile)
	must(t, err)
	sent := ""
	w.intercept(func(r *http.Request) (*http.Response, error) { sent = r.Header.Get("Authorization"); return nil, nil })
	_, _ = c.GetVolume(t.Context(), "none")
	if sent != "Bearer "+string(token) {
		t.Error("the old token is sent")
	}
	next, err := New(o)
	must(t, err)
	if next.Credential() != now {
		t.Errorf("the next process has %+v", next.Credential())
	}
	without, err := New(Options{Kubeconfig: bound(t, "norenew", false)})
	must(t, err)
	err = without.renew(t.Context(), without.Credential(), func([]byte) error { return errors.New("saved") })
	if !errors.Is(err, errNoRenewal) {
		t.Error(err)
	}
}

// forged is a token that no server signed, of a node, that ends after this part of an hour from its
// beginning.
func forged(node string, issued, expires time.Time) string {
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d,"kubernetes.io":{"namespace":"s","node":{"name":%q,"uid":"n"},"serviceaccount":{"name":"d","uid":"a"}}}`, issued.Unix(), expires.Unix(), node)
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

// RunRenewal renews in time, reports what fails, and tries again.
func TestRunRenewal(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	for name, c := range map[string]struct {
		issued, expires time.Time
		renews          bool
	}{"young": {now.Add(-time.Minute), now.Add(time.Hour), false}, "old": {now.Add(-50 * time.Minute), now.Add(10 * time.Minute), true}} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan string, 10)
			client, w := newClient(t, Options{Kubeconfig: plane.Kubeconfig(), renewLook: time.Millisecond})
			client.connection.config.Store(&rest.Config{BearerToken: forged("node-a", c.issued, c.expires)})
			w.intercept(func(r *http.Request) (*http.Response, error) {
				asked <- r.URL.Path
				return nil, errors.New("away")
			})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			failed := make(chan error, 10)
			go client.RunRenewal(ctx, func([]byte) error { return nil }, func(_ Credential, err error) { failed <- err })
			if !c.renews {
				if due := renewalOf(client.Credential(), renewJitter); !due.After(now) {
					t.Errorf("due at %s", due)
				}
				return
			}
			select {
			case <-ctx.Done():
				t.Fatal("it was not renewed")
			case err := <-failed:
				if err == nil || !strings.Contains(err.Error(), "away") {
					t.Error(err)
				}
			}
			if path := <-asked; path != "/api/v1/namespaces/s/serviceaccounts/d/token" {
				t.Error(path)
			}
		})
	}
}

// A renewed token takes the place of an older one of the same identity that ends earlier, and of no
// other.
func TestPreferRenewed(t *testing.T) {
	now := time.Now()
	own := forged("node-a", now, now.Add(time.Hour))
	for name, c := range map[string]struct {
		renewed string
		used    bool
	}{
		"later":   {forged("node-a", now, now.Add(2*time.Hour)), true},
		"earlier": {forged("node-a", now, now.Add(time.Minute)), false},
		// An administrator who copies a kubeconfig means that one: the server may not accept the
		// older token any more.
		"issued before": {forged("node-a", now.Add(-time.Minute), now.Add(2*time.Hour)), false},
		"another node":  {forged("node-b", now, now.Add(2*time.Hour)), false},
		"no token":      {"rubbish", false},
		"empty":         {"", false},
		"bad base64":    {"a.*.c", false},
		"no expiration": {"a.e30.c", false},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "token")
			write(t, file, c.renewed)
			config := &rest.Config{BearerToken: own}
			preferRenewed(config, file)
			if want := map[bool]string{true: c.renewed, false: own}[c.used]; config.BearerToken != want {
				t.Errorf("%+v", config)
			}
		})
	}
	config := &rest.Config{BearerToken: own}
	if preferRenewed(config, filepath.Join(t.TempDir(), "gone")); config.BearerToken != own {
		t.Error("a file that is not there is used")
	}
}
