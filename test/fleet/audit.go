package main

import (
	"context"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// After so long without a request the daemons are done with something: quiet with claims, afterLess
// with what there is less of, which the capacity is published ten seconds later, and afterReview
// with a start, after which one daemon reviews the others at least 15 seconds after the last
// review.
const (
	quiet       = 3 * time.Second
	afterLess   = 13 * time.Second
	afterReview = 20 * time.Second
	quietIn     = 2 * time.Minute
)

// settle waits until there are no requests for a while, and returns those since the last call.
func (f *fleet) settle(ctx context.Context, quiet time.Duration) (harness.Requests, error) {
	all, err := f.audit.Settle(ctx, quiet, quietIn)
	return harness.SumRequests(all), err
}

// take returns the requests that were logged since the last call.
func (f *fleet) take() (harness.Requests, error) {
	all, err := f.audit.Take()
	return harness.SumRequests(all), err
}
