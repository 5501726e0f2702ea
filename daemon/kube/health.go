package kube

import (
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// trouble tells each trouble once, and once that all are over. Who meets an error while the server
// cannot be reached shares that trouble with the others; what the server itself says (forbidden, say)
// is told for each resource.
type health struct {
	mu   sync.Mutex
	tell func(error)
	now  map[string]string // by resource: its trouble
}

func newHealth(tell func(error)) *health {
	if tell == nil {
		tell = func(error) {}
	}
	return &health{tell: tell, now: map[string]string{}}
}

func (h *health) failed(resource string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kind := kindOf(resource, err)
	known := false
	for _, k := range h.now {
		known = known || k == kind
	}
	h.now[resource] = kind
	if !known {
		h.tell(fmt.Errorf("%s: %w", resource, err))
	}
}

func (h *health) recovered(resource string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, was := h.now[resource]; !was {
		return
	}
	delete(h.now, resource)
	if len(h.now) == 0 {
		h.tell(nil)
	}
}

const unreachable = "unreachable"

// kindOf: whatever is not an answer of the API server itself is one and the same trouble.
func kindOf(resource string, err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return unreachable
	}
	return resource + " " + string(status.Status().Reason)
}
