package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// measureBinder prints what kube-controller-manager itself needs, at its own limit of 20 requests a
// second: it asks for a claim's volume and binds it, whichever provisioner makes the volume.
func (b *bench) measureBinder(ctx context.Context) error {
	contender := nameFloor
	if slices.Contains(b.contenders, nameDaemon) && b.samples.failure(nameDaemon) == nil {
		contender = nameDaemon
	}
	// These come last and bring upstream's limits back.
	ctx, a, err := b.newEnvironment(ctx, b.contenders, "--kcm-qps=0", "--kcm-burst=0")
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "\nkube-controller-manager with its own limits, %d claims at once, volumes by: %s\n", b.binder, titles[contender])
	err = b.onFixtures(ctx, a, []string{contender}, "binder", 0, func(ctx context.Context, all []*running) {
		all[0].fault = all[0].bind(ctx, b.binder)
	})
	if err != nil {
		return err
	}
	return b.CleanUp()
}

func (r *running) bind(ctx context.Context, n int) (err error) {
	if r.process, err = r.start(r.fixture); err != nil {
		return err
	}
	if _, err = r.more(ctx, "bound", n, false); err != nil {
		return err
	}
	begin := time.Now()
	// The scheduler's part alone: asking the provisioner is kube-controller-manager's.
	selected := map[string]string{plan.SelectedNode: nodeOf(r.fixture.contender)}
	err = parallel(n, func(i int) error { return r.environment.annotate(ctx, r.claims[i], selected) })
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, max(r.limit, time.Duration(n)*time.Second))
	defer cancel()
	all, err := r.environment.observer.see(ctx, r.claims, made)
	if err != nil {
		return err
	}
	bound, err := r.environment.observer.see(ctx, r.claims, isBound)
	if err != nil {
		return err
	}
	volumes := newSample(all, begin)
	slowest := slices.MaxFunc(bound, func(a, b sighting) int { return a.bound.Compare(b.bound) })
	fmt.Fprintf(r.out, "%.1f volumes a second were made; %.1f claims a second were Bound\n",
		volumes.rate, float64(n)/slowest.bound.Sub(begin).Seconds())
	return nil
}
