package model

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// missed is a volume that is changed while the watches are broken: what is done meanwhile, with
// what was read before.
type missed struct {
	*real
	operations []operation
}

// ofGaps are each operation, and those of which a watch that goes on has to bring both.
func ofGaps() (all []*missed) {
	for _, o := range operations {
		all = append(all, &missed{operations: []operation{o}})
	}
	for _, names := range [][]string{
		{"object deleted", "release"}, {"claim deleted", "release"},
		{"claim deleted", "policy"}, {"policy", "policy"},
	} {
		all = append(all, &missed{operations: operationsNamed(names...)})
	}
	return all
}

// watched are the product's informers behind a front that breaks their watches, and the worker of
// the model.
type watched struct {
	front   *front
	volumes *kube.Informer[*corev1.PersistentVolume]
	claims  *kube.Informer[*corev1.PersistentVolumeClaim]
	worker  *worker
}

// newWatched starts informers, which have read what there is.
func newWatched(t *testing.T, plane *cluster.Cluster, w *worker) *watched {
	t.Helper()
	e := fixture.New(t, plane, "watched-")
	to := &watched{front: &front{doors: &doors{wide: true}, named: func(*http.Request) string { return "" }}, worker: w}
	to.front.breaks(false)
	address, authority := e.Proxied(func(server http.Handler) http.Handler { to.front.server = server; return to.front })
	file := filepath.Join(t.TempDir(), "kubeconfig")
	proxiedKubeconfig(e, file, address, authority)
	client := hosttest.Need(kube.New(kube.Options{
		Kubeconfig: file, Self: selfOf(0), Namespace: ownNamespace,
	}))(t)
	to.volumes = client.Volumes(plan.NodeLabelValue(nodeName(0)), func(_, _ *corev1.PersistentVolume) {}).WatchList()
	to.claims = client.Claims(func(*corev1.PersistentVolumeClaim) bool { return true }, func(_, _ *corev1.PersistentVolumeClaim) {})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go to.volumes.Run(ctx)
	go to.claims.Run(ctx)
	<-to.volumes.Synced()
	<-to.claims.Synced()
	return to
}

// differs is how what the watches brought differs from what the model's bring, "" if it does not.
func (w *watched) differs(m *missed) string {
	volume := w.worker.local(&m.model, 0, op{kind: cachedVolume}).volume
	volume.version = 0
	got := object{}
	if pv, there := w.volumes.Get(m.given.Name); there {
		got = volumeOf(pv)
		got.version = 0
	}
	claim := w.worker.local(&m.model, 0, op{kind: cachedClaim}).claim
	_, there := w.claims.Get(m.claim.Namespace + "/" + m.claim.Name)
	switch {
	case got != volume:
		return fmt.Sprintf("the watch brought volume object %+v, the model's %+v", got, volume)
	case there != claim.exists:
		return fmt.Sprintf("the watch brought a claim: %t, the model's: %t", there, claim.exists)
	}
	return ""
}

// agrees waits until the watches have brought what the model's have.
func (w *watched) agrees(ctx context.Context, m *missed) error {
	err := harness.Eventually(ctx, func() bool { return w.differs(m) == "" })
	if err != nil {
		return fmt.Errorf("%w: %s", err, w.differs(m))
	}
	return nil
}

// compareWatches compares what the product's watches and the model's bring before they break, while
// they are broken, and when they go on: what there was when they broke, and then what there is,
// also what was removed meanwhile.
func compareWatches(ctx context.Context, t *testing.T, plane *cluster.Cluster, client *kube.Client, done *served) {
	t.Helper()
	w := explorerOf(t, 0, 1).workers[0]
	to, all := newWatched(t, plane, w), ofGaps()
	for i, m := range all {
		m.real = hosttest.Need(newReal(ctx, plane, client, "server", fmt.Sprintf("watched-%d", i)))(t)
		m.served, m.model.daemons[0].up, m.model.left[breaks] = done, true, 1
	}
	for _, step := range []struct {
		name string
		do   func(m *missed) error
	}{
		{"before", func(*missed) error { return nil }},
		{"while they are broken", func(m *missed) error { return m.breaks(ctx, w) }},
		{"when they go on", func(m *missed) error { return happens(watchesHeal(w, &m.model, 0)) }},
	} {
		to.front.breaks(step.name == "while they are broken")
		for _, m := range all {
			if err := step.do(m); err != nil {
				t.Fatalf("%s, %s: %v", names(m.operations), step.name, err)
			}
			if err := to.agrees(ctx, m); err != nil {
				t.Errorf("%s, %s: %v", names(m.operations), step.name, err)
			}
		}
	}
}

// breaks has the model's watches break, and does what the watches miss.
func (m *missed) breaks(ctx context.Context, w *worker) error {
	if err := happens(watchesBreak(w, &m.model, 0)); err != nil {
		return err
	}
	for _, o := range m.operations {
		if err := m.does(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// happens is the error of an event of the model that cannot happen.
func happens(it bool) error {
	if !it {
		return errors.New("this does not happen in the model")
	}
	return nil
}
