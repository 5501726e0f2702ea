package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
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

// auditLog counts the daemons' requests.
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
		"audit-log-mode=batch", "audit-log-batch-max-wait=200ms", // off the requests' path
		"audit-log-maxsize=100000", // MiB; 0 is 100, and then it would begin another file
	} {
		args = append(args, "--apiserver-flag=--"+flag)
	}
	return l, args, nil
}

// requests are counts by verb, resource and error, "patch persistentvolumeclaims (409)".
type requests map[string]int

// of sums the counts of what begins and ends with these.
func (r requests) of(prefix, suffix string) (n int) {
	for what, count := range r {
		if strings.HasPrefix(what, prefix) && strings.HasSuffix(what, suffix) {
			n += count
		}
	}
	return n
}

func (r requests) total() int { return r.of("", "") }

func (r requests) words() string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(r)) {
		all = append(all, fmt.Sprintf("%s %d", what, r[what]))
	}
	return strings.Join(all, ", ")
}

// take returns the requests that were logged since the last call.
func (l *auditLog) take() (requests, error) {
	got := requests{}
	file, err := os.Open(l.path)
	if err != nil {
		return got, err
	}
	defer file.Close()
	if _, err := file.Seek(l.read, io.SeekStart); err != nil {
		return got, err
	}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return got, nil // the rest of the line is still to come
		}
		if err != nil {
			return got, err
		}
		l.read += int64(len(line))
		what, err := about(line)
		if err != nil {
			return got, err
		}
		got[what]++
	}
}

func about(line []byte) (string, error) {
	var event struct {
		Verb      string `json:"verb"`
		ObjectRef struct {
			Resource string `json:"resource"`
		} `json:"objectRef"`
		ResponseStatus struct {
			Code int `json:"code"`
		} `json:"responseStatus"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return "", fmt.Errorf("audit log: %w", err)
	}
	what := event.Verb + " " + event.ObjectRef.Resource
	if event.ResponseStatus.Code >= 400 {
		what += fmt.Sprintf(" (%d)", event.ResponseStatus.Code)
	}
	return what, nil
}

const (
	quietFor = 3 * time.Second  // after so long without a request the daemons are idle
	quietIn  = 60 * time.Second // the longest wait for that
)

// settle waits until there are no requests, and returns those since the last call. Nothing signals that the file
// grew, so that settle polls it.
func (l *auditLog) settle(ctx context.Context) (requests, error) {
	all := requests{}
	begin := time.Now()
	for last := begin; time.Since(last) < quietFor && time.Since(begin) < quietIn; {
		got, err := l.take()
		if err != nil {
			return all, err
		}
		if len(got) > 0 {
			last = time.Now()
		}
		for what, n := range got {
			all[what] += n
		}
		select {
		case <-ctx.Done():
			return all, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return all, nil
}
