package adopt

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// lookForPrograms looks for other provisioners that run. Without the right to list pods that is not
// known.
func (s *survey) lookForPrograms(ctx context.Context) {
	provisioners := map[string]bool{}
	if s.Driver != "" {
		provisioners[s.Driver] = true
		s.lookForDriver(ctx)
	}
	for _, v := range s.volumes {
		provisioners[v.Annotations[plan.ProvisionedBy]] = true
	}
	err := s.API.EachPod(ctx, "", "status.phase!=Succeeded,status.phase!=Failed", func(pod *corev1.Pod) {
		for by := range provisioners {
			if shown := adoptrules.Runs(pod, by); shown != "" && s.running[by] == "" {
				s.running[by] = shown
			}
		}
	})
	if err != nil {
		s.notKnown = err.Error() // the driver's registration does not tell of its provisioner
	}
	if s.Driver != "" {
		return
	}
	s.lookForLeaders(ctx, provisioners)
}

const (
	// lockAgain is how often a lock is read that somebody may hold.
	lockAgain = time.Second
	// lockMost is for how long at most, whatever duration a lock has, which any user can write in a
	// namespace.
	lockMost = time.Minute
)

// lookForLeaders looks for programs that run outside of the cluster, which renew a leader's lock.
// It waits for that as long as a lock lasts: no two hosts' clocks are compared. The daemon's own
// kubeconfig may not look at other namespaces' locks: then the pods have to do.
func (s *survey) lookForLeaders(ctx context.Context, provisioners map[string]bool) {
	held, lasts := map[string]*coordinationv1.Lease{}, time.Duration(0)
	for {
		waits := false
		for by := range provisioners {
			_ = s.API.EachLock(ctx, adoptrules.LeaderLock(by), func(l *coordinationv1.Lease) {
				key := by + " " + l.Namespace + " " + l.Name
				before := held[key]
				if before == nil && adoptrules.Lasts(l) > 0 {
					held[key], lasts = l, max(lasts, min(adoptrules.Lasts(l), lockMost))
				}
				if shown := adoptrules.Leads(before, l); shown != "" && s.running[by] == "" {
					s.running[by] = shown
				}
				waits = waits || s.running[by] == "" && held[key] != nil
			})
		}
		if !waits || lasts <= 0 || ctx.Err() != nil {
			return
		}
		if len(held) > 0 && s.Say != nil {
			s.Say(fmt.Sprintf("looking for up to %s whether a leader's lock is renewed", lasts))
			s.Say = nil
		}
		lasts -= lockAgain
		select {
		case <-ctx.Done():
		case <-time.After(lockAgain):
		}
	}
}
