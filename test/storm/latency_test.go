package main

import (
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	var all []time.Duration
	for i := range 200 {
		all = append(all, time.Duration(200-i))
	}
	for percent, want := range map[int]time.Duration{0: 1, 50: 100, 99: 198, 100: 200} {
		if got := percentile(all, percent); got != want {
			t.Errorf("p%d is %d, want %d", percent, got, want)
		}
	}
	if got := percentile(nil, 99); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
}
