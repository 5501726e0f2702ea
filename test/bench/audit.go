package main

import (
	"context"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// auditPolicy has the API server write a line for each request of a contender and of the controller
// that binds claims, watches excepted. A renewed lease is not about any claim.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted, Panic]
rules:
  - level: None
    resources: [{group: coordination.k8s.io, resources: [leases]}]
  - level: Metadata
    users: ["system:serviceaccount:hostpath-provisioner:hostpath-provisioner", "system:serviceaccount:bench:bench", "system:serviceaccount:kube-system:persistent-volume-binder"]
    verbs: [get, list, create, update, patch, delete, deletecollection]
  - level: None
`

// auditLog counts the contenders' requests, by the node that their tokens are bound to.
type auditLog struct{ *harness.AuditLog }

type requests = harness.Requests

// binderNode is in place of a node for the controller that binds claims: its token is not bound to
// one.
const binderNode = ""

func newAuditLog(dir string) (*auditLog, []string, error) {
	l, args, err := harness.NewAuditLog(dir, auditPolicy)
	return &auditLog{l}, args, err
}

const (
	quietFor = time.Second      // without a request a contender has nothing left to say
	quietIn  = 30 * time.Second // the longest that is waited for that
)

// settle waits until the contenders send no requests, and returns those since the last call, by
// node.
func (l *auditLog) settle(ctx context.Context) (map[string]requests, error) {
	return l.Settle(ctx, quietFor, quietIn)
}
