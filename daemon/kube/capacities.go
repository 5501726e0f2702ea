package kube

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/storagecapacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

const (
	// driverLabel is external-provisioner's label of CSIStorageCapacity objects, with the driver's
	// name.
	driverLabel = "csi.storage.k8s.io/drivername"
	// managerLabel tells whose the objects are; external-provisioner leaves those of others alone.
	managerLabel = "csi.storage.k8s.io/managed-by"

	// driverReviewed has the time of the last review of the nodes that publish nothing, RFC 3339.
	driverReviewed = "hostpath-provisioner/reviewed"
	// driverPublishing has how many nodes published something then.
	driverPublishing = "hostpath-provisioner/publishing"
	// driverStrict is "true" if an administrator says that every node with a daemon publishes.
	driverStrict = "hostpath-provisioner/every-node-publishes"
	// capacityClosed has the reason why a node's pool takes no volumes.
	capacityClosed = "hostpath-provisioner/closed"
	// driverPartOf labels the CSIDriver of our manifests. driverManaged is an administrator's label
	// for the CSIDriver of another program (docs/csi.md): by it nothing is deleted.
	driverPartOf  = "app.kubernetes.io/part-of"
	driverManaged = "app.kubernetes.io/managed-by"
)

// publishing is for all requests of this file. Where the manifests that are in force do not grant
// them, package storagecapacity reports that, and it is no reason for an alert.
func publishing(ctx context.Context) context.Context {
	return context.WithValue(ctx, uncounted{}, true)
}

// Publishing is a storagecapacity.API for one CSI driver.
type Publishing struct {
	*Client
	driver string
}

// Publishing returns what publishes for the driver of this name.
func (c *Client) Publishing(driver string) Publishing { return Publishing{c, driver} }

// Capacities is part of storagecapacity.API.
func (c Publishing) Capacities(
	ctx context.Context, node string,
) (all []storagecapacity.Object, err error) {
	err = c.EachCapacity(publishing(ctx), []string{c.driver}, node,
		func(o *storagev1.CSIStorageCapacity) { all = append(all, capacityOf(o)) })
	return all, err
}

func capacityOf(o *storagev1.CSIStorageCapacity) storagecapacity.Object {
	is := storagecapacity.Object{
		Name: o.Name, Class: o.StorageClassName, Node: o.Labels[plan.NodeLabel], Closed: words.Name(o.Annotations[capacityClosed]),
	}
	if o.NodeTopology != nil && len(o.NodeTopology.MatchExpressions) == 1 {
		is.Hostnames = o.NodeTopology.MatchExpressions[0].Values
	}
	for _, owner := range o.OwnerReferences {
		is.Owner = storagecapacity.Owner{Name: owner.Name, UID: string(owner.UID)}
	}
	if o.MaximumVolumeSize != nil && o.Capacity != nil {
		is.Bytes = o.MaximumVolumeSize.Value()
	} else {
		is.Bytes = -1 // damaged: it is written anew
	}
	return is
}

// CreateCapacity is part of storagecapacity.API. Of an object that has the name the size is set.
func (c Publishing) CreateCapacity(ctx context.Context, o storagecapacity.Object) error {
	_, err := capacityKind.create(publishing(ctx), c.Client, c.options.Namespace, c.capacityObject(o))
	if apierrors.IsAlreadyExists(err) {
		_, err = c.UpdateCapacity(ctx, o)
		return err
	}
	return about(err, "publish the capacity of class %s", o.Class)
}

// capacityObject always has a capacity: kube-scheduler 1.37 scores by it without a look whether it
// is there (volumebinding, Score). That of the nodes that publish nothing is 0 beside an unbounded
// size, so that they are chosen last.
func (c Publishing) capacityObject(o storagecapacity.Object) *storagev1.CSIStorageCapacity {
	labels := map[string]string{managerLabel: component, driverLabel: c.driver}
	owner := metav1.OwnerReference{APIVersion: "storage.k8s.io/v1", Kind: "CSIDriver", Name: o.Owner.Name, UID: types.UID(o.Owner.UID)}
	if o.Node != "" {
		labels[plan.NodeLabel] = o.Node
		owner.APIVersion, owner.Kind = "v1", "Node"
	}
	var annotations map[string]string
	if o.Closed != "" {
		annotations = map[string]string{capacityClosed: o.Closed}
	}
	capacity, size := sizesOf(o)
	return &storagev1.CSIStorageCapacity{
		ObjectMeta:       metav1.ObjectMeta{Name: o.Name, Labels: labels, Annotations: annotations, OwnerReferences: []metav1.OwnerReference{owner}},
		StorageClassName: o.Class, Capacity: &capacity, MaximumVolumeSize: &size,
		NodeTopology: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: o.Hostnames},
		}},
	}
}

