package identity

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/certs"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// enrolls is a node on which nothing was configured but a pool.
func (w *world) enrolls(node string) *rig.Daemon {
	w.Helper()
	dir := hosttest.Dir(w)
	d := hosttest.Need(rig.New(rig.Options{Dir: dir,
		Config: fmt.Sprintf("node = %q\nkubeconfig = %q\nmetrics = \"\"\n[pool.fast]\npath = \"/srv/fast\"\n",
			node, filepath.Join(dir, "etc", "kubeconfig"))}))(w)
	return d
}

// enroll gives a node its identity, with an administrator's rights.
func (w *world) enroll(d *rig.Daemon) fixture.Answer {
	return fixture.Call(w.T, d, "enroll", "--admin-kubeconfig", w.Kubeconfig())
}

// wantPrivate checks that a file is root's alone.
func (w *world) wantPrivate(file string) {
	w.Helper()
	info := hosttest.Need(os.Stat(file))(w)
	if info.Mode() != 0o600 {
		w.Errorf("%s has mode %s", file, info.Mode())
	}
}

// TestEnroll: one command gives a node its identity, and once more it changes nothing.
func TestEnroll(t *testing.T) {
	w := newWorld(t)
	d := w.enrolls("node-a")
	fixture.Call(t, d, "enroll").Ends(2, "--admin-kubeconfig: none is named")
	w.enroll(d).Ends(0, "node node-a is enrolled until", "next: systemctl",
		"it has every right that it needs; the cluster's policies confine it to this node")
	kubeconfig, token := d.Path("etc", "kubeconfig"), d.Path("state", "token")
	w.wantPrivate(kubeconfig)
	w.wantPrivate(token)
	text := hosttest.Need(os.ReadFile(kubeconfig))(w)
	secret := hosttest.Need(os.ReadFile(token))(w)
	if strings.Contains(string(text), string(secret)) ||
		strings.Contains(string(text), "client-key") {
		t.Error("the kubeconfig has a secret of its own")
	}
	w.a = w.with(kubeconfig)
	w.Must(create(volume("enrolled", "node-a"))(w))
	if err := create(volume("another", "node-b"))(w); err == nil {
		t.Error("it is not bound to its node")
	}
	fixture.Call(t, d, "enroll").Ends(0, "nothing was changed")
	if again, err := os.ReadFile(token); err != nil || string(again) != string(secret) {
		t.Errorf("once more the token changed, or %v", err)
	}
	w.enroll(w.enrolls("none")).Ends(1, `node "none": the cluster has no such node`)
}

// TestEnrollMends: what the API server does not accept any more is written anew, by the command
// that names it, and nothing else is.
func TestEnrollMends(t *testing.T) {
	w := newWorld(t)
	nodes, accounts := w.admin.CoreV1().Nodes(), w.admin.CoreV1().ServiceAccounts(account)
	labels := map[string]string{corev1.LabelHostname: "node-again"}
	w.Must(w.AddNode(w.Ctx, "node-again", labels))
	d := w.enrolls("node-again")
	kubeconfig := d.Path("etc", "kubeconfig")
	rewrite := func(change func(*clientcmdapi.Cluster)) {
		config := hosttest.Need(clientcmd.LoadFromFile(kubeconfig))(w)
		change(config.Clusters["cluster"])
		w.Must(clientcmd.WriteToFile(*config, kubeconfig))
	}
	w.enroll(d).Ends(0)
	for _, c := range []struct {
		name   string
		change func()
		says   string // without an administrator; "": all is well
	}{
		{"the Node was deleted and joined again", func() {
			w.Must(nodes.Delete(w.Ctx, "node-again", metav1.DeleteOptions{}))
			w.Must(w.AddNode(w.Ctx, "node-again", labels))
		}, "no identity that lasts: "},
		{"the ServiceAccount was made again", func() {
			was := hosttest.Need(accounts.Get(w.Ctx, account, metav1.GetOptions{}))(w)
			w.Must(accounts.Delete(w.Ctx, account, metav1.DeleteOptions{}))
			makes(w, accounts, &corev1.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{Name: account, Labels: was.Labels}})
		}, "no identity that lasts: the API server does not accept its token"},
		{"the API server moved", func() {
			rewrite(func(c *clientcmdapi.Cluster) { c.Server = "https://127.0.0.1:1" })
		}, "connection refused"},
		{"the API server's former name is still its own", func() {
			rewrite(func(c *clientcmdapi.Cluster) {
				c.Server = strings.Replace(c.Server, "127.0.0.1", "localhost", 1)
			})
		}, ""},
		{"the API server has a new authority", func() {
			rewrite(func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = certs.NewAuthority(t).PEM() })
		}, "certificate signed by unknown authority"},
	} {
		c.change()
		out, code := "", 0
		for refused := c.says == ""; !refused; refused = !strings.Contains(out, "nothing was changed") { // a server accepts it for 10 s more
			if out, code = d.Call("enroll"); w.Ctx.Err() != nil {
				t.Fatalf("%s: the credential is accepted", c.name)
			}
		}
		if code == 0 != (c.says == "") || !strings.Contains(out, c.says) {
			t.Errorf("%s, without an administrator: exit code %d\n%s", c.name, code, out)
		}
		w.enroll(d).Ends(0, "node node-again is enrolled until").Lacks("nothing was changed")
		hosttest.Need(w.with(kubeconfig).CoreV1().Nodes().Get(w.Ctx, "node-again", metav1.GetOptions{}))(w)
		w.enroll(d).Ends(0, "nothing was changed")
	}
}

// TestEnrollFromStandardInput: the administrator's kubeconfig touches no disk of the node.
func TestEnrollFromStandardInput(t *testing.T) {
	w := newWorld(t)
	d := w.enrolls("node-b")
	admin := hosttest.Need(os.Open(w.Kubeconfig()))(w)
	defer admin.Close()
	cmd := d.Command("enroll", "--admin-kubeconfig", "-")
	cmd.Stdin = admin
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	hosttest.Need(w.with(d.Path("etc", "kubeconfig")).CoreV1().Nodes().Get(w.Ctx, "node-b",
		metav1.GetOptions{}))(w)
}

// TestEnrollOffline: kubeconfigs for other nodes, each bound to its own.
func TestEnrollOffline(t *testing.T) {
	w := newWorld(t)
	dir := hosttest.Dir(w)
	cmd := exec.Command(rig.Binary(), "enroll", "--all", "-o", dir)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, node := range []string{"node-a", "node-b"} {
		file := filepath.Join(dir, "kubeconfig-"+node)
		w.wantPrivate(file)
		w.a = w.with(file)
		w.Must(create(volume("offline-"+node, node))(w))
	}
	out := hosttest.Need(exec.Command(rig.Binary(), "enroll", "--offline", "node-a",
		"--admin-kubeconfig", w.Kubeconfig()).Output())(w)
	if _, err := clientcmd.Load(out); err != nil || !strings.Contains(string(out), "token: ") {
		t.Errorf("%v\n%s", err, out)
	}
}
