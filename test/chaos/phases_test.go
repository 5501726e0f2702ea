package main

import (
	"testing"
	"time"
)

// The tries of a claim are those of the daemon's queues: 100 ms, doubled up to 30 s
// (controller.newQueue).
func TestTries(t *testing.T) {
	for within, want := range map[time.Duration]float64{
		0: 1, 99 * time.Millisecond: 1, 100 * time.Millisecond: 2, 300 * time.Millisecond: 3, 4 * time.Second: 6,
		51100 * time.Millisecond: 10, 81100 * time.Millisecond: 11, 111100 * time.Millisecond: 12,
	} {
		if got := tries(within); got != want {
			t.Errorf("%.0f tries within %s, want %.0f", got, within, want)
		}
	}
}

// Where nothing is to pass, each draw is a fault.
func TestOddsOfNothing(t *testing.T) {
	for name, w := range map[string]faultRates{"refusing": refusing, "dark": dark} {
		for kind, odds := range w.odds {
			sum := 0
			for _, n := range odds {
				sum += n
			}
			if sum != 1000 || odds[tooMany] < 10 || odds[tooMany] > 50 {
				t.Errorf("%s: %s: %d per mille in all, %v", name, kind, sum, odds)
			}
		}
	}
}
