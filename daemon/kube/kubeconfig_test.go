package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".tmp", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

// Each error names the file and says what is wrong with it. DIR stands for its directory.
func TestBadKubeconfig(t *testing.T) {
	const head = "apiVersion: v1\nkind: Config\n"
	const cluster = "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
	cases := map[string]struct{ content, want string }{
		"empty":       {"", `kubeconfig "DIR/empty": the current context "" names no cluster`},
		"no context":  {head + "current-context: none\n", `kubeconfig "DIR/no context": no context "none", which is its current-context`},
		"not yaml":    {"{", `kubeconfig "DIR/not yaml": not a kubeconfig: yaml: line 1: `},
		"other kind":  {"apiVersion: v1\nkind: Pod\n", `kubeconfig "DIR/other kind": not a kubeconfig: no kind "Pod" is registered for version "v1"`},
		"no cluster":  {head + "contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n", `kubeconfig "DIR/no cluster": the current context "x" names no cluster`},
		"no token":    {head + cluster + "users: [{name: u, user: {tokenFile: gone}}]\n", `kubeconfig "DIR/no token": open DIR/gone: no such file or directory`},
		"no key":      {head + cluster + "users: [{name: u, user: {client-certificate: gone.crt, client-key: gone.key}}]\n", `kubeconfig "DIR/no key": invalid configuration: [unable to read client-cert DIR/gone.crt`},
		"bad CA":      {head + strings.Replace(cluster, "server", "certificate-authority-data: aGVsbG8=, server", 1) + "users: [{name: u, user: {token: t}}]\n", `kubeconfig "DIR/bad CA": unable to load root certificates`},
		"bad address": {head + strings.Replace(cluster, "https://127.0.0.1:1", "://", 1) + "users: [{name: u, user: {token: t}}]\n", `kubeconfig "DIR/bad address": host must be a URL or a host:port pair: "://"`},
	}
	dir := t.TempDir()
	for name, c := range cases {
		path := filepath.Join(dir, name)
		write(t, path, c.content)
		_, err := New(Options{Kubeconfig: path})
		if err == nil || !strings.HasPrefix(strings.ReplaceAll(err.Error(), dir, "DIR"), c.want) {
			t.Errorf("%s:\n  %v\nwant\n  %s", name, err, c.want)
		}
	}
}

// What is not a kubeconfig file is an error at once, also a FIFO, whose open would block. DIR
// stands for its directory.
func TestUnreadableKubeconfig(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"missing":   {func(string) error { return nil }, "no such file or directory"},
		"directory": {func(path string) error { return os.Mkdir(path, 0o700) }, "is a directory"},
		"FIFO":      {func(path string) error { return unix.Mkfifo(path, 0o600) }, "not a regular file"},
		"device":    {func(path string) error { return os.Symlink("/dev/zero", path) }, "not a regular file"},
		"large":     {func(path string) error { return os.WriteFile(path, make([]byte, kubeconfigMax+1), 0o600) }, "larger than 4 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			result := make(chan error, 1)
			go func() {
				_, err := New(Options{Kubeconfig: path})
				result <- err
			}()
			select {
			case err := <-result:
				if want := fmt.Sprintf("kubeconfig %q: %s", path, c.want); err == nil || err.Error() != want || errors.Is(err, fs.ErrNotExist) != (name == "missing") {
					t.Errorf("%v, want %s", err, want)
				}
			case <-time.After(10 * time.Second):
				t.Error("the open blocks")
			}
		})
	}
	if _, err := New(Options{}); err == nil || err.Error() != "no kubeconfig is configured" {
		t.Errorf("no path: %v", err)
	}
}

// A symlink to a kubeconfig is followed: the administrator owns the directory.
func TestLinkedKubeconfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(plane.Kubeconfig(), path); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Kubeconfig: path}); err != nil {
		t.Error(err)
	}
}

func TestKubeconfigWarning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, path, "")
	for mode, want := range map[os.FileMode]string{
		0o600: "", 0o640: "",
		0o644: `kubeconfig "` + path + `" can be read by every user of this host (mode 0644)`,
		0o602: `kubeconfig "` + path + `" can be changed by every user of this host (mode 0602)`,
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if got := KubeconfigWarning(path); got != want {
			t.Errorf("%04o: %q, want %q", mode, got, want)
		}
	}
	if got := KubeconfigWarning(path + "-gone"); got != "" {
		t.Errorf("missing: %q", got)
	}
}

