package kube

import (
	"sync/atomic"
	"time"
)

// traffic knows whether volumes are being created just now.
type traffic struct {
	underWay atomic.Int64
	ended    atomic.Int64 // when the last one did, in ns since the epoch
}

// lull is how long nothing must have been created for the traffic to be over: between two volumes of
// a burst there is the time that a directory takes.
const lull = 150 * time.Millisecond

func (t *traffic) begin() (end func()) {
	t.underWay.Add(1)
	return func() {
		t.ended.Store(time.Now().UnixNano())
		t.underWay.Add(-1)
	}
}

func (t *traffic) busy(now time.Time) bool {
	return t.underWay.Load() > 0 || now.Sub(time.Unix(0, t.ended.Load())) < lull
}
