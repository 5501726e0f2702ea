package controllers

import (
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// A pool that is closed has nothing for the scheduler, although its filesystem responds and has
// space.
func TestCapacityOfAClosedPool(t *testing.T) {
	o := flappingOptions(&mount{}, &audience{}, nil, "c", storagev1.VolumeBindingWaitForFirstConsumer, many{})
	c := New(o)
	class, _ := o.Listers.Classes.Get("c")
	if bytes, _, known := c.Capacity(class); known {
		t.Errorf("before the pool was checked: %d", bytes)
	}
	r := hostcheck.Report{Pool: "fast", Free: 1 << 30, Size: 1 << 31, Findings: []hostcheck.Finding{{Reason: "ImmutableMissing", Severity: hostcheck.Close}}}
	c.Gate.Set(r, time.Now())
	if bytes, closed, known := c.Capacity(class); !known || bytes != 0 || closed != "ImmutableMissing" {
		t.Errorf("of a closed pool: %d, closed for %q, %t, want 0", bytes, closed, known)
	}
}
