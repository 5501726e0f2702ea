package report

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestPermanent(t *testing.T) {
	claims := schema.GroupResource{Resource: "persistentvolumeclaims"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"forbidden":             {apierrors.NewForbidden(claims, "c", errors.New("no")), true},
		"forbidden, wrapped":    {fmt.Errorf("patch claim: %w", apierrors.NewForbidden(claims, "c", errors.New("no"))), true},
		"bad request":           {apierrors.NewBadRequest("no"), true},
		"unauthorized":          {apierrors.NewUnauthorized("no"), false},
		"conflict":              {apierrors.NewConflict(claims, "c", errors.New("changed")), false},
		"unavailable":           {apierrors.NewServiceUnavailable("away"), false},
		"no response":           {errors.New("connection refused"), false},
		"nothing is wrong, nil": {nil, false},
	} {
		if got := Permanent(c.err); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
