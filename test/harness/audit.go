package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// AuditLog counts the requests in an API server's audit log, which it reads as it grows.
type AuditLog struct {
	path string
	read int64 // bytes counted so far

	seconds map[int64]int // requests by the second in which the API server received them, since Busiest
}

// Requests are counts by verb, resource and error: "create events", "patch
// persistentvolumeclaims/status (409)".
type Requests map[string]int

// AuditOfDaemons is an audit policy that has the API server write a line for each request of the
// daemons: for a watch when it begins, for everything else when it is done.
const AuditOfDaemons = `apiVersion: audit.k8s.io/v1
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

// NewAuditLog writes an audit policy into a directory. It also returns the arguments with which a
// control plane has this log.
func NewAuditLog(dir, policy string) (*AuditLog, []string, error) {
	file := filepath.Join(dir, "audit-policy.yaml")
	l := &AuditLog{path: filepath.Join(dir, "audit.log"), seconds: map[int64]int{}}
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		return nil, nil, err
	}
	var args []string
	for _, flag := range []string{
		"audit-policy-file=" + file, "audit-log-path=" + l.path,
		"audit-log-mode=batch", "audit-log-batch-max-wait=200ms", // off the requests' path
		"audit-log-maxsize=100000", // MiB; 0 is 100, and then it would begin another file
	} {
		args = append(args, "--apiserver-flag=--"+flag)
	}
	return l, args, nil
}

// Take returns the requests that were logged since the last call, by the node that the client's
// token is bound to. Before the log exists there are none.
func (l *AuditLog) Take() (map[string]Requests, error) {
	file, err := os.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(l.read, io.SeekStart); err != nil {
		return nil, err
	}
	all := map[string]Requests{}
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return all, nil // the rest of the line is still to come
		}
		if err != nil {
			return all, err
		}
		l.read += int64(len(line))
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var event AuditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return all, fmt.Errorf("audit log: %w", err)
		}
		request := event.Request()
		if event.ResponseStatus.Code >= 400 {
			request += fmt.Sprintf(" (%d)", event.ResponseStatus.Code)
		}
		l.seconds[event.RequestReceivedTimestamp.Unix()]++
		add(all, strings.Join(event.User.Extra[nodeExtra], ","), request, 1)
	}
}

// Busiest returns how many of the requests that were counted since the last call came in one
// second, at most.
func (l *AuditLog) Busiest() (most int) {
	for _, n := range l.seconds {
		most = max(most, n)
	}
	clear(l.seconds)
	return most
}

// Settle waits until no request came for a time, but no longer than longest, and returns those
// since the last call. Nothing signals that the file grew, so that Settle polls it.
func (l *AuditLog) Settle(ctx context.Context, quiet, longest time.Duration) (map[string]Requests, error) {
	all, began, last := map[string]Requests{}, time.Now(), time.Now()
	for time.Since(last) < quiet && time.Since(began) < longest {
		got, err := l.Take()
		if err != nil {
			return all, err
		}
		for node, requests := range got {
			for request, n := range requests {
				add(all, node, request, n)
			}
			last = time.Now()
		}
		select {
		case <-ctx.Done():
			return all, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return all, nil
}

func add(all map[string]Requests, node, request string, n int) {
	if all[node] == nil {
		all[node] = Requests{}
	}
	all[node][request] += n
}

// nodeExtra is where the API server says which node a token is bound to (apiserver,
// pkg/authentication/serviceaccount, NodeNameKey).
const nodeExtra = "authentication.kubernetes.io/node-name"

// AuditEvent is what is read of a line of an audit log.
type AuditEvent struct {
	Verb                     string
	RequestReceivedTimestamp time.Time
	User                     struct {
		Username string
		Extra    map[string][]string
	}
	ObjectRef      struct{ Resource, Subresource string }
	ResponseStatus struct{ Code int }
}

// Request is a verb and a resource: "patch persistentvolumeclaims/status".
func (e AuditEvent) Request() string {
	return strings.TrimSuffix(e.Verb+" "+e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")
}

// SumRequests returns the requests of all nodes together.
func SumRequests(byNode map[string]Requests) Requests {
	sum := Requests{}
	for _, requests := range byNode {
		for request, n := range requests {
			sum[request] += n
		}
	}
	return sum
}

// Total returns the number of all requests.
func (r Requests) Total() int { return r.Of("", "") }

// Of returns the number of requests whose words begin and end with these.
func (r Requests) Of(prefix, suffix string) (n int) {
	for request, count := range r {
		if strings.HasPrefix(request, prefix) && strings.HasSuffix(request, suffix) {
			n += count
		}
	}
	return n
}

// String is "3 create events, 1 list nodes".
func (r Requests) String() string {
	var all []string
	for _, request := range slices.Sorted(maps.Keys(r)) {
		all = append(all, fmt.Sprintf("%d %s", r[request], request))
	}
	if all == nil {
		return "no requests"
	}
	return strings.Join(all, ", ")
}
