package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// auditPolicy has the API server write a line for each request of a contender, watches excepted.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted, Panic]
rules:
  - level: Metadata
    users: ["system:serviceaccount:hostpath-provisioner:hostpath-provisioner", "system:serviceaccount:bench:bench"]
    verbs: [get, list, create, update, patch, delete, deletecollection]
  - level: None
`

// auditLog counts the contenders' requests, by the node that their tokens are bound to.
type auditLog struct {
	path string
	read int64 // bytes counted so far
}

func newAuditLog(dir string) (*auditLog, []string, error) {
	policy := filepath.Join(dir, "audit-policy.yaml")
	l := &auditLog{path: filepath.Join(dir, "audit.log")}
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, nil, err
	}
	var args []string
	for _, flag := range []string{
		"audit-policy-file=" + policy, "audit-log-path=" + l.path,
		// Off the requests' path.
		"audit-log-mode=batch", "audit-log-batch-max-wait=200ms",
		"audit-log-maxsize=100000", // MiB; 0 is 100, and then it would begin another file
	} {
		args = append(args, "--apiserver-flag=--"+flag)
	}
	return l, args, nil
}

// requests are counts by verb and resource, "create events".
type requests map[string]int

func (r requests) total() (n int) {
	for _, count := range r {
		n += count
	}
	return n
}

// count returns the requests that were logged since the last call, by node.
func (l *auditLog) count() (map[string]requests, error) {
	file, err := os.Open(l.path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(l.read, io.SeekStart); err != nil {
		return nil, err
	}
	got, n, err := countRequests(file)
	l.read += n
	return got, err
}

// nodeExtra is where the API server says which node a token is bound to (apiserver,
// pkg/authentication/serviceaccount, NodeNameKey).
const nodeExtra = "authentication.kubernetes.io/node-name"

// countRequests reads whole lines, and returns how many bytes they have. A renewed lease is not
// about any claim and does not count.
func countRequests(from io.Reader) (map[string]requests, int64, error) {
	got, size := map[string]requests{}, int64(0)
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return got, size, nil // the rest of the line is still to come
		}
		if err != nil {
			return got, size, err
		}
		size += int64(len(line))
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var event struct {
			Verb string `json:"verb"`
			User struct {
				Extra map[string][]string `json:"extra"`
			} `json:"user"`
			ObjectRef struct {
				Resource    string `json:"resource"`
				Subresource string `json:"subresource"`
			} `json:"objectRef"`
			ResponseStatus struct {
				Code int `json:"code"`
			} `json:"responseStatus"`
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return got, size, fmt.Errorf("audit log: %w", err)
		}
		if event.ObjectRef.Resource == "leases" {
			continue
		}
		key := strings.TrimSuffix(event.Verb+" "+event.ObjectRef.Resource+"/"+event.ObjectRef.Subresource, "/")
		if event.ResponseStatus.Code >= 400 {
			key += fmt.Sprintf(" (%d)", event.ResponseStatus.Code)
		}
		node := strings.Join(event.User.Extra[nodeExtra], ",")
		if got[node] == nil {
			got[node] = requests{}
		}
		got[node][key]++
	}
}

const (
	quietFor = time.Second      // without a request a contender has nothing left to say
	quietIn  = 30 * time.Second // the longest that is waited for that
)

// settle waits until the contenders send no requests, and returns those since the last call, by
// node. Nothing signals that the file grew, so that settle polls it.
func (l *auditLog) settle(ctx context.Context) (map[string]requests, error) {
	all, begin, last := map[string]requests{}, time.Now(), time.Now()
	for time.Since(last) < quietFor && time.Since(begin) < quietIn {
		got, err := l.count()
		if err != nil {
			return nil, err
		}
		for node, some := range got {
			if all[node] == nil {
				all[node] = requests{}
			}
			for key, n := range some {
				all[node][key] += n
			}
			last = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return all, nil
}
