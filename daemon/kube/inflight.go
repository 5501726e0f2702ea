package kube

import (
	"sync/atomic"
	"time"
)

// inFlight counts the volume objects that are being created. Normal events wait until there are
// none.
type inFlight struct {
	requests atomic.Int64
	ended    atomic.Int64 // when the last request ended, in nanoseconds since the epoch
}

// quietPeriod is how long no volume must have been created for a burst to be over: between two
// volumes of a burst is the time in which a directory is made.
const quietPeriod = 150 * time.Millisecond

// begin counts a request until end is called.
func (f *inFlight) begin() (end func()) {
	f.requests.Add(1)
	return func() {
		f.ended.Store(time.Now().UnixNano())
		f.requests.Add(-1)
	}
}

// busy reports whether a volume is being created, or was within quietPeriod.
func (f *inFlight) busy(now time.Time) bool {
	return f.requests.Load() > 0 || now.Sub(time.Unix(0, f.ended.Load())) < quietPeriod
}
