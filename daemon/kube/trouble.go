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
type trouble struct {
	mu   sync.Mutex
	tell func(error)
	now  map[string]string // by resource: its trouble
}

func newTrouble(tell func(error)) *trouble {
	if tell == nil {
		tell = func(error) {}
	}
	return &trouble{tell: tell, now: map[string]string{}}
}

func (t *trouble) met(resource string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kind := kindOf(resource, err)
	known := false
	for _, k := range t.now {
		known = known || k == kind
	}
	t.now[resource] = kind
	if !known {
		t.tell(fmt.Errorf("%s: %w", resource, err))
	}
}

func (t *trouble) over(resource string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, was := t.now[resource]; !was {
		return
	}
	delete(t.now, resource)
	if len(t.now) == 0 {
		t.tell(nil)
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
