package main

import (
	"slices"
	"testing"
)

// What is let pass, and what is not: each limit from both sides.
func TestGrown(t *testing.T) {
	first := sample{rss: 40000, heap: 3000, fds: 17, threads: 30, goroutines: 180}
	for name, c := range map[string]struct {
		change func(*sample)
		want   []string
	}{
		"nothing":                {func(s *sample) {}, nil},
		"less":                   {func(s *sample) { s.rss, s.heap, s.fds, s.goroutines = 20000, 1000, 9, 90 }, nil},
		"RSS by 4 MiB":           {func(s *sample) { s.rss += 4096 }, nil},
		"RSS by more":            {func(s *sample) { s.rss += 4097 }, []string{"KiB of RSS: 40000, and now 44097"}},
		"heap by 512 KiB":        {func(s *sample) { s.heap += 512 }, nil},
		"heap by more":           {func(s *sample) { s.heap += 513 }, []string{"KiB of heap: 3000, and now 3513"}},
		"a descriptor":           {func(s *sample) { s.fds++ }, []string{"descriptors: 17, and now 18"}},
		"goroutines by 5 %":      {func(s *sample) { s.goroutines += 9 }, nil},
		"goroutines by more":     {func(s *sample) { s.goroutines += 10 }, []string{"goroutines: 180, and now 190"}},
		"threads of the workers": {func(s *sample) { s.threads = threadsMax }, nil},
		"one thread more":        {func(s *sample) { s.threads = threadsMax + 1 }, []string{"threads: 77, at most 76 were wanted"}},
	} {
		last := first
		c.change(&last)
		if got := grown(first, last); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
