package model

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// real is one claim and its volume on a real API server, beside those of the model. given is the
// volume object that the product read first, as each of its steps is given it.
type real struct {
	plane  *cluster.Cluster
	client *kube.Client
	claim  *corev1.PersistentVolumeClaim
	given  *corev1.PersistentVolume
	model  state
	seen   object
	known  claim // as claim is in the model
	served *served
}

// operation is done on the real server and on the model's. It returns the errors of both.
type operation struct {
	name string
	do   func(ctx context.Context, r *real) (onReal, onModel error)
}

// operations are what the product and people do with volume objects and claims.
var operations = []operation{
	{"release", func(ctx context.Context, r *real) (error, error) {
		_, err := r.client.ReleaseFinalizer(ctx, r.given)
		return err, r.serve(op{kind: releaseVolume, with: r.seen})
	}},
	{"hold", func(ctx context.Context, r *real) (error, error) {
		_, err := r.client.HoldVolume(ctx, r.given)
		return err, r.serve(op{kind: holdVolume, with: r.seen})
	}},
	{"delete", func(ctx context.Context, r *real) (error, error) {
		return r.client.DeleteVolume(ctx, r.given), r.serve(op{kind: deleteVolume, with: r.seen})
	}},
	{"create", func(ctx context.Context, r *real) (error, error) {
		pv := newVolume(r.claim, nodePool, false, 0)
		existing, err := r.client.CreateVolume(ctx, pv)
		there := r.asked(op{kind: createVolume, with: volumeOf(pv)}).volume.exists
		if err == nil && (existing != nil) != there {
			err = fmt.Errorf("existed: %t", existing != nil)
		}
		return err, nil
	}},
	{"read again", func(ctx context.Context, r *real) (error, error) {
		pv, err := r.client.GetVolume(ctx, r.given.Name)
		if now := r.asked(op{kind: getVolume}).volume; pv != nil && now.exists {
			r.given, r.seen = pv, now
		}
		return err, nil
	}},
	{"claim deleted", func(ctx context.Context, r *real) (error, error) {
		claims := r.plane.Client().CoreV1().PersistentVolumeClaims(r.claim.Namespace)
		err := claims.Delete(ctx, r.claim.Name, metav1.DeleteOptions{})
		claimDeleted(nil, &r.model, 0)
		return gone(err), nil
	}},
	{"object deleted", func(ctx context.Context, r *real) (error, error) {
		err := r.plane.Client().CoreV1().PersistentVolumes().Delete(ctx, r.given.Name, metav1.DeleteOptions{})
		objectDeleted(nil, &r.model, 0)
		return gone(err), nil
	}},
	{"policy", func(ctx context.Context, r *real) (error, error) {
		policyChanged(nil, &r.model, 0)
		policy := corev1.PersistentVolumeReclaimDelete
		if r.model.api.volumes[0].retain {
			policy = corev1.PersistentVolumeReclaimRetain
		}
		return r.patch(ctx, fmt.Sprintf(`{"spec":{"persistentVolumeReclaimPolicy":%q}}`, policy)), nil
	}},
	{"finalizers", func(ctx context.Context, r *real) (error, error) {
		finalizersForced(nil, &r.model, 0)
		return r.patch(ctx, `{"metadata":{"finalizers":null}}`), nil
	}},
	{"claimRef", func(ctx context.Context, r *real) (error, error) {
		if !claimTakenOut(nil, &r.model, 0) {
			return nil, nil
		}
		return r.patch(ctx, `{"spec":{"claimRef":null}}`), nil
	}},
}

func (r *real) patch(ctx context.Context, patch string) error {
	_, err := r.plane.Client().CoreV1().PersistentVolumes().Patch(ctx, r.given.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return gone(err)
}

func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

var errChanged = apierrors.NewConflict(corev1.Resource("persistentvolumes"), "", nil)

// asked is the response of the model's API server.
func (r *real) asked(o op) response { return r.served.by(&r.model.api, o) }

func (r *real) serve(o op) error {
	if r.asked(o).fault == conflict {
		return errChanged
	}
	return nil
}

// differs is how the real objects differ from the model's, "" if they do not.
func (r *real) differs(ctx context.Context) string {
	want := r.model.api.unversioned()
	pv, err := r.client.GetVolume(ctx, r.given.Name)
	if err != nil {
		return err.Error()
	}
	got := object{}
	if pv != nil {
		got = volumeOf(pv)
		got.version = 0
	}
	claim, err := r.client.GetClaim(ctx, r.claim.Namespace, r.claim.Name)
	sizes := growth{}
	if claim != nil {
		sizes = growthOf(claim)
		sizes.version = 0
	}
	switch {
	case err != nil:
		return err.Error()
	case got != want.volumes[0]:
		return fmt.Sprintf("the volume object is %+v, the model's %+v", got, want.volumes[0])
	case (claim != nil) != want.claims[0].exists, claim != nil && claim.Status.Phase != phaseOf(want):
		return fmt.Sprintf("the claim is %v, the model's %+v", claim, want.claims[0])
	case sizes != want.claims[0].growth:
		return fmt.Sprintf("the claim has %+v, the model's %+v", sizes, want.claims[0].growth)
	}
	return ""
}

// phaseOf is the phase of a claim, once kube-controller-manager has looked at it (syncClaim). To
// the model, and to the product, a claim whose volume object is gone is a bound one.
func phaseOf(of etcd) corev1.PersistentVolumeClaimPhase {
	switch {
	case !of.claims[0].bound:
		return corev1.ClaimPending
	case !of.volumes[0].exists:
		return corev1.ClaimLost
	}
	return corev1.ClaimBound
}

// agree waits until the real objects are as the model's.
func (r *real) agree(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, harness.Timeout)
	defer cancel()
	r.model.byThemselves()
	wrong := ""
	err := harness.Eventually(ctx, func() bool {
		now := r.differs(ctx)
		if ctx.Err() == nil || wrong == "" { // the error of a request that was cut off tells nothing
			wrong = now
		}
		return now == ""
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, wrong)
	}
	return nil
}

