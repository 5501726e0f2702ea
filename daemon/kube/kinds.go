package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// kind is a kind of the API's objects, which are *T in Go.
type kind[T any, P pointer[T]] struct {
	group  schema.GroupVersion
	plural string         // in a URL
	noun   string         // in an error's text
	list   runtime.Object // an empty list, nil for a kind of which none is read
}

type pointer[T any] interface {
	*T
	Object
}

func kindOf[T any, P pointer[T]](
	group schema.GroupVersion, plural, noun string, list runtime.Object,
) kind[T, P] {
	return kind[T, P]{group, plural, noun, list}
}

// The API groups that a Client sends requests to; a cluster need not have the snapshots' one.
var (
	core, storage           = corev1.SchemeGroupVersion, storagev1.SchemeGroupVersion
	admission, coordination = admissionv1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion
	snapshots               = snapshotapi.GroupVersion
)

var (
	claimKind = kindOf[corev1.PersistentVolumeClaim](core, "persistentvolumeclaims", "claim",
		&corev1.PersistentVolumeClaimList{})
	volumeKind = kindOf[corev1.PersistentVolume](core, "persistentvolumes", "volume",
		&corev1.PersistentVolumeList{})
	nodeKind      = kindOf[corev1.Node](core, "nodes", "node", &corev1.NodeList{})
	podKind       = kindOf[corev1.Pod](core, "pods", "pod", &corev1.PodList{})
	eventKind     = kindOf[corev1.Event](core, "events", "event", &corev1.EventList{})
	endpointsKind = kindOf[corev1.Endpoints](core, "endpoints", "endpoints", &corev1.EndpointsList{})
	namespaceKind = kindOf[corev1.Namespace](core, "namespaces", "namespace", nil)
	classKind     = kindOf[storagev1.StorageClass](storage, "storageclasses", "class",
		&storagev1.StorageClassList{})
	driverKind   = kindOf[storagev1.CSIDriver](storage, "csidrivers", "CSIDriver", nil)
	csiNodeKind  = kindOf[storagev1.CSINode](storage, "csinodes", "the CSI drivers of node", nil)
	capacityKind = kindOf[storagev1.CSIStorageCapacity](storage, "csistoragecapacities", "capacity",
		&storagev1.CSIStorageCapacityList{})
	leaseKind = kindOf[coordinationv1.Lease](coordination, "leases", "lease",
		&coordinationv1.LeaseList{})
	contentKind = kindOf[snapshotapi.Content](snapshots, "volumesnapshotcontents",
		"VolumeSnapshotContent", &snapshotapi.ContentList{})
	snapshotKind = kindOf[snapshotapi.Snapshot](snapshots, "volumesnapshots",
		"VolumeSnapshot", nil)
	snapshotClassKind = kindOf[snapshotapi.Class](snapshots, "volumesnapshotclasses",
		"VolumeSnapshotClass", nil)
	policyKind = kindOf[admissionv1.ValidatingAdmissionPolicy](admission,
		"validatingadmissionpolicies", "policy", nil)
	policyBindingKind = kindOf[admissionv1.ValidatingAdmissionPolicyBinding](admission,
		"validatingadmissionpolicybindings", "binding", nil)
	indexKind = kindOf[admissionv1.MutatingAdmissionPolicy](admission,
		"mutatingadmissionpolicies", "policy", &admissionv1.MutatingAdmissionPolicyList{})
	indexBindingKind = kindOf[admissionv1.MutatingAdmissionPolicyBinding](admission,
		"mutatingadmissionpolicybindings", "binding of the policy",
		&admissionv1.MutatingAdmissionPolicyBindingList{})
)

// title names an object in an error's text.
func (k kind[T, P]) title(namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return k.noun + " " + name
}

// at has a request be about this kind; namespace "" is none.
func (k kind[T, P]) at(r *rest.Request, namespace string) *rest.Request {
	return r.NamespaceIfScoped(namespace, namespace != "").Resource(k.plural)
}

// get requests the object of a name. It returns nil without an error if it does not exist.
func (k kind[T, P]) get(ctx context.Context, c *Client, namespace, name string,
	how ...option) (P, error) {
	object := P(new(T))
	found, err := readInto(ctx, k.at(c.groups[k.group].Get(), namespace), object, name, how...)
	if !found || err != nil {
		return nil, about(err, "read %s", k.title(namespace, name))
	}
	return object, nil
}

// readInto requests the object of a name. found is false without an error if it does not exist.
func readInto(ctx context.Context, r *rest.Request, into received, name string, how ...option) (
	found bool, err error) {
	err = receiveObject(ctx, with(r.Name(name).Timeout(callTimeout), how), into, name, "")
	if absent(err, name) {
		return false, nil
	}
	return err == nil, err
}

