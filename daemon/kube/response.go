package kube

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// received is a pointer to an object that the API server sends.
type received interface {
	runtime.Object
	metav1.Object
}

// receiveObject sends a request and reads the response into an object. A success without the stored
// object of this name is an error, and so is one with another UID unless that is "": a load
// balancer in front of the API server responds with a page and 200, with 204, or with what it was
// sent.
func receiveObject(ctx context.Context, r *rest.Request, into received, name string, uid types.UID) error {
	result := r.Do(ctx)
	if err := result.Error(); err != nil {
		return ofRequest(r, err)
	}
	err := result.Into(into)
	if errors.As(err, new(apierrors.APIStatus)) || err == nil && is(into.GetName(), into.GetUID(), name, uid) {
		return err
	}
	return withoutObject(result, name)
}

// receiveDeletion is receiveObject for a deletion: the response is the object where a finalizer
// keeps it, or a Status.
func receiveDeletion(ctx context.Context, r *rest.Request, name string, uid types.UID) error {
	result := r.Do(ctx)
	if err := result.Error(); err != nil {
		return ofRequest(r, err)
	}
	got, err := result.Get()
	if errors.As(err, new(apierrors.APIStatus)) {
		return err
	}
	switch o := got.(type) {
	case *metav1.Status:
		if o.Details != nil && is(o.Details.Name, o.Details.UID, name, uid) {
			return nil
		}
	case metav1.Object:
		if is(o.GetName(), o.GetUID(), name, uid) {
			return nil
		}
	}
	return withoutObject(result, name)
}

// receiveList is receiveObject for a list, of which each real one has a version.
func receiveList(ctx context.Context, r *rest.Request, into interface {
	runtime.Object
	metav1.ListInterface
}) error {
	result := r.Do(ctx)
	if err := result.Error(); err != nil {
		return ofRequest(r, err)
	}
	err := result.Into(into)
	if errors.As(err, new(apierrors.APIStatus)) || err == nil && into.GetResourceVersion() != "" {
		return err
	}
	return withoutObject(result, "that was listed")
}

// ofRequest has an error that is neither a response nor the connection's say what it is of: the
// time of the request ended while it waited to be sent again, as the server had asked.
func ofRequest(r *rest.Request, err error) error {
	if errors.As(err, new(apierrors.APIStatus)) || errors.As(err, new(*url.Error)) {
		return err
	}
	return &url.Error{Op: "request", URL: r.URL().Redacted(), Err: err}
}

func is(gotName string, gotUID types.UID, name string, uid types.UID) bool {
	return gotName == name && gotUID != "" && (uid == "" || gotUID == uid)
}

// withoutObject is the error of a success whose response does not have the object. Whether the
// request was carried out is not known. It is an error of what responded, and not of the
// connection.
func withoutObject(result rest.Result, name string) error {
	var code int
	var contentType string
	result.StatusCode(&code).ContentType(&contentType)
	body, _ := result.Raw()
	const most = 100
	text := words.Line(fmt.Sprintf("the response with code %d (%s) does not have the object %s: %q",
		code, contentType, name, body[:min(len(body), most)]), words.MessageMax)
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: "WithoutObject", Message: text,
	}}
}
