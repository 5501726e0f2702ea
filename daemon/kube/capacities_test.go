package kube

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/storagecapacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// capacityClient is a client of a provisioner and namespace of the test's own.
func capacityClient(t *testing.T) (Publishing, *wire, string) {
	t.Helper()
	ns := namespace(t)
	c, w := newClient(t, Options{Namespace: ns, Self: plan.Self{Provisioner: ns, Node: "node-a"}})
	return c.Publishing(ns), w, ns
}

// object is what node-a publishes for a class, owned by a node that exists: the garbage collector
// removes what is not.
func object(t *testing.T, provisioner, class string, bytes uint64, closed string) storagecapacity.Object {
	t.Helper()
	node, err := plane.Client().CoreV1().Nodes().Get(t.Context(), "capacity", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if err = plane.AddNode(t.Context(), "capacity", nil); err == nil {
			node, err = plane.Client().CoreV1().Nodes().Get(t.Context(), "capacity", metav1.GetOptions{})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return storagecapacity.NodeObject(provisioner, "node-a", "host-a", class, storagecapacity.Owner{Name: node.Name, UID: string(node.UID)}, bytes, closed)
}

// stored is an object as the API server has it.
func stored(t *testing.T, ns, name string) *storagev1.CSIStorageCapacity {
	t.Helper()
	o, err := plane.Client().StorageV1().CSIStorageCapacities(ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// An object is written as the scheduler reads it, changed, written by its name once more, read
// back, and removed; one that does not exist is no error.
func TestCapacities(t *testing.T) {
	ctx := t.Context()
	c, _, ns := capacityClient(t)
	o := object(t, ns, "fast", 300<<20, "")
	if found, err := c.UpdateCapacity(ctx, o); found || err != nil {
		t.Errorf("one that does not exist: %t, %v", found, err)
	}
	must(t, c.CreateCapacity(ctx, o))
	is := stored(t, ns, o.Name)
	if is.Capacity.Value() != 300<<20 || is.MaximumVolumeSize.Value() != 300<<20 || is.StorageClassName != "fast" ||
		is.Labels[plan.NodeLabel] != "node-a" || is.Labels[driverLabel] != ns || is.Labels[managerLabel] != component || len(is.Annotations) != 0 ||
		len(is.OwnerReferences) != 1 || is.OwnerReferences[0].Kind != "Node" || !slices.Equal(is.NodeTopology.MatchExpressions[0].Values, []string{"host-a"}) {
		t.Errorf("created: %+v", is)
	}
	o.Bytes, o.Closed = 0, "NotMounted"
	if found, err := c.UpdateCapacity(ctx, o); !found || err != nil {
		t.Errorf("changed: %t, %v", found, err)
	}
	if is := stored(t, ns, o.Name); is.Capacity.Value() != 0 || is.MaximumVolumeSize.Value() != 0 || is.Annotations[capacityClosed] != "NotMounted" {
		t.Errorf("closed: %+v", is)
	}
	o.Bytes, o.Closed = 1<<40, ""
	must(t, c.CreateCapacity(ctx, o)) // a response was lost
	if all, err := c.Capacities(ctx, "node-a"); err != nil || len(all) != 1 || fmt.Sprint(all[0]) != fmt.Sprint(o) {
		t.Errorf("read back: %+v, %v, want %+v", all, err, o)
	}
	if all, err := c.Capacities(ctx, "node-b"); err != nil || len(all) != 0 {
		t.Errorf("of another node: %+v, %v", all, err)
	}
	must(t, c.DeleteCapacity(ctx, o.Name))
	must(t, c.DeleteCapacity(ctx, o.Name))
	if all, err := c.Capacities(ctx, ""); err != nil || len(all) != 0 {
		t.Errorf("after its removal: %+v, %v", all, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The object for the nodes that publish nothing has no bound, and a capacity of 0, and goes with
// the CSIDriver. What another program or a person published is not ours, and one that was damaged
// is written anew.
func TestCapacitiesOfOthers(t *testing.T) {
	ctx := t.Context()
	c, _, ns := capacityClient(t)
	driver := newDriver(t, ns)
	others := storagecapacity.Object{
		Name: "others", Class: "fast", Hostnames: []string{"x", "y"}, Bytes: math.MaxInt64, Owner: storagecapacity.Owner{Name: ns, UID: string(driver.UID)},
	}
	must(t, c.CreateCapacity(ctx, others))
	if is := stored(t, ns, "others"); is.Capacity.Value() != 0 || is.MaximumVolumeSize.Value() != math.MaxInt64 || is.OwnerReferences[0].Kind != "CSIDriver" {
		t.Errorf("%+v", is)
	}
	foreign := object(t, "another", "fast", 1, "")
	damaged := object(t, ns, "slow", 1, "")
	for _, o := range []storagecapacity.Object{foreign, damaged} {
		must(t, c.CreateCapacity(ctx, o))
	}
	objects := plane.Client().StorageV1().CSIStorageCapacities(ns)
	for name, patch := range map[string]string{
		foreign.Name: `{"metadata":{"labels":{"` + driverLabel + `":"another"}}}`, damaged.Name: `{"capacity":null}`,
	} {
		_, err := objects.Patch(ctx, name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		must(t, err)
	}
	all, err := c.Capacities(ctx, "")
	slices.SortFunc(all, func(a, b storagecapacity.Object) int { return strings.Compare(a.Class, b.Class) })
	if err != nil || len(all) != 2 || fmt.Sprint(all[0]) != fmt.Sprint(others) || all[1].Bytes != -1 {
		t.Errorf("%+v, %v", all, err)
	}
	must(t, plane.Client().StorageV1().CSIDrivers().Delete(ctx, ns, metav1.DeleteOptions{}))
	eventually(t, "the object goes with the driver", func() bool {
		_, err := objects.Get(ctx, "others", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// newDriver makes the CSIDriver of the manifests.
func newDriver(t *testing.T, name string) *storagev1.CSIDriver {
	t.Helper()
	no := false
	driver, err := plane.Client().StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{driverManaged: "Helm", driverPartOf: component}},
		Spec:       storagev1.CSIDriverSpec{AttachRequired: &no, PodInfoOnMount: &no},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		plane.Client().StorageV1().CSIDrivers().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	return driver
}

// The CSIDriver is written by one of those that read it. One that was made by another program is
// told apart.
func TestCSIDriver(t *testing.T) {
	ctx := t.Context()
	c, _, ns := capacityClient(t)
	if d, err := c.Driver(ctx); d != nil || err != nil {
		t.Errorf("without one: %+v, %v", d, err)
	}
	if won, err := c.SetDriver(ctx, storagecapacity.Driver{}); won || err != nil {
		t.Errorf("one that does not exist was written: %t, %v", won, err)
	}
	if object, err := c.GetDriver(ctx, ns); object != nil || err != nil {
		t.Errorf("without one: %+v, %v", object, err)
	}
	newDriver(t, ns)
	if object, err := c.GetDriver(ctx, ns); err != nil || object.Spec.AttachRequired == nil || *object.Spec.AttachRequired {
		t.Errorf("%+v, %v", object, err)
	}
	first, err := c.Driver(ctx)
	if err != nil || !first.Ours || first.Enabled || first.Strict || !first.Reviewed.IsZero() || first.Publishing != 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	next := *first
	next.Enabled, next.Reviewed, next.Publishing = true, time.Now().Truncate(time.Second), 7
	if won, err := c.SetDriver(ctx, next); !won || err != nil {
		t.Errorf("%t, %v", won, err)
	}
	if won, err := c.SetDriver(ctx, *first); won || err != nil {
		t.Errorf("what another one wrote was overwritten: %t, %v", won, err)
	}
	_, err = plane.Client().StorageV1().CSIDrivers().Patch(ctx, ns, "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"`+driverPartOf+`":"another"},"annotations":{"`+driverStrict+`":"true"}}}`), metav1.PatchOptions{})
	must(t, err)
	now, err := c.Driver(ctx)
	if err != nil || now.Ours || !now.Enabled || !now.Strict || !now.Reviewed.Equal(next.Reviewed) || now.Publishing != 7 {
		t.Errorf("%+v, %v", now, err)
	}
}

// Objects and nodes are read in pages.
func TestCapacitiesInPages(t *testing.T) {
	ctx := t.Context()
	c, w, ns := capacityClient(t)
	n := int(defaultTimings.pageSize) + 1
	var all sync.WaitGroup
	slots := make(chan struct{}, 16)
	base := object(t, ns, "fast", 1, "")
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			o := base
			o.Name = fmt.Sprint("o-", i)
			if err := c.CreateCapacity(ctx, o); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	w.forget()
	got, err := c.Capacities(ctx, "")
	if err != nil || len(got) != n || w.count("csistoragecapacities") != 2 {
		t.Errorf("%d of %d objects, %v, %q", len(got), n, err, w.requests())
	}
	must(t, plane.AddNode(ctx, ns, map[string]string{corev1.LabelHostname: "host-of-" + ns}))
	hostnames, err := c.Hostnames(ctx)
	if err != nil || hostnames[ns] != "host-of-"+ns {
		t.Errorf("%v, %v", hostnames, err)
	}
}

// A right to publish that is missing is an error, and nothing that an alert counts. Other rights
// that are missing are counted.
func TestCapacitiesForbidden(t *testing.T) {
	ctx := t.Context()
	var refused []string
	c, w := newClient(t, Options{Self: plan.Self{Provisioner: "p"}, OnRefused: func(reason string) { refused = append(refused, reason) }})
	const body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	w.intercept(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	})
	p := c.Publishing("p")
	if d, err := p.Driver(ctx); d != nil || !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "CSIDriver p") {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := p.Capacities(ctx, ""); !apierrors.IsForbidden(err) {
		t.Error(err)
	}
	if len(refused) != 0 {
		t.Errorf("counted: %q", refused)
	}
	if _, err := c.NodeCount(ctx); !apierrors.IsForbidden(err) || !slices.Equal(refused, []string{"Forbidden"}) {
		t.Errorf("another right: %v, counted: %q", err, refused)
	}
}