// create makes an object, and returns it as it is then. The error is the API server's.
func (k kind[T, P]) create(ctx context.Context, c *Client, namespace string, o P,
	how ...option) (P, error) {
	made, request := P(new(T)), k.at(c.groups[k.group].Post(), namespace).Body(o).Timeout(callTimeout)
	return made, receiveObject(ctx, with(request, how), made, o.GetName(), "")
}

// remove deletes the object of a name. One that does not exist is no error.
func (k kind[T, P]) remove(ctx context.Context, c *Client, namespace, name string,
	o metav1.DeleteOptions) error {
	uid := types.UID("")
	if p := o.Preconditions; p != nil {
		uid = *p.UID
	}
	request := k.at(c.groups[k.group].Delete(), namespace).Name(name).Body(&o).Timeout(callTimeout)
	err := receiveDeletion(ctx, request, name, uid)
	if absent(err, name) {
		return nil
	}
	return about(err, "delete %s", k.title(namespace, name))
}

// removeThis deletes an object. One that is gone, or has another UID by now, is no error.
func (k kind[T, P]) removeThis(ctx context.Context, c *Client, o P, grace *int64) error {
	uid := o.GetUID()
	err := k.remove(ctx, c, o.GetNamespace(), o.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid}, GracePeriodSeconds: grace})
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// change sends a merge patch of an object, in Go's notation of its JSON, and returns the object as
// it is then. Only the name, the namespace and the UID of o count; the UID may be "".
func (k kind[T, P]) change(ctx context.Context, c *Client, o P, change any,
	how ...option) (P, error) {
	return k.patch(ctx, c, types.MergePatchType, o, change, how...)
}

// patch is change with another kind of patch.
func (k kind[T, P]) patch(ctx context.Context, c *Client, as types.PatchType, o P, change any,
	how ...option) (P, error) {
	text, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	now, request := P(new(T)), k.at(c.groups[k.group].Patch(as), o.GetNamespace()).
		Name(o.GetName()).Body(text).Timeout(callTimeout)
	if err := receiveObject(ctx, with(request, how), now, o.GetName(), o.GetUID()); err != nil {
		return nil, err
	}
	return now, nil
}

// option changes a request.
type option func(*rest.Request)

// dryRun has the API server change nothing.
func dryRun(r *rest.Request) { r.Param("dryRun", metav1.DryRunAll) }

// ofStatus is for a patch of the subresource.
func ofStatus(r *rest.Request) { r.SubResource("status") }

// within is another limit than callTimeout.
func within(d time.Duration) option { return func(r *rest.Request) { r.Timeout(d) } }

func with(r *rest.Request, how []option) *rest.Request {
	for _, set := range how {
		set(r)
	}
	return r
}

// asGiven is the metadata of a change that the server refuses with a conflict if the object is not
// as given any more. more are further fields of the metadata.
func asGiven(o metav1.Object, more map[string]any) map[string]any {
	metadata := map[string]any{"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion()}
	for key, value := range more {
		metadata[key] = value
	}
	return metadata
}

func labelChange(uid types.UID, label, value string) map[string]any {
	return map[string]any{"metadata": map[string]any{
		"uid": uid, "labels": map[string]string{label: value}}}
}

// selection is what of a kind is listed: "" is all.
type selection struct{ namespace, labels, fields string }

func (k kind[T, P]) source(c *Client, of selection) *source {
	return &source{client: c.groups[k.group], params: c.params, decoder: c.decoder,
		resource: k.plural, empty: k.list.DeepCopyObject, selection: of}
}

// each reads the objects of a selection, a page at a time.
func (k kind[T, P]) each(ctx context.Context, c *Client, of selection, visit func(P)) error {
	from := k.source(c, of)
	for options := (metav1.ListOptions{Limit: defaultTimings.pageSize}); ; {
		next, err := eachOfPage(ctx, from, options, visit)
		if options.Continue = next; err != nil || next == "" {
			return err
		}
	}
}

// eachOfPage reads one page. next is where the next one begins, "" if there is none.
func eachOfPage[T any](ctx context.Context, from *source, options metav1.ListOptions,
	visit func(T)) (next string, err error) {
	page, err := from.List(ctx, options)
	if err == nil {
		err = meta.EachListItem(page, func(o runtime.Object) error {
			if item, ok := o.(T); ok {
				visit(item)
			}
			return nil
		})
	}
	if err != nil {
		return "", fmt.Errorf("list %s: %w", from.resource, err)
	}
	list, err := meta.ListAccessor(page)
	if err != nil {
		return "", fmt.Errorf("list %s: %w", from.resource, err)
	}
	return list.GetContinue(), nil
}

// about has an error say what was done; nil stays nil.
func about(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
