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

// auditLog counts the contenders' requests. One contender runs at a time, so that all are its own.
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

// add counts what another count had.
func (r requests) add(other requests) {
	for key, count := range other {
		r[key] += count
	}
}

// count answers what was logged since the last call.
func (l *auditLog) count() (requests, error) {
	file, err := os.Open(l.path)
	if os.IsNotExist(err) {
		return requests{}, nil
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

// countRequests reads whole lines, and answers how many bytes they were. A renewed lease is not
// about any claim and does not count.
func countRequests(from io.Reader) (requests, int64, error) {
	got, size := requests{}, int64(0)
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
			Verb      string `json:"verb"`
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
		got[key]++
	}
}

const (
	quietFor = time.Second      // without a request a contender has nothing left to say
	quietIn  = 30 * time.Second // the longest that is waited for that
)

// settle waits until the contender is quiet, and answers its requests since the last call. The file
// tells nobody that it grew, so it is looked at again and again.
func (l *auditLog) settle(ctx context.Context) (requests, error) {
	all, begin, last := requests{}, time.Now(), time.Now()
	for time.Since(last) < quietFor && time.Since(begin) < quietIn {
		got, err := l.count()
		if err != nil {
			return nil, err
		}
		if len(got) > 0 {
			all.add(got)
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
