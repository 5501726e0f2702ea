package main

import (
	"context"
	"math/rand/v2"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// sideBySide is the case single: all processes run, each on a node of its own, and are given claims
// in turn, in an order that is drawn for each round: what the machine does to one it does to the
// next, a moment later.
func (a *environment) sideBySide(ctx context.Context, all []*running) {
	claims := map[*running][]*corev1.PersistentVolumeClaim{}
	for _, r := range all {
		claims[r], r.fault = r.ready(ctx)
	}
	fail := func(err error) bool {
		for _, r := range all {
			if r.fault == nil {
				r.fault = err
			}
		}
		return err != nil
	}
	if _, err := a.audit.settle(ctx); fail(err) {
		return
	}
	m, err := a.begin(ctx, all...)
	if fail(err) {
		return
	}
	for i := range all[0].amount() {
		for _, turn := range rand.Perm(len(all)) {
			if r := all[turn]; r.fault == nil {
				r.fault = r.one(ctx, claims[r][i])
			}
		}
	}
	m.end()
	if m.requests, err = a.audit.settle(ctx); fail(err) {
		return
	}
	for _, r := range all {
		if r.fault == nil {
			r.fault = r.note(ctx, m, claims[r])
		}
	}
}

// one gives the contender a claim and lets it be quiet again.
func (r *running) one(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if err := r.give(ctx, claim); err != nil {
		return err
	}
	_, err := r.await(ctx, []*corev1.PersistentVolumeClaim{claim})
	time.Sleep(r.bench.pause) // a pace, not a wait
	return err
}

// meter is what a case costs.
type meter struct {
	environment *environment
	of          []*running
	start       time.Time
	before      machineTime
	ours        time.Duration
	own         map[*running]time.Duration
	others      float64             // what strangers used up to end
	requests    map[string]requests // by node
}

// begin forgets the requests so far and begins to measure.
func (a *environment) begin(ctx context.Context, of ...*running) (meter, error) {
	m := meter{environment: a, of: of, own: map[*running]time.Duration{}}
	if err := a.collect(ctx); err != nil {
		return m, err
	}
	if _, err := a.audit.Take(); err != nil {
		return m, err
	}
	for _, r := range of {
		m.own[r] = r.ownCPU()
	}
	m.before, m.ours, m.start = machineCPU(), m.ourCPU(), time.Now()
	return m, nil
}

// end ends what is measured of the machine.
func (m *meter) end() { m.others = share(machineCPU(), m.before, m.ourCPU()-m.ours) }

// ourCPU is the processor time of everything that the benchmark runs, so far.
func (m *meter) ourCPU() time.Duration {
	all := processCPU(os.Getpid()) + processCPU(m.environment.cluster.PID())
	for _, r := range m.of {
		all += r.ownCPU()
	}
	return all
}