// Neither the environment nor a dead server matters to New.
func TestDeadServer(t *testing.T) {
	t.Setenv("KUBECONFIG", plane.Kubeconfig())
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	path := credentials(t, "https://127.0.0.1:1", &clientcmdapi.AuthInfo{Token: "t"})
	c, err := New(Options{Kubeconfig: path})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.GetClaim(t.Context(), "ns", "name")
	if err == nil || !strings.HasPrefix(err.Error(), "read claim ns/name: ") || !strings.Contains(err.Error(), "127.0.0.1:1: connect: connection refused") {
		t.Errorf("a request: %v", err)
	}
}

func credentials(t *testing.T, server string, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: plane.Config().CAData}
	config.AuthInfos["u"] = user
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// A token file that changes is in use within seconds, whatever the server responds to the old one,
// and also where it replaces a kubeconfig's token. An empty one changes nothing.
func TestTokenFileIsFollowed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	ns := namespace(t)
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "stale")
	c, err := New(Options{Kubeconfig: credentials(t, plane.Config().Host, &clientcmdapi.AuthInfo{TokenFile: file})})
	must(t, err)
	reloads, ended := make(chan error, 10), make(chan struct{})
	go func() { c.FollowKubeconfig(ctx, func(err error) { reloads <- err }); close(ended) }()
	defer func() { cancel(); <-ended }()
	if _, err := c.GetClaim(ctx, ns, "a"); err == nil || !strings.Contains(err.Error(), "nauthorized") {
		t.Fatalf("with a stale token: %v", err)
	}
	token, err := plane.Client().CoreV1().ServiceAccounts(ns).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	known := func() {
		t.Helper()
		if _, err := c.GetClaim(ctx, ns, "a"); err == nil || !strings.Contains(err.Error(), "forbidden: User \"system:serviceaccount:"+ns+":default\"") {
			t.Errorf("with the new token: %v", err)
		}
	}
	write(t, file, token.Status.Token+"\n")
	must(t, receive(t, reloads))
	known()
	write(t, file, "\n")
	if err := receive(t, reloads); !errors.As(err, new(*KubeconfigError)) {
		t.Errorf("an empty token: %v", err)
	}
	known()
}

// However soon after the last look at its file it is written, a token is in use within five seconds.
func TestNewTokenIsInUseSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		file := filepath.Join(t.TempDir(), "token")
		write(t, file, "token-0")
		user := &clientcmdapi.AuthInfo{TokenFile: file}
		c, err := New(Options{Kubeconfig: credentials(t, "https://127.0.0.1:1", user)})
		must(t, err)
		reloads, ended := make(chan error, 10), make(chan struct{})
		go func() { c.FollowKubeconfig(ctx, func(err error) { reloads <- err }); close(ended) }()
		defer func() { cancel(); <-ended }()
		for i := range 50 {
			time.Sleep(time.Duration(i) * 97 * time.Millisecond)
			began := time.Now()
			write(t, file, fmt.Sprint("token-", i+1))
			must(t, <-reloads)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("token %d was in use after %s", i+1, took)
			}
		}
	})
}

