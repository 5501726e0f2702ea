package controller

import (
	"context"
	"errors"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// failing is an API that deletes no volume object, as far as the daemon is told.
type failing struct {
	api
	with error
}

func (f *failing) ReleaseFinalizer(_ context.Context, pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	return pv, nil
}

func (f *failing) DeleteVolume(context.Context, *corev1.PersistentVolume) error { return f.with }

// A deletion that may have been done is remembered, so that its trash is emptied when the object is gone. One that
// certainly was not done is decided anew.
func TestLetGoIsRememberedWhileItIsUncertain(t *testing.T) {
	resource := corev1.Resource("persistentvolumes")
	for name, c := range map[string]struct {
		with error
		want bool
	}{
		"the answer is lost":       {io.ErrUnexpectedEOF, true},
		"500":                      {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), true},
		"503, of a proxy perhaps":  {apierrors.NewServiceUnavailable("upstream connect error or disconnect/reset before headers"), true},
		"it was changed meanwhile": {apierrors.NewConflict(resource, "pvc-a", errors.New("changed")), false},
		"forbidden":                {apierrors.NewForbidden(resource, "pvc-a", errors.New("no")), false},
		"429, of a proxy perhaps":  {apierrors.NewTooManyRequestsError("later"), true},
	} {
		controller, r := stand(&api{}, &shelf{})
		controller.API = &failing{with: c.with}
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-a"}}
		if err := controller.letGo(t.Context(), r, pv); !errors.Is(err, c.with) {
			t.Errorf("%s: %v", name, err)
		}
		if got := controller.ledger.has(letGoKey("pvc-a")); got != c.want {
			t.Errorf("%s: remembered: %t", name, got)
		}
	}
}
