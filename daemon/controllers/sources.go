package controllers

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// sources are the claims that were read for clones just now and could not be cloned, by namespace
// and name: any number of clones can wait for one claim.
type sources struct {
	mu  sync.Mutex
	all map[string]unready
}

// unready is a claim without a volume, or nil for one that does not exist.
type unready struct {
	claim *corev1.PersistentVolumeClaim
	until time.Time
}

// unreadyFor is for how long a source is not read again: less than until a clone that waits for it
// is looked at again (plan.ForClaim).
const unreadyFor = 4 * time.Second

// read returns a claim as the API server has it now, if it has a volume, and else as it had it
// within unreadyFor.
func (s *sources) read(ctx context.Context, api Reader, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	key := namespace + "/" + name
	if known, is := s.known(key); is {
		return known, nil
	}
	claim, err := api.GetClaim(ctx, namespace, name)
	if err == nil && (claim == nil || claim.Spec.VolumeName == "") {
		s.keep(key, claim)
	}
	return claim, err
}

func (s *sources) known(key string) (*corev1.PersistentVolumeClaim, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, is := s.all[key]
	return one.claim, is && time.Now().Before(one.until)
}

// keep notes a source that cannot be cloned, and forgets those that were noted too long ago.
func (s *sources) keep(key string, claim *corev1.PersistentVolumeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.all, func(_ string, one unready) bool { return now.After(one.until) })
	if s.all == nil {
		s.all = map[string]unready{}
	}
	s.all[key] = unready{claim, now.Add(unreadyFor)}
}

func (s *sources) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = nil
}
