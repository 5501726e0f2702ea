package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/certs"
)

// user returns a client certificate and its key of a user with the rights of the manifests, and
// what takes them away.
func (w *environment) user(name string) (cert, key []byte, forbid func()) {
	w.Helper()
	name = w.Namespace + "-" + name
	w.granted(name, "hostpath-provisioner:hostpath-provisioner",
		rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name})
	cert, key, err := w.Certificate(w.Ctx, name)
	w.Must(err)
	return cert, key, func() {
		w.Must(w.Client().RbacV1().ClusterRoleBindings().Delete(w.Ctx, name, metav1.DeleteOptions{}))
	}
}

// A client certificate that the server refuses, as one that ended, is replaced in the kubeconfig,
// and then in the file that the kubeconfig names, which takes no restart. The second user alone has
// the rights then: those of the ClusterRole, without the policies, which are for the
// ServiceAccount.
func TestClientCertificate(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a")
	kubeconfig, file := h.Path("kubeconfig"), h.Path("client.pem")
	cert, key := certs.NewAuthority(t).Sign(t, "unknown")
	w.Must(w.UserKubeconfig(kubeconfig, &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}))
	w.Must(h.Start())
	w.Cleanup(h.Kill)
	w.Must(h.WaitStatus(w.Soon(), "Unauthorized"))
	pid := h.PID()

	cert, key, forbid := w.user("one")
	certs.Replace(t, file, append(cert, key...))
	w.Must(w.UserKubeconfig(kubeconfig, &clientcmdapi.AuthInfo{ClientCertificate: file, ClientKey: file}))
	class := w.Class("c", immediate)
	h.made("one", class)

	cert, key, _ = w.user("two")
	forbid()
	certs.Replace(t, file, append(cert, key...))
	h.made("two", class)
	if h.PID() != pid {
		t.Error("the daemon was started again")
	}
}

// A program gives the credential, in the confinement of the daemon. When the server refuses that,
// it is asked again.
func TestCredentialOfProgram(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a")
	kubeconfig, token := h.Path("kubeconfig"), h.Path("token")
	w.Confine(h.Daemon) // binds the token to its Node, where the cluster has policies
	config := need(clientcmd.LoadFromFile(kubeconfig))(w)
	const response = `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}`
	certs.Replace(t, token, fmt.Appendf(nil, response, "stale"))
	w.Must(w.UserKubeconfig(kubeconfig, &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "cat", Args: []string{token}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}))
	w.Must(h.Start())
	w.Cleanup(h.Kill)
	w.Must(h.WaitStatus(w.Soon(), "Unauthorized"))
	for _, user := range config.AuthInfos {
		certs.Replace(t, token, fmt.Appendf(nil, response, user.Token))
	}
	h.made("data", w.Class("c", immediate))
	h.logged().Says("confined by Landlock")
}

// renewedBy is served of a token that the daemon renews.
const renewedBy = "\nhostpath_provisioner_credential_renewed_by_timestamp_seconds "

// token is one of the daemons' ServiceAccount, which ends in so many hours, and is bound to a Node
// or to nothing.
func (w *environment) token(node string, hours int64, bound bool) []byte {
	w.Helper()
	object, seconds := getIn(w, w.nodes(), node), hours*60*60
	accounts := w.Client().CoreV1().ServiceAccounts("hostpath-provisioner")
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds}}
	if bound {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Node", Name: node, UID: object.UID}
	}
	response := need(accounts.CreateToken(w.Ctx, "hostpath-provisioner", request,
		metav1.CreateOptions{}))(w)
	return []byte(response.Status.Token)
}

// A Node that is deleted and made again has its daemon's token refused: the status says so with the
// command that helps, and no other part of the daemon reports it. The token that is written then is
// taken into use, although the kubeconfig is the same.
func TestNodeMadeAgain(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a")
	kubeconfig, token := h.Path("kubeconfig"), h.Path("token")
	const day, year = 24, 365 * 24
	bind := func(hours int64) { certs.Replace(t, token, w.token(h.node, hours, true)) }
	free := func(hours int64) { certs.Replace(t, token, w.token(h.node, hours, false)) }
	bind(year)
	w.Must(w.UserKubeconfig(kubeconfig, &clientcmdapi.AuthInfo{TokenFile: token}))
	h.serving().run()
	pid := h.PID()
	uses := func(replaced int) { h.said("the credential was replaced and is in use", replaced) }
	ends, soon := h.records("CredentialEnds"), h.records("CredentialEndsSoon")
	free(7 * day) // which the daemon does not renew
	uses(1)
	ends.Fires()
	free(day / 2)
	uses(2)
	soon.Fires()
	bind(day / 2)
	uses(3)
	if page := h.scraped(); !strings.Contains(page, renewedBy) {
		t.Errorf("no %s for a token that is renewed:\n%s", renewedBy, page)
	}
	bind(year)
	soon.Resolves()
	refused := h.records("Refused")
	w.Must(w.nodes().Delete(w.Ctx, h.node, metav1.DeleteOptions{}))
	h.joins()
	w.Must(h.WaitStatus(w.Soon(), "the API server does not accept this node's credential: "))
	w.Must(h.WaitStatus(w.Soon(), "run: hostpath-provisioner enroll --admin-kubeconfig FILE"))
	h.call("status").Fails().Lacks("credential for the API server until")
	w.Eventually("the server refuses the token, which it may have known for ten seconds more", func() bool {
		config := need(clientcmd.BuildConfigFromFlags("", kubeconfig))(w)
		client := need(kubernetes.NewForConfig(config))(w)
		_, err := client.CoreV1().Nodes().Get(w.Ctx, h.node, metav1.GetOptions{})
		return apierrors.IsUnauthorized(err)
	})
	w.claim("data", w.Class("c", immediate), "8Mi")
	w.Eventually("a request is refused", func() bool {
		return !strings.Contains(h.scraped(), `api_refused_total{reason="Unauthorized"} 0`)
	})
	refused.Fires()
	began := time.Now()
	bind(year)
	w.Bound("data")
	t.Logf("bound %s after the new token was written", time.Since(began).Round(time.Millisecond))
	for line := range strings.Lines(h.Log()) {
		if strings.Contains(line, "APIRefused") && (strings.Contains(line, "nauthorized") || strings.Contains(line, "credentials")) {
			t.Error("another part reports the refusal: " + line)
		}
	}
	if h.PID() != pid {
		t.Error("the daemon was started again")
	}
}
