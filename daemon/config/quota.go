package config

import (
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

// setQuotaIDs takes the first and the last project of volumes.
func setQuotaIDs(p *Pool, v any) error {
	both, ok := v.([]any)
	if !ok || len(both) != 2 {
		return fmt.Errorf("want two numbers, the first and the last project, got %s", typeName(v))
	}
	var ids [2]int64
	for i, one := range both {
		if ids[i], ok = one.(int64); !ok {
			return fmt.Errorf("want two numbers, the first and the last project, got %s", typeName(one))
		}
		if ids[i] < 1 || ids[i] > quota.MostID {
			return fmt.Errorf("%d is not a project from 1 to %d", ids[i], quota.MostID)
		}
	}
	if ids[0] > ids[1] {
		return fmt.Errorf("the first project, %d, is above the last, %d", ids[0], ids[1])
	}
	p.QuotaFirst, p.QuotaLast = uint32(ids[0]), uint32(ids[1])
	return nil
}

// mostInodes bounds inodes_per_gib: ext4 and xfs have no more inodes than blocks of at least 1 KiB.
const mostInodes = 1 << 20

// mostMetrics bounds volume_metrics: four series for each volume.
const mostMetrics = 100_000

// number takes a whole number from 0 on.
func number[T any](most int64, take func(*T, int64)) func(*T, any) error {
	return func(t *T, v any) error {
		n, ok := v.(int64)
		if !ok || n < 0 || n > most {
			return fmt.Errorf("want a number from 0 to %d, got %s", most, typeName(v))
		}
		take(t, n)
		return nil
	}
}

// finishQuota checks the keys of quotas together.
func (l *loader) finishQuota(d *draft) {
	switch {
	case d.Scope == plan.ScopeEveryNode && d.Quota == plan.QuotaCeph:
		l.refuse(l.where(d, "quota"),
			"a volume of scope %q has a directory on each node: this would limit only one", d.Scope)
	case d.Scope == plan.ScopeShared && d.Quota == plan.QuotaProject:
		l.refuse(l.where(d, "quota"), "%q is for filesystems of one node, and the pool's scope is %q", d.Quota, d.Scope)
	}
	for _, key := range []string{"quota_ids", "inodes_per_gib"} {
		if _, said := l.set[l.where(d, key).key()]; said && d.Quota != plan.QuotaProject {
			l.warn(l.where(d, key), "means nothing while quota is %q", d.Quota)
		}
	}
}
