package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// ownEnvironment has a control plane of its own, which can be killed, and its data put back.
func ownEnvironment(t *testing.T, args ...string) *environment {
	t.Helper()
	t.Parallel()
	return &environment{fixture.New(t, fixture.OwnPlane(t, args...), "e2e-")}
}

// again kills the control plane, and starts it with what was done to its data meanwhile.
func (w *environment) again(meanwhile string) {
	w.Helper()
	w.Must(w.Kill())
	etcd := filepath.Join(w.Dir(), "etcd")
	hosttest.Run(w, "sh", "-ec", meanwhile, "sh", etcd, etcd+"-earlier")
	w.Must(w.Restart(w.Ctx))
}

const (
	keepData    = `cp -a "$1" "$2"`
	restoreData = `rm -r "$1"; cp -a "$2" "$1"`
)

// reach lets the server's version grow until it is beyond one.
func (w *environment) reach(version uint64) {
	w.Helper()
	maps := w.Client().CoreV1().ConfigMaps(w.Namespace)
	made, err := maps.Create(w.Ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "busy-"}}, metav1.CreateOptions{})
	for i := 0; err == nil && w.number(made.ResourceVersion) <= version; i++ {
		made, err = maps.Patch(w.Ctx, made.Name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"i":"%d"}}`, i), metav1.PatchOptions{})
	}
	w.Must(err)
}

func (w *environment) version() uint64 {
	w.Helper()
	list := need(w.Client().CoreV1().Namespaces().List(w.Ctx, metav1.ListOptions{Limit: 1}))(w)
	return w.number(list.ResourceVersion)
}

func (w *environment) number(version string) uint64 {
	w.Helper()
	return need(strconv.ParseUint(version, 10, 64))(w)
}

// workers waits until all nodes say that the same one works in the pool, and that its lease has it.
func (w *environment) workers(nodes []*node) {
	w.Helper()
	w.Eventually("all nodes say who works in the pool", func() bool {
		worker := w.holder(nodes, anyNode).node
		for _, n := range nodes {
			if out, _ := n.Call("status"); !strings.Contains(out, "open; leader "+worker) {
				return false
			}
		}
		return true
	})
}

// etcd is restored to a moment when another node held the lease of a shared pool. One node works in
// the pool again, all nodes say which, and the data of bound volumes is what it was. Restored once
// more while the daemons are stopped, and overtaken by new writes before they go on, the server has
// claims at versions that they take for known ones: those get their volumes, too.
//
// A holder warns of a lease that was taken from it only while it counts on that lease, for
// leadership.Trust after a renewal, and a control plane may take longer to start. The warning is in
// TestLeaseOfARestoredServer (daemon/controllers/leadership).
func TestSharedRestored(t *testing.T) {
	w := ownEnvironment(t, "--kcm-flag=--pvclaimbinder-sync-period=2s")
	nodes := w.sharedBy([]string{"a", "b"})
	runAll(nodes)
	class := w.Class("c", immediate)
	before := w.bound("before", class, "1Mi")
	file := filepath.Join(cluster.PathOf(before), "data")
	w.Must(os.WriteFile(file, []byte("before"), 0o600))
	w.again(keepData)
	w.workers(nodes)
	first := w.holder(nodes, anyNode)
	first.Kill()
	w.holder(nodes, but(first))
	first.run()
	w.bound("lost", class, "1Mi")
	w.reach(w.version() + 500) // more than the components write when they start

	w.again(restoreData)
	w.bound("after", class, "1Mi")
	w.workers(nodes)

	for _, n := range nodes {
		w.Must(n.Signal(syscall.SIGSTOP))
	}
	known := w.version()
	w.again(restoreData)
	w.claim("unseen", class, "1Mi")
	w.reach(known + 100)
	for _, n := range nodes {
		w.Must(n.Signal(syscall.SIGCONT))
	}
	w.Bound("unseen")
	w.workers(nodes)
	if data, err := os.ReadFile(file); string(data) != "before" || w.Bound("before").Name != before.Name {
		t.Errorf("the volume of before has %q, %v", data, err)
	}
}
