package controllers

import (
	"testing"
	"time"
)

func TestOutage(t *testing.T) {
	now := time.Unix(1e9, 0)
	type step struct {
		open  bool
		after time.Duration // the step before
		want  time.Duration
	}
	for name, steps := range map[string][]step{
		"closed from the start":   {{false, 0, explainAfter}, {false, time.Second, explainAfter - time.Second}, {false, time.Minute, 0}},
		"closed for a moment":     {{true, 0, 0}, {false, time.Minute, explainAfter}, {true, time.Second, explainAfter - time.Second}},
		"closed again much later": {{false, 0, explainAfter}, {true, time.Minute, 0}, {false, openFor, explainAfter}},
		"closed again at once":    {{false, 0, explainAfter}, {true, time.Minute, 0}, {false, openFor - 1, 0}},
		"to and fro": {{false, 0, explainAfter}, {true, time.Second, explainAfter - time.Second}, {false, time.Second, explainAfter - 2*time.Second},
			{true, time.Second, 0}, {false, time.Second, 0}, {true, openFor / 2, 0}, {false, openFor / 2, 0}},
	} {
		var o outage
		at := now
		for i, s := range steps {
			at = at.Add(s.after)
			o.note(s.open, at)
			if got := o.unexplained(at); got != s.want {
				t.Errorf("%s, step %d: unexplained for %s, want %s", name, i, got, s.want)
			}
		}
	}
	if new(outage).unexplained(now) != 0 {
		t.Error("a pool of which nothing is known is explained at once")
	}
}