// A credential that the server refuses is told once, whatever resource had the refusal, and that it
// is accepted again. One that is bound to a Node that was made again is told before the server
// refuses it.
func TestCredentialIsRefused(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	kubeconfig := bound(t, "refused", false)
	text, err := os.ReadFile(kubeconfig)
	must(t, err)
	node := bindingOf(t, kubeconfig)
	told := make(chan error, 10)
	c, _ := newClient(t, Options{Kubeconfig: kubeconfig, Self: plan.Self{Node: node}, OnHealth: func(err error) { told <- err }})
	ended := make(chan struct{})
	go func() { c.FollowKubeconfig(ctx, func(error) {}); close(ended) }()
	defer func() { cancel(); <-ended }()
	c.nodeChanged(nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: "another"}})
	if err := receive(t, told); !errors.Is(err, ErrCredentialRefused) || !strings.Contains(err.Error(), "was deleted") {
		t.Errorf("a Node that was made again: %v", err)
	}
	c.nodeUID.Store(nil)
	c.connection.suspect()
	must(t, receive(t, told))
	write(t, kubeconfig, strings.Replace(string(text), "token: ", "token: a", 1))
	eventually(t, "the other token", func() bool {
		_, err := c.GetVolume(ctx, "none")
		return Refusal(err) == Unauthorized
	})
	if err := receive(t, told); !errors.Is(err, ErrCredentialRefused) || !strings.Contains(err.Error(), "nauthorized") {
		t.Errorf("a token that is not known: %v", err)
	}
	c.health.failed("claims", apierrors.NewUnauthorized("Unauthorized"))
	c.health.recovered("claims")
	write(t, kubeconfig, string(text))
	must(t, receive(t, told))
}

