package weather

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// enough is how many volumes with data must be younger than the data that comes back, and how many
// of those that it knows must be gone from the disk, before the server is restored. Fewer of each
// are left by what is deleted while it dies.
const enough = 8

// restored is a day later. What the server then knows becomes what the claims are; the claims that
// were deleted meanwhile are back, most of them without their directories.
func (e *chaos) restored(ctx context.Context) {
	if _, err := os.Stat(e.etcd() + "-earlier"); err != nil {
		e.killed(ctx) // that phase was not played
	}
	harness.Pass(ctx, e.time/2)
	e.until(ctx, func() bool {
		return e.checker.fresh(e.earlier) >= enough && e.checker.withoutDirectory(e.earlier) >= enough
	})
	e.grow(ctx)
	e.die(ctx, func() error {
		if err := os.RemoveAll(e.etcd()); err != nil {
			return err
		}
		return copyTree(e.etcd()+"-earlier", e.etcd())
	})
	claims := e.checker.mustClaims(ctx)
	e.checker.newEpoch(claims)
	e.checker.beLenient(true)
	e.load.Adopt(claims)
}

// busyDay is how many versions the restored server is behind at least. It writes some 500 when it
// starts.
const busyDay = 1000

// grow waits until the lease of a shared pool is a later version than the one that will be
// restored, and makes so many versions that the restored server does not reach it at once.
func (e *chaos) grow(ctx context.Context) {
	if e.scope != plan.ScopeShared {
		return
	}
	was, now := e.lease(ctx), ""
	e.until(ctx, func() bool { now = e.lease(ctx); return now != was })
	if now == was {
		e.Fatalf("the lease of the pool was not renewed")
	}
	maps := e.Client.CoreV1().ConfigMaps(e.Namespace)
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "busy-"}}, metav1.CreateOptions{})
	for i := 0; err == nil && i < busyDay; i++ {
		_, err = maps.Patch(ctx, made.Name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"i":"%d"}}`, i), metav1.PatchOptions{})
	}
	e.Must(err, "writing to the API server")
}

// lease is the version of the lease of a shared pool.
func (e *chaos) lease(ctx context.Context) string {
	lease, err := e.Client.CoordinationV1().Leases("hostpath-provisioner").Get(ctx, leadership.Name(e.Name(), e.Node), metav1.GetOptions{})
	e.Must(err, "reading the lease of the pool")
	return lease.ResourceVersion
}

// afterRestore starts the daemon again, which then goes through its records, and deletes the claims
// that came back: they must go, though their directories are gone.
func (e *chaos) afterRestore(ctx context.Context, r *row) {
	e.toldOfLost(ctx, r)
	before := e.checker.orphans(ctx)
	e.Must(e.Stop(), "stopping the daemon")
	e.Must(e.Run(ctx), "starting the daemon again")
	for _, claim := range e.checker.mustClaims(ctx) {
		if e.load.Doomed(string(claim.UID)) {
			e.back++
			_ = e.load.Delete(ctx, claim.Name)
		}
	}
	e.checker.beLenient(false)
	var took time.Duration
	again, took := e.checker.settle(ctx, harness.Timeout)
	r.settled += took
	r.found.Merge(again, "")
	orphans := e.checker.orphans(ctx)
	e.kept = len(orphans)
	if e.kept != len(before) {
		r.found.Fault(harness.FilesLost, "%d volumes that the server had forgotten had data, %d after a restart", len(before), e.kept)
	}
	if e.kept == 0 || e.back == 0 {
		r.found.Fault(harness.NothingProven, "restored: %d orphans, %d claims came back", e.kept, e.back)
	}
	// One after the other is looked for at the API server.
	e.awaitTold(ctx, r, "is kept without a claim", func() []place {
		var logs []string
		for _, s := range e.checker.storages {
			logs = append(logs, s.Log())
		}
		return slices.DeleteFunc(slices.Clone(orphans), func(at place) bool {
			return told(logs[at.storage], at.pv, plan.ReasonOrphaned)
		})
	})
}

// awaitTold waits until the daemon has said what became of each volume.
func (e *chaos) awaitTold(ctx context.Context, r *row, what string, untold func() []place) {
	var left []place
	e.until(ctx, func() bool { left = untold(); return len(left) == 0 })
	for _, at := range left {
		r.found.Fault(harness.Unsettled, "%s %s, and nothing says so", at.pv, what)
	}
}

// told reports whether a log gives this reason for a volume.
func told(log, pv, reason string) bool {
	return strings.Contains(log, "reason="+reason+" volume="+pv)
}

// toldOfLost: of each claim that is back without its directory the daemon says so, without a
// restart. A node of scope every-node makes one anew, unless it had begun to empty it.
func (e *chaos) toldOfLost(ctx context.Context, r *row) {
	reason := plan.ReasonVolumeLost
	if e.scope == plan.ScopeEveryNode {
		reason = plan.ReasonPartRemoved
	}
	e.awaitTold(ctx, r, "has lost its directory", func() (untold []place) {
		claims := e.checker.mustClaims(ctx)
		for i, s := range e.checker.storages {
			log := s.Log()
			for _, claim := range claims {
				at := place{i, "pvc-" + string(claim.UID)}
				if !there(s.Path(at.pv)) && !told(log, at.pv, reason) {
					untold = append(untold, at)
				}
			}
		}
		return untold
	})
}
