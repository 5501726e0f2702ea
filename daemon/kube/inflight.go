package kube

import (
	"sync/atomic"
	"time"
)

// traffic knows whether volumes are being created just now.
type inFlight struct {
	underWay atomic.Int64
	ended    atomic.Int64 // when the last one did, in ns since the epoch
}

// quietPeriod is how long nothing must have been created for the traffic to be over: between two volumes of
// a burst there is the time that a directory takes.
const quietPeriod = 150 * time.Millisecond

func (f *inFlight) begin() (end func()) {
	f.underWay.Add(1)
	return func() {
		f.ended.Store(time.Now().UnixNano())
		f.underWay.Add(-1)
	}
}

func (f *inFlight) busy(now time.Time) bool {
	return f.underWay.Load() > 0 || now.Sub(time.Unix(0, f.ended.Load())) < quietPeriod
}
