package e2e

import (
	"context"
	"os"
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	storageclient "k8s.io/client-go/kubernetes/typed/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// call calls the program with the host's configuration.
func (h *host) call(args ...string) fixture.Answer {
	h.w.Helper()
	return fixture.Call(h.w.T, h.Daemon, args...)
}

// ended is how a command ended, and what it said.
func (h *host) ended(c *exec.Cmd, args []string, said string) fixture.Answer {
	return fixture.Answer{T: h.w.T, Args: args, Out: said, Code: c.ProcessState.ExitCode()}
}

// logged is what the daemon has logged.
func (h *host) logged() fixture.Answer {
	return fixture.Answer{T: h.w.T, Args: []string{"the log"}, Out: h.Log()}
}

// need is hosttest.Need.
func need[V any](value V, err error) func(hosttest.T) V { return hosttest.Need(value, err) }

// These are requests that have to succeed, of one of the client's kinds of objects.

type creator[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
}

func createIn[T any](w *environment, kind creator[T], object T) T {
	w.Helper()
	return need(kind.Create(w.Ctx, object, metav1.CreateOptions{}))(w)
}

type getter[T any] interface {
	Get(context.Context, string, metav1.GetOptions) (T, error)
}

func getIn[T any](w *environment, kind getter[T], name string) T {
	w.Helper()
	return need(kind.Get(w.Ctx, name, metav1.GetOptions{}))(w)
}

type lister[T any] interface {
	List(context.Context, metav1.ListOptions) (T, error)
}

// listIn lists all, or those that the first of the options selects.
func listIn[T any](w *environment, kind lister[T], of ...metav1.ListOptions) T {
	w.Helper()
	return need(kind.List(w.Ctx, append(of, metav1.ListOptions{})[0]))(w)
}

type updater[T any] interface {
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
}

func updateIn[T any](w *environment, kind updater[T], object T) T {
	w.Helper()
	return need(kind.Update(w.Ctx, object, metav1.UpdateOptions{}))(w)
}

type patcher[T any] interface {
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)
}

// patchIn merges a patch into an object, or into its subresource.
func patchIn[T any](w *environment, kind patcher[T], name, patch string, sub ...string) T {
	w.Helper()
	merge := types.MergePatchType
	return need(kind.Patch(w.Ctx, name, merge, []byte(patch), metav1.PatchOptions{}, sub...))(w)
}

func (w *environment) pvs() coreclient.PersistentVolumeInterface {
	return w.Client().CoreV1().PersistentVolumes()
}

// pvcs, pods and events are those of the test's namespace.
func (w *environment) pvcs() coreclient.PersistentVolumeClaimInterface {
	return w.Client().CoreV1().PersistentVolumeClaims(w.Namespace)
}

func (w *environment) pods() coreclient.PodInterface { return w.Client().CoreV1().Pods(w.Namespace) }

func (w *environment) events() coreclient.EventInterface {
	return w.Client().CoreV1().Events(w.Namespace)
}

func (w *environment) nodes() coreclient.NodeInterface { return w.Client().CoreV1().Nodes() }

func (w *environment) classes() storageclient.StorageClassInterface {
	return w.Client().StorageV1().StorageClasses()
}

// leases are the daemons'.
func (w *environment) leases() coordinationclient.LeaseInterface {
	return w.Client().CoordinationV1().Leases("hostpath-provisioner")
}

// event waits for an event with the reason on an object.
func (w *environment) event(o cluster.Object, reason string) *corev1.Event {
	w.Helper()
	return need(w.WaitEvent(w.Soon(), o, reason))(w)
}

// config is the host's configuration.
func (h *host) config() string {
	h.w.Helper()
	return string(need(os.ReadFile(h.Path("etc", "config.toml")))(h.w))
}

// edit replaces a text of the configuration, once. A daemon that runs is not told.
func (h *host) edit(was, now string) {
	h.w.Helper()
	h.w.Must(h.Configure(strings.Replace(h.config(), was, now, 1)))
}

// granted gives a cluster role to a subject, by a binding of this name.
func (w *environment) granted(name, role string, to rbacv1.Subject) {
	w.Helper()
	createIn(w, w.Client().RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{to},
	})
}

// account makes an account of the test's namespace, without rights, and writes its kubeconfig.
func (w *environment) account(name, file string) rbacv1.Subject {
	w.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	createIn(w, w.Client().CoreV1().ServiceAccounts(w.Namespace), account)
	w.Must(w.ServiceAccountKubeconfig(w.Ctx, w.Namespace, name, "", file))
	return rbacv1.Subject{Kind: "ServiceAccount", Namespace: w.Namespace, Name: name}
}
