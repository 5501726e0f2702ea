package kube

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// patch sends a change of one object, in Go's notation of its JSON, and returns the object as it is
// then. uid may be "".
func patch[T any, O interface {
	*T
	received
}](ctx context.Context, request *rest.Request, name string, uid types.UID, change any) (O, error) {
	text, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	now := O(new(T))
	return now, receiveObject(ctx, request.Name(name).Body(text).Timeout(callTimeout), now, name, uid)
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

func (c *Client) claimPatch(kind types.PatchType, namespace string) *rest.Request {
	return c.core.Patch(kind).Namespace(namespace).Resource("persistentvolumeclaims")
}

func (c *Client) volumePatch(kind types.PatchType) *rest.Request {
	return c.core.Patch(kind).Resource("persistentvolumes")
}

func labelChange(uid types.UID, label, value string) map[string]any {
	return map[string]any{"metadata": map[string]any{"uid": uid, "labels": map[string]string{label: value}}}
}
