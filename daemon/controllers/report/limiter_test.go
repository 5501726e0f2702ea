package report

import (
	"fmt"
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	var l Limiter
	now := time.Unix(1e9, 0)
	allowed, logged := 0, 0
	warn := func(namespace string) {
		ok, logIt := l.Allow(namespace, now)
		if ok {
			allowed++
		}
		if logIt {
			logged++
		}
	}
	for range 3 * burst {
		warn("loud")
	}
	if allowed != burst || logged != 1 {
		t.Errorf("%d warnings, logged %d times that some are left out, want %d and once", allowed, logged, burst)
	}
	if warn("calm"); allowed != burst+1 {
		t.Error("a warning about another namespace was left out")
	}
	now = now.Add(10 * time.Second)
	for range 50 {
		warn("loud")
	}
	if allowed != burst+11 || logged != 1 {
		t.Errorf("%d warnings after 10 s, logged %d times, want 10 more", allowed, logged)
	}
	now = now.Add(time.Hour)
	for i := range 3 * manyNamespaces {
		warn(fmt.Sprint(i))
		now = now.Add(time.Second)
	}
	if len(l.namespaces) > manyNamespaces {
		t.Errorf("%d namespaces are remembered", len(l.namespaces))
	}
}
