package kube

import (
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// health is the health of the connection, by resource. It reports each failure once, and once that
// there is none any more. While the server cannot be reached all resources share one failure; what
// the server itself responds (forbidden, for example) is reported for each resource.
type health struct {
	mu       sync.Mutex
	report   func(error)
	failures map[string]string // the kind of failure by resource
}

func newHealth(report func(error)) *health {
	if report == nil {
		report = func(error) {}
	}
	return &health{report: report, failures: map[string]string{}}
}

func (h *health) failed(resource string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kind := failureKind(resource, err)
	known := false
	for _, k := range h.failures {
		known = known || k == kind
	}
	h.failures[resource] = kind
	switch {
	case known:
	case errors.Is(err, ErrCredentialRefused):
		h.report(err)
	case kind == notAccepted:
		h.report(fmt.Errorf("%w: %s", ErrCredentialRefused, Unauthorized))
	default:
		h.report(fmt.Errorf("%s: %w", resource, err))
	}
}

// is reports whether a resource has failed.
func (h *health) is(resource string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, failed := h.failures[resource]
	return failed
}

func (h *health) recovered(resource string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, failed := h.failures[resource]; !failed {
		return
	}
	delete(h.failures, resource)
	if len(h.failures) == 0 {
		h.report(nil)
	}
}

const unreachable, notAccepted = "unreachable", "refused"

// failureKind returns unreachable for every error that is not a response of the API server, and
// notAccepted where that does not accept the credential.
func failureKind(resource string, err error) string {
	switch {
	case apierrors.IsUnauthorized(err), errors.Is(err, ErrCredentialRefused):
		return notAccepted
	case !fromServer(err):
		return unreachable
	}
	return resource + " " + string(apierrors.ReasonForError(err))
}
