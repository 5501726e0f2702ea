package binding

import (
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
)

// recent is what was done lately, by pod UID: within report.Repeat. Older entries are forgotten.
// The zero value is ready for use.
type recent struct {
	mu sync.Mutex
	at map[string]time.Time
}

// add notes a pod, and reports whether it was noted lately.
func (r *recent) add(uid string) (was bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for pod, at := range r.at {
		if now.Sub(at) > report.Repeat {
			delete(r.at, pod)
		}
	}
	if r.at == nil {
		r.at = map[string]time.Time{}
	}
	_, was = r.at[uid]
	r.at[uid] = now
	return was
}

// has reports whether a pod was noted lately.
func (r *recent) has(uid string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, was := r.at[uid]
	return was && time.Since(at) <= report.Repeat
}
