//go:build modelreal

package model

import (
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// restored is a volume before and after etcd is restored: what is done before it is saved, after
// that, and with what was read before after it was restored.
type restored struct {
	*real
	steps []operation
}

func (r *restored) name() string {
	return strings.ReplaceAll(strings.ToLower("restored "+names(r.steps)), " ", "-")
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
				all = append(all, &restored{steps: operationsNamed(first, second, third)})
			}
		}
	}
	return all
}

// TestServerRestored compares the real API server and the model's after etcd was restored to an
// earlier moment.
func TestServerRestored(t *testing.T) {
	all, w := ofRestores(), explorerOf(t, 0, 1).workers[0]
	plane, client := newServer(t)
	eachOf(t, all, func(r *restored) (err error) {
		if r.real, err = newReal(t.Context(), plane, client, "server", r.name()); err != nil {
			return err
		}
		r.model.left[restores] = 1
		return r.does(t.Context(), r.steps[0])
	})
	hosttest.Check(t, restarted(t.Context(), plane, savesEtcd))
	eachOf(t, all, func(r *restored) error {
		if err := happens(etcdSaved(w, &r.model, 0)); err != nil {
			return err
		}
		return r.does(t.Context(), r.steps[1])
	})
	hosttest.Check(t, restarted(t.Context(), plane, restoresEtcd))
	eachOf(t, all, func(r *restored) error {
		if err := happens(etcdRestored(w, &r.model, 0)); err != nil {
			return err
		}
		if err := r.agree(t.Context()); err != nil {
			return err
		}
		return r.does(t.Context(), r.steps[2])
	})
}

// eachOf does something with each, and ends the test if one went wrong.
func eachOf(t *testing.T, all []*restored, do func(*restored) error) {
	t.Helper()
	each(all, func(r *restored) {
		if err := do(r); err != nil {
			t.Errorf("%s: %v", names(r.steps), err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
}
