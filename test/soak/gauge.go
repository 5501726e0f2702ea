package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// gauge measures a daemon from outside: /proc and its metrics.
type gauge struct {
	pid int
	url string
}

// sample is one measurement.
type sample struct {
	claims int     // made and deleted since the warm-up
	rate   float64 // claims a second in the round

	rss        int // KiB, VmRSS of proc(5)
	heap       int // KiB, the least that was allocated over some garbage collections
	fds        int // the least number meanwhile
	threads    int
	goroutines int // the least number meanwhile
}

const heading = "  claims  a second  RSS KiB  heap KiB  descriptors  threads  goroutines"

func (s sample) line() string {
	at := strconv.Itoa(s.claims)
	if s.claims == 0 {
		at = "warm"
	}
	return fmt.Sprintf("%8s  %8.0f  %7d  %8d  %11d  %7d  %10d", at, s.rate, s.rss, s.heap, s.fds, s.threads, s.goroutines)
}

// grown is what is more than 5 % above what it was, and threads beyond their limit. The daemon's
// heap is 3 MiB at rest, so that 5 % of it come and go by chance; what a claim leaves behind is
// more, after some thousands of them, than the KiB that are let pass.
func grown(first, last sample) (wrong []string) {
	for _, q := range []struct {
		what            string
		was, is, chance int
	}{
		{"KiB of RSS", first.rss, last.rss, 4096}, {"KiB of heap", first.heap, last.heap, 512},
		{"descriptors", first.fds, last.fds, 0}, {"goroutines", first.goroutines, last.goroutines, 0},
	} {
		if 100*q.is > 105*q.was && q.is-q.was > q.chance {
			wrong = append(wrong, fmt.Sprintf("%s: %d, and now %d", q.what, q.was, q.is))
		}
	}
	if last.threads > threadsMax {
		wrong = append(wrong, fmt.Sprintf("threads: %d, at most %d were wanted", last.threads, threadsMax))
	}
	return wrong
}

// threadsMax: Go ends no thread, and a goroutine that waits for the disk needs one. How many do at
// once is chance, so that the number may grow after the warm-up, but not beyond those that make
// volumes (16, the seats of daemon/controllers), those that remove them (16 and 1), and what the
// runtime and the pool's loop take.
const threadsMax = 16 + 17 + 43

// cycles is how many garbage collections are awaited. The daemon has no way to ask for one: each
// page of metrics makes garbage, so pages are asked for until there was enough of it.
const cycles = 4

func (g *gauge) measure(ctx context.Context) (s sample, err error) {
	if err := g.quiet(ctx); err != nil {
		return s, err
	}
	for begin, now := -1, 0; now < begin+cycles || begin < 0; {
		page, err := g.scrape(ctx)
		if err != nil {
			return s, err
		}
		now = page["go_gc_duration_seconds_count"]
		if begin < 0 {
			begin = now
		}
		fds, err := process.Descriptors(g.pid)
		if err != nil {
			return s, err
		}
		s.heap = least(s.heap, page["go_memstats_alloc_bytes"]/1024)
		s.goroutines, s.fds = least(s.goroutines, page["go_goroutines"]), least(s.fds, fds)
	}
	status, err := process.Status(g.pid)
	if err != nil {
		return s, err
	}
	s.rss, s.threads = status["VmRSS"], status["Threads"]
	return s, nil
}

// least: what a look at the pool opens and starts is gone in the next moment; what leaked is not.
func least(was, is int) int {
	if was == 0 {
		return is
	}
	return min(was, is)
}

// quiet waits for a second in which the daemon used at most 10 ms of processor time: its events are
// written then, and its trash is empty.
func (g *gauge) quiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for last := -time.Second; ; {
		now, err := process.CPUTime(g.pid)
		if err != nil || now-last <= 10*time.Millisecond {
			return err
		}
		last = now
		select {
		case <-ctx.Done():
			return fmt.Errorf("the daemon does not come to rest: %w", ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// plain asks for no compression, whose tables are two thirds of a megabyte of the daemon's heap and
// come and go with its pools.
var plain = &http.Client{Transport: &http.Transport{DisableCompression: true}}

// scrape is the metrics without labels.
func (g *gauge) scrape(ctx context.Context) (map[string]int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url, nil)
	if err != nil {
		return nil, err
	}
	response, err := plain.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s, %w", g.url, response.Status, err)
	}
	all := map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = int(n)
		}
	}
	return all, nil
}