func sizesOf(o storagecapacity.Object) (capacity, size resource.Quantity) {
	size = *resource.NewQuantity(o.Bytes, resource.BinarySI)
	if o.Node == "" {
		return *resource.NewQuantity(0, resource.BinarySI), size
	}
	return size, size
}

// UpdateCapacity is part of storagecapacity.API.
func (c Publishing) UpdateCapacity(
	ctx context.Context, o storagecapacity.Object,
) (found bool, err error) {
	capacity, size := sizesOf(o)
	annotations := map[string]*string{capacityClosed: nil}
	if o.Closed != "" {
		annotations[capacityClosed] = &o.Closed
	}
	of := &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.options.Namespace, Name: o.Name}}
	_, err = capacityKind.change(publishing(ctx), c.Client, of, map[string]any{
		"metadata": map[string]any{"annotations": annotations}, "capacity": capacity, "maximumVolumeSize": size,
	})
	if absent(err, o.Name) {
		return false, nil
	}
	return err == nil, about(err, "publish the capacity of class %s", o.Class)
}

// DeleteCapacity is part of storagecapacity.API.
func (c Publishing) DeleteCapacity(ctx context.Context, name string) error {
	return capacityKind.remove(publishing(ctx), c.Client, c.options.Namespace, name, metav1.DeleteOptions{})
}

// Driver is part of storagecapacity.API.
func (c Publishing) Driver(ctx context.Context) (*storagecapacity.Driver, error) {
	driver, err := c.GetDriver(publishing(ctx), c.driver)
	if driver == nil {
		return nil, err
	}
	d := &storagecapacity.Driver{
		UID: string(driver.UID), Version: driver.ResourceVersion, Ours: driver.Labels[driverPartOf] == component || driver.Labels[driverManaged] == component,
		Enabled: driver.Spec.StorageCapacity != nil && *driver.Spec.StorageCapacity, Strict: driver.Annotations[driverStrict] == "true",
	}
	d.Reviewed, _ = time.Parse(time.RFC3339, driver.Annotations[driverReviewed])
	d.Publishing, _ = strconv.Atoi(driver.Annotations[driverPublishing])
	return d, nil
}

// SetDriver is part of storagecapacity.API.
func (c Publishing) SetDriver(ctx context.Context, d storagecapacity.Driver) (won bool, err error) {
	of := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{
		Name: c.driver, UID: types.UID(d.UID), ResourceVersion: d.Version}}
	_, err = driverKind.change(publishing(ctx), c.Client, of, map[string]any{
		"metadata": asGiven(of, map[string]any{"annotations": map[string]string{
			driverReviewed:   d.Reviewed.UTC().Format(time.RFC3339Nano),
			driverPublishing: strconv.Itoa(d.Publishing),
		}}),
		"spec": map[string]any{"storageCapacity": d.Enabled},
	})
	if gone(err) {
		return false, nil
	}
	return err == nil, about(err, "write CSIDriver %s", c.driver)
}

// Hostnames is part of storagecapacity.API.
func (c *Client) Hostnames(ctx context.Context) (map[string]string, error) {
	all := map[string]string{}
	for more := ""; ; {
		page, err := c.nodesPage(publishing(ctx),
			metav1.ListOptions{Limit: defaultTimings.pageSize, Continue: more})
		if err != nil {
			return nil, fmt.Errorf("list the nodes: %w", err)
		}
		for _, node := range page.Items {
			if hostname := node.Labels[corev1.LabelHostname]; hostname != "" {
				all[node.Name] = hostname
			}
		}
		if more = page.Continue; more == "" {
			return all, nil
		}
	}
}