// newReal makes a claim with its volume, bound. They have a class of their own:
// kube-controller-manager binds a new claim to any volume of its class that is available, such as
// one whose claimRef another sequence took out.
func newReal(ctx context.Context, plane *cluster.Cluster, client *kube.Client, namespace, name string) (*real, error) {
	class := classObject(nodePool)
	class.Name = name
	fixture.Expandable(class)
	if _, err := plane.Client().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	claim, err := plane.Client().CoreV1().PersistentVolumeClaims(namespace).Create(ctx, cluster.Claim(namespace, name, name, "1Gi"), metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	r := &real{plane: plane, client: client, claim: claim, given: newVolume(claim, nodePool, false, 0)}
	r.model.left = often{policies: 9, deletions: 9, forced: 9, unbinding: 9, sizes: 9}
	claimMade(nil, &r.model, 0)
	r.model.api.serve(op{kind: createVolume, with: volumeOf(r.given)})
	if _, err := client.CreateVolume(ctx, r.given); err != nil {
		return nil, err
	}
	if err := r.agree(ctx); err != nil {
		return nil, err
	}
	r.seen, r.known = r.model.api.volumes[0], r.model.api.claims[0]
	if r.claim, err = client.GetClaim(ctx, namespace, name); err != nil {
		return nil, err
	}
	r.given, err = client.GetVolume(ctx, r.given.Name)
	return r, err
}

// TestServer does each sequence of two operations on a real API server, beside a real
// kube-controller-manager, and on the model's, sequences of those that are about sizes, and of
// those with leases and tombstones, and compares what the objects become and what the product is
// told; and what the product's watches bring that missed something.
func TestServer(t *testing.T) {
	harness.Timeout = time.Minute
	plane, client := newServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var all [][]operation
	for _, first := range operations { // kube-controller-manager binds four claims a second
		for _, second := range operations {
			all = append(all, []operation{first, second})
		}
	}
	var beside sync.WaitGroup
	done := &served{}
	beside.Go(func() { compareLeases(ctx, t, client, done) })
	each(slices.Concat(all, ofSizes(), ofHolding()), func(sequence []operation) {
		if err := compare(ctx, plane, client, sequence, done); err != nil {
			t.Errorf("%s: %v", names(sequence), err)
		}
	})
	beside.Wait()
	compareWatches(ctx, t, plane, client, done)
	done.complete(t)
}

// newServer is a real API server with a namespace, and the product's client of it.
func newServer(t *testing.T) (*cluster.Cluster, *kube.Client) {
	t.Helper()
	plane := fixture.OwnPlane(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "server"}}
	_, err := plane.Client().CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	hosttest.Check(t, err)
	options := kube.Options{Kubeconfig: plane.Kubeconfig(), Self: selfOf(0), Namespace: "server"}
	return plane, hosttest.Need(kube.New(options))(t)
}

// each does something with each, some at a time.
func each[T any](all []T, do func(T)) {
	todo, done := make(chan T), sync.WaitGroup{}
	for range 16 {
		done.Go(func() {
			for one := range todo {
				do(one)
			}
		})
	}
	for _, one := range all {
		todo <- one
	}
	close(todo)
	done.Wait()
}

// ofHolding are sequences in which a finalizer is put on that was off.
func ofHolding() (all [][]operation) {
	for _, then := range []string{
		"hold", "read again", "policy", "object deleted", "claim deleted", "claimRef", "release",
	} {
		all = append(all, operationsNamed("finalizers", "read again", then, "hold", "hold"))
	}
	return all
}

func compare(ctx context.Context, plane *cluster.Cluster, client *kube.Client, sequence []operation, done *served) error {
	r, err := newReal(ctx, plane, client, "server", strings.ReplaceAll(strings.ToLower(names(sequence)), " ", "-"))
	if err != nil {
		return err
	}
	r.served = done
	for i, o := range sequence {
		if err := r.does(ctx, o); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// does does an operation on both, and compares what they return and what the objects become.
func (r *real) does(ctx context.Context, o operation) error {
	onReal, onModel := o.do(ctx, r)
	if apierrors.IsConflict(onReal) != apierrors.IsConflict(onModel) || onReal != nil && onModel == nil {
		return fmt.Errorf("it returned %v, and on the model %v", onReal, onModel)
	}
	return r.agree(ctx)
}

func names(sequence []operation) string {
	var all []string
	for _, o := range sequence {
		all = append(all, o.name)
	}
	return strings.Join(all, " ")
}
