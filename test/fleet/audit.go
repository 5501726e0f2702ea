package main

import (
	"context"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// auditPolicy has the API server write a line for each request of the daemons: for a watch when it begins, for
// everything else when it is done.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
  - level: Metadata
    users: ["system:serviceaccount:hostpath-provisioner:hostpath-provisioner"]
    verbs: [watch]
    omitStages: [RequestReceived, ResponseComplete, Panic]
  - level: Metadata
    users: ["system:serviceaccount:hostpath-provisioner:hostpath-provisioner"]
    omitStages: [RequestReceived, ResponseStarted, Panic]
  - level: None
`

const (
	quietFor = 3 * time.Second  // after so long without a request the daemons are idle
	quietIn  = 60 * time.Second // the longest wait for that
)

// settle waits until there are no requests, and returns those since the last call.
func (f *fleet) settle(ctx context.Context) (harness.Requests, error) {
	all, err := f.audit.Settle(ctx, quietFor, quietIn)
	return harness.SumRequests(all), err
}

// take returns the requests that were logged since the last call.
func (f *fleet) take() (harness.Requests, error) {
	all, err := f.audit.Take()
	return harness.SumRequests(all), err
}
