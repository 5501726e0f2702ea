package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

// metered is a storage that knows what volumes take, and the metrics of it.
type metered struct {
	disk.Storage
	pool usage.Pool
	err  error
	told []usage.Volume
}

func (m *metered) Usage(context.Context, mounts.Identity) (usage.Pool, error) { return m.pool, m.err }

// meter is the metrics.
type meter struct {
	deafToAll
	of *metered
}

func (m meter) Usage(_ string, takes usage.Pool) { m.of.told = takes.Volumes }

// What volumes take is told to the metrics, a claim when its volume is nearly full, and the node
// when files escape. A pool that is closed, or does not tell, has no figures.
func TestMeasure(t *testing.T) {
	m := &metered{pool: usage.Pool{
		Volumes: []usage.Volume{{PV: "pvc-u", Namespace: "ns", Claim: "c", ClaimUID: "u", Usage: quota.Usage{ID: 5, Bytes: 95, Limit: quota.Limit{Bytes: 100}}}},
		Others:  []quota.Usage{{ID: 7, Bytes: 1 << 30, Inodes: 1}},
		Taken:   9, Range: 10,
	}}
	c, w := stand(&api{}, m)
	heard := &audience{}
	c.Metrics, c.Events = meter{of: m}, heard
	var watch usage.Watch
	for range 3 {
		c.measureOnce(t.Context(), w, &watch)
	}
	if got := heard.of("u"); len(m.told) != 1 || !slices.Equal(got, []string{"VolumeNearlyFull: volume pvc-u takes 95 B of 100 B"}) {
		t.Errorf("%d volumes in the metrics, events on the claim: %q", len(m.told), got)
	}
	if got := heard.of("node-a"); len(got) != 2 || !strings.HasPrefix(got[0], "FewProjectsLeft: pool fast: 9 of the 10") || !strings.HasPrefix(got[1], "QuotaEscaped: ") {
		t.Errorf("events on the node: %q", got)
	}
	m.err = errors.New("it does not tell")
	if c.measureOnce(t.Context(), w, &watch); m.told != nil {
		t.Errorf("after an error: %v", m.told)
	}
	m.err, m.told = nil, m.pool.Volumes
	c.Gate.Set(hostcheck.Report{Pool: "fast", Findings: []hostcheck.Finding{{Reason: "NotMounted", Severity: hostcheck.Close}}}, time.Now())
	if c.measureOnce(t.Context(), w, &watch); m.told != nil {
		t.Errorf("of a closed pool: %v", m.told)
	}
}
