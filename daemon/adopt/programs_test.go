package adopt

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// Whether another program leads is seen by its renewals, however wrong its host's clock is. A lock
// that nobody renews keeps nothing from being adopted; it costs its duration, and that is said.
func TestLeaderByItsRenewals(t *testing.T) {
	for name, c := range map[string]struct {
		clock  time.Duration // the other host's clock minus ours
		every  time.Duration // between two renewals; 0: there are none
		lasts  int32         // seconds
		adopts bool
		within time.Duration
	}{
		"renewed":                      {0, 2 * time.Second, 15, false, 3 * time.Second},
		"renewed, a day behind":        {-24 * time.Hour, 2 * time.Second, 15, false, 3 * time.Second},
		"renewed at its end":           {time.Hour, 14 * time.Second, 15, false, 15 * time.Second},
		"left, by a clock that is off": {24 * time.Hour, 0, 15, true, 16 * time.Second},
		"left, with an absurd length":  {0, 0, 1 << 30, true, 61 * time.Second},
	} {
		o, api := site(t)
		synctest.Test(t, func(t *testing.T) {
			began, said := time.Now(), ""
			o.Say = func(text string) { said += text }
			api.lock = func() *coordinationv1.Lease {
				at, holder := began.Add(c.clock), "pod-1"
				if c.every > 0 {
					at = at.Add(time.Since(began).Truncate(c.every))
				}
				renewed := metav1.NewMicroTime(at)
				return &coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns",
						Name: adoptrules.LeaderLock(plan.Kubevirt)},
					Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed,
						LeaseDurationSeconds: &c.lasts},
				}
			}
			row := one(t, Run, o)
			if took := time.Since(began); row.Done != c.adopts || took > c.within ||
				!c.adopts && !strings.Contains(row.Message, "pod-1 holds the leader's lock ns/") ||
				!strings.Contains(said, "whether a leader's lock is renewed") {
				t.Errorf("%s: after %s %+v, said %q", name, took, row, said)
			}
		})
	}
}
