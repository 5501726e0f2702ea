//go:build modelreal

package model

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// restored is a volume before and after etcd is restored: what is done before it is saved, after
// that, and with what was read before after it was restored.
type restored struct {
	*real
	steps [3]operation
}

func (r *restored) name() string {
	return strings.ReplaceAll(strings.ToLower("restored "+names(r.steps[:])), " ", "-")
}

// ofRestores are those whose volume object changes after etcd was saved. That an object is deleted
// with the version that it had when it was saved is left out: the real server does it, and in the
// model a restored object has another version (etcdRestored).
func ofRestores() (all []*restored) {
	for _, first := range []string{"read again", "policy", "release"} {
		for _, second := range []string{"object deleted", "claim deleted", "policy", "finalizers", "claimRef"} {
			if first == "release" && second == "finalizers" {
				continue // the object stays without one
			}
			for _, third := range []string{"release", "delete", "create", "read again"} {
				if first == "read again" && third == "delete" {
					continue
				}
				all = append(all, &restored{steps: [3]operation{operationNamed(first), operationNamed(second), operationNamed(third)}})
			}
		}
	}
	return all
}

// TestServerRestored compares the real API server and the model's after etcd was restored to an
// earlier moment.
func TestServerRestored(t *testing.T) {
	plane, all := fixture.OwnPlane(t), ofRestores()
	client, err := kube.New(kube.Options{Kubeconfig: plane.Kubeconfig(), Self: selfOf(0), Namespace: "server"})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "server"}}
	if _, err := plane.Client().CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	x := hosttest.Need(newExplorer(0))(t)
	defer x.close()
	each(t, all, func(r *restored) (err error) {
		if r.real, err = newReal(t.Context(), plane, client, "server", r.name()); err != nil {
			return err
		}
		r.model.left[restores] = 1
		return r.does(t.Context(), r.steps[0])
	})
	etcdFiles(t, plane, func(etcd string) error { return os.CopyFS(etcd+"-saved", os.DirFS(etcd)) })
	each(t, all, func(r *restored) error {
		if !etcdSaved(x.workers[0], &r.model, 0) {
			return errors.New("it cannot be saved")
		}
		return r.does(t.Context(), r.steps[1])
	})
	etcdFiles(t, plane, func(etcd string) error { return errors.Join(os.RemoveAll(etcd), os.Rename(etcd+"-saved", etcd)) })
	each(t, all, func(r *restored) error {
		if !etcdRestored(x.workers[0], &r.model, 0) {
			return errors.New("it cannot be restored")
		}
		if err := r.agree(t.Context()); err != nil {
			return err
		}
		return r.does(t.Context(), r.steps[2])
	})
}

// each does something with each, some at a time.
func each(t *testing.T, all []*restored, do func(*restored) error) {
	t.Helper()
	todo, done := make(chan *restored), sync.WaitGroup{}
	for range 16 {
		done.Go(func() {
			for r := range todo {
				if err := do(r); err != nil {
					t.Errorf("%s: %v", names(r.steps[:]), err)
				}
			}
		})
	}
	for _, r := range all {
		todo <- r
	}
	close(todo)
	done.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// etcdFiles does something with etcd's files, while the control plane is down.
func etcdFiles(t *testing.T, plane *cluster.Cluster, do func(etcd string) error) {
	t.Helper()
	err := plane.Kill()
	if err == nil {
		err = do(filepath.Join(plane.Dir(), "etcd"))
	}
	if err = errors.Join(err, plane.Restart(t.Context())); err != nil {
		t.Fatal(fmt.Errorf("etcd's files: %w", err))
	}
}
