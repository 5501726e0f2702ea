package weather

import (
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// A file that is there for a moment, in the bare directory under a mount, is seen; a quiet place
// has nothing to tell.
func TestPlacesAreWatchedUnderAMount(t *testing.T) {
	dir := hosttest.Dir(t)
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	bare := spot{"bare", fd}
	for _, d := range pool.Directories {
		if err := os.MkdirAll(bare.path(hostcheck.PrivateDir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	hosttest.Mkfs(t, "ext4", 16).Mount(t, dir)
	for _, write := range []bool{false, true} {
		w, err := watchPlaces(bare)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		if write {
			name := bare.path(hostcheck.PrivateDir, "volumes", "x")
			if err := os.Mkdir(name, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
			want = []string{"created ours/volumes/x", "deleted ours/volumes/x"}
		}
		if got := w.close()["bare"]; !slices.Equal(got, want) {
			t.Errorf("seen %q, want %q", got, want)
		}
	}
}

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