// A token that the API server ceases to accept between two requests is not accepted.
func TestJudgedWhileRefused(t *testing.T) {
	t.Parallel()
	node := bindingOf(t, bound(t, "judged", false)) // its namespace has the same name
	account := metav1.ObjectMeta{Name: component}
	_, err := plane.Client().CoreV1().ServiceAccounts(node).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: account}, metav1.CreateOptions{})
	must(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, plane.ServiceAccountKubeconfig(t.Context(), node, component, node, kubeconfig))
	c, w := newClient(t, Options{Kubeconfig: kubeconfig, Namespace: node,
		Self: plan.Self{Node: node}})
	was, err := c.Judge(t.Context(), c, time.Now())
	if must(t, err); was != "" {
		t.Fatalf("%q", was)
	}
	w.intercept(func(r *http.Request) (*http.Response, error) {
		if !strings.Contains(r.URL.Path, "/nodes/") {
			return nil, nil
		}
		body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`
		return &http.Response{StatusCode: http.StatusUnauthorized, Request: r,
			Header: http.Header{"Content-Type": {"application/json"}},
			Body:   io.NopCloser(strings.NewReader(body))}, nil
	})
	unfit, err := c.Judge(t.Context(), c, time.Now())
	if err != nil || unfit != "the API server does not accept its token" {
		t.Errorf("%q, %v", unfit, err)
	}
}

// bindingOf is the Node that a kubeconfig's token is bound to.
func bindingOf(t *testing.T, kubeconfig string) string {
	t.Helper()
	c, err := New(Options{Kubeconfig: kubeconfig})
	must(t, err)
	return c.Credential().Node
}

// A client certificate that changes is in use within seconds. One that cannot be used changes
// nothing; one that is in the kubeconfig in the files' place is in use, too, when they are gone.
func TestCertificateIsFollowed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	if err := plane.AddNode(ctx, "certified", nil); err != nil {
		t.Fatal(err)
	}
	put := func(node string) {
		path := filepath.Join(dir, node)
		if err := plane.NodeKubeconfig(ctx, node, path); err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.LoadFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, user := range config.AuthInfos {
			// One file for both, as kubelet has it, so that there is no moment of two that do not
			// match.
			write(t, dir+"/client.pem", string(user.ClientCertificateData)+string(user.ClientKeyData))
		}
	}
	put("certified-not")
	kubeconfig := credentials(t, plane.Config().Host, &clientcmdapi.AuthInfo{ClientCertificate: dir + "/client.pem", ClientKey: dir + "/client.pem"})
	c, err := New(Options{Kubeconfig: kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	reloads, ended := make(chan error, 10), make(chan struct{})
	go func() { c.FollowKubeconfig(ctx, func(err error) { reloads <- err }); close(ended) }()
	defer func() { cancel(); <-ended }()
	user := func() string {
		_, err := c.CreateVolume(ctx, volume("never", "1"))
		_, who, _ := strings.Cut(err.Error(), "User ")
		who, _, _ = strings.Cut(who, " ")
		return who
	}
	if got := user(); got != `"system:node:certified-not"` {
		t.Fatalf("the user is %s", got)
	}
	write(t, dir+"/client.pem", "no certificate")
	if err := receive(t, reloads); err == nil || user() != `"system:node:certified-not"` {
		t.Errorf("garbage: %v, the user is %s", err, user())
	}
	put("certified")
	if err := receive(t, reloads); err != nil || user() != `"system:node:certified"` {
		t.Errorf("another certificate: %v, the user is %s", err, user())
	}
	must(t, os.Remove(dir+"/client.pem"))
	text, err := os.ReadFile(dir + "/certified-not")
	must(t, err)
	write(t, kubeconfig, string(text))
	eventually(t, "the certificate in the kubeconfig", func() bool { return user() == `"system:node:certified-not"` })
}

func receive(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("the kubeconfig is not read again")
		return nil
	}
}

// A kubeconfig that is replaced is in use without a new client: at once where the server refused
// the old one, and otherwise within seconds. One that cannot be used, or leads elsewhere, changes
// nothing.
func TestKubeconfigIsFollowed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	ns := namespace(t)
	path := credentials(t, plane.Config().Host, &clientcmdapi.AuthInfo{Token: "stale"})
	var refused sync.Map
	c, err := New(Options{Kubeconfig: path, OnRefused: func(reason string) { refused.Store(reason, true) }})
	if err != nil {
		t.Fatal(err)
	}
	said, ended := make(chan error, 10), make(chan struct{})
	go func() { c.FollowKubeconfig(ctx, func(err error) { said <- err }); close(ended) }()
	defer func() { cancel(); <-ended }()
	replace := func(server, token string) error {
		t.Helper()
		text, err := os.ReadFile(credentials(t, server, &clientcmdapi.AuthInfo{Token: token}))
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, string(text))
		return <-said
	}
	if _, err := c.GetClaim(ctx, ns, "a"); err == nil || !strings.Contains(err.Error(), "nauthorized") {
		t.Fatalf("with a stale token: %v", err)
	}
	if _, known := refused.Load("Unauthorized"); !known || !c.LastSuccess().IsZero() {
		t.Errorf("the refusal is not told, last success %s", c.LastSuccess())
	}
	token, err := plane.Client().CoreV1().ServiceAccounts(ns).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := replace(plane.Config().Host, token.Status.Token); err != nil {
		t.Fatalf("a sound kubeconfig: %v", err)
	}
	known := func() {
		t.Helper()
		if _, err := c.GetClaim(ctx, ns, "a"); err == nil || !strings.Contains(err.Error(), "forbidden: User \"system:serviceaccount:"+ns+":default\"") {
			t.Errorf("with a good token: %v", err)
		}
	}
	known()
	write(t, path, "{")
	if err := <-said; !errors.As(err, new(*KubeconfigError)) {
		t.Errorf("garbage: %v", err)
	}
	known()
	if err := replace("https://127.0.0.1:1", "t"); !errors.Is(err, ErrOtherServer) {
		t.Errorf("another server: %v", err)
	}
	known()
}

func TestKubeconfigRisks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	const plain = `kubeconfig "PATH" has server "http://api.example:6443" without TLS: its token can be read on the network`
	for cluster, want := range map[string]string{
		"server: https://api.example:6443":                                 "",
		"server: http://127.0.0.1:8001":                                    "",
		"server: http://localhost:8001":                                    "",
		"server: 'http://[::1]:8001'":                                      "",
		"server: http://api.example:6443":                                  plain,
		"server: http://127.0.0.1.example:6443":                            strings.Replace(plain, "api", "127.0.0.1", 1),
		"server: https://api.example:6443, insecure-skip-tls-verify: true": `kubeconfig "PATH" has insecure-skip-tls-verify: another server than "https://api.example:6443" can take its token`,
	} {
		write(t, path, "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {"+cluster+"}}]\n"+
			"contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\nusers: [{name: u, user: {token: t}}]\n")
		if got := strings.Join(KubeconfigRisks(path), "\n"); got != strings.ReplaceAll(want, "PATH", path) {
			t.Errorf("%s:\n  %s\nwant\n  %s", cluster, got, want)
		}
	}
	if got := KubeconfigRisks(path + "-gone"); got != nil {
		t.Errorf("a missing one: %q", got)
	}
}
