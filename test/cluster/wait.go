package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/yaml"
)

// defaultWait is how long a wait lasts whose context has no deadline. Nothing
// here takes longer on a slow machine, and a test that waits for ever tells
// less than one that fails.
const defaultWait = time.Minute

// Object is any Kubernetes object.
type Object interface {
	runtime.Object
	metav1.Object
}

// Resource is the part of a typed client that waiting needs. Each of
// Client().CoreV1().Pods(namespace) and its like is one.
type Resource[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// WaitFor watches the object of that name until the condition holds, and
// returns it as it then was. An object that does not exist yet is waited for.
// The watch survives a restart of the API server.
//
// A wait that ends with the context has an error that shows the object as it
// was seen last.
func WaitFor[T Object, L runtime.Object](ctx context.Context, resource Resource[L], name string, condition func(T) bool) (T, error) {
	var last T
	seen := false
	err := follow(ctx, resource, fields.OneTermEqualSelector("metadata.name", name), nil, func(event watch.Event) bool {
		object, ok := event.Object.(T)
		if !ok || event.Type == watch.Deleted {
			seen = false
			return false
		}
		last, seen = object, true
		return condition(object)
	})
	switch {
	case err == nil:
		return last, nil
	case seen:
		return last, fmt.Errorf("wait for %T %q: %w; seen last:\n%s", last, name, err, show(last))
	default:
		return last, fmt.Errorf("wait for %T %q: %w; it does not exist", last, name, err)
	}
}

// WaitGone watches until there is no object of that name. Its type parameter
// says what the resource holds: WaitGone[*corev1.Pod](ctx, pods, name).
func WaitGone[T Object, L runtime.Object](ctx context.Context, resource Resource[L], name string) error {
	var last T
	absent := func(store cache.Store) (bool, error) { return len(store.List()) == 0, nil }
	err := follow(ctx, resource, fields.OneTermEqualSelector("metadata.name", name), absent, func(event watch.Event) bool {
		if object, ok := event.Object.(T); ok {
			last = object
		}
		return event.Type == watch.Deleted
	})
	if err != nil {
		return fmt.Errorf("wait for %T %q to be gone: %w; seen last:\n%s", last, name, err, show(last))
	}
	return nil
}

// follow runs a watch that repairs itself until done says yes to an event, or
// precondition to the first list.
func follow[L runtime.Object](ctx context.Context, resource Resource[L], selector fields.Selector, precondition watchtools.PreconditionFunc, done func(watch.Event) bool) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultWait)
		defer cancel()
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector.String()
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector.String()
			return resource.Watch(ctx, o)
		},
	}
	_, err := watchtools.UntilWithSync(ctx, source, nil, precondition, func(event watch.Event) (bool, error) {
		return done(event), nil
	})
	return err
}

// show is the object as YAML without what only the API server needs.
func show(object Object) string {
	copied, ok := object.DeepCopyObject().(Object)
	if !ok {
		return fmt.Sprint(object)
	}
	copied.SetManagedFields(nil)
	data, err := yaml.Marshal(copied)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// WaitClaim waits for a condition of a claim. A wait that ends with the
// context has an error that also shows the claim's events, in which a
// provisioner says why it did nothing.
func (c *Cluster) WaitClaim(ctx context.Context, namespace, name string, condition func(*corev1.PersistentVolumeClaim) bool) (*corev1.PersistentVolumeClaim, error) {
	claim, err := WaitFor(ctx, c.client.CoreV1().PersistentVolumeClaims(namespace), name, condition)
	if err != nil && claim != nil {
		err = fmt.Errorf("%w%s", err, c.eventsOf(ctx, claim))
	}
	return claim, err
}

// WaitClaimBound waits until the claim is Bound.
func (c *Cluster) WaitClaimBound(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return c.WaitClaim(ctx, namespace, name, func(claim *corev1.PersistentVolumeClaim) bool {
		return claim.Status.Phase == corev1.ClaimBound
	})
}

// WaitVolumePhase waits until the PersistentVolume is in the phase.
func (c *Cluster) WaitVolumePhase(ctx context.Context, name string, phase corev1.PersistentVolumePhase) (*corev1.PersistentVolume, error) {
	volume, err := WaitFor(ctx, c.client.CoreV1().PersistentVolumes(), name, func(volume *corev1.PersistentVolume) bool {
		return volume.Status.Phase == phase
	})
	if err != nil && volume != nil {
		err = fmt.Errorf("%w%s", err, c.eventsOf(ctx, volume))
	}
	return volume, err
}

// WaitPodScheduled waits until the Pod has a node.
func (c *Cluster) WaitPodScheduled(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := WaitFor(ctx, c.client.CoreV1().Pods(namespace), name, func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName != ""
	})
	if err != nil && pod != nil {
		err = fmt.Errorf("%w%s", err, c.eventsOf(ctx, pod))
	}
	return pod, err
}

// WaitClaimGone waits until there is no such claim.
func (c *Cluster) WaitClaimGone(ctx context.Context, namespace, name string) error {
	return WaitGone[*corev1.PersistentVolumeClaim](ctx, c.client.CoreV1().PersistentVolumeClaims(namespace), name)
}

// WaitVolumeGone waits until there is no such PersistentVolume.
func (c *Cluster) WaitVolumeGone(ctx context.Context, name string) error {
	return WaitGone[*corev1.PersistentVolume](ctx, c.client.CoreV1().PersistentVolumes(), name)
}

// WaitEvent waits for an event with that reason on the object, which must have
// come from the API server: events are found by its UID. One that was there
// before counts.
func (c *Cluster) WaitEvent(ctx context.Context, object Object, reason string) (*corev1.Event, error) {
	var found *corev1.Event
	selector := fields.Set{"involvedObject.uid": string(object.GetUID()), "reason": reason}.AsSelector()
	err := follow(ctx, c.client.CoreV1().Events(eventNamespace(object)), selector, nil, func(event watch.Event) bool {
		found, _ = event.Object.(*corev1.Event)
		return found != nil && event.Type != watch.Deleted
	})
	if err != nil {
		return nil, fmt.Errorf("wait for an event %q on %T %q: %w%s", reason, object, object.GetName(), err, c.eventsOf(ctx, object))
	}
	return found, nil
}

// eventNamespace is where the events of an object are: those of one without a
// namespace are in the default one.
func eventNamespace(object Object) string {
	if namespace := object.GetNamespace(); namespace != "" {
		return namespace
	}
	return metav1.NamespaceDefault
}

// eventsOf is for the end of an error: the object's events, a line each.
func (c *Cluster) eventsOf(ctx context.Context, object Object) string {
	// The context has probably ended, or there would be no error to explain.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	selector := fields.OneTermEqualSelector("involvedObject.uid", string(object.GetUID()))
	events, err := c.client.CoreV1().Events(eventNamespace(object)).List(ctx, metav1.ListOptions{FieldSelector: selector.String()})
	if err != nil {
		return "\nits events: " + err.Error()
	}
	var b strings.Builder
	b.WriteString("\nits events:")
	for _, e := range events.Items {
		fmt.Fprintf(&b, "\n  %s %s %s: %s", e.Type, e.ReportingController+e.Source.Component, e.Reason, e.Message)
	}
	if len(events.Items) == 0 {
		b.WriteString(" none")
	}
	return b.String()
}
