package usage

import (
	"cmp"
	"math"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

// Measured is what a volume takes by its directory, which was read.
type Measured struct {
	Bytes  uint64 `json:"used"`
	Inodes uint64 `json:"inodesUsed"`
	// Estimate: not all of it was read.
	Estimate bool      `json:"estimate,omitempty"`
	At       time.Time `json:"measured"` // when it was read
}

// Sample is what probes of a volume found. Each probe goes down one way through the directories,
// chosen at random, and says what the whole volume takes if the other ways are like this one. Its
// mean is right however the directories are shaped (Knuth, Estimating the Efficiency of Backtrack
// Programs, Mathematics of Computation 29, 1975); how far one is off depends on that.
type Sample struct {
	Probes                 int
	Entries                int     // that were looked at
	Bytes, Inodes, Squares float64 // sums; the last one is of the squares of bytes
}

// Bounds of the probes of one volume.
const (
	fewestProbes = 64
	mostEntries  = 50_000
	// precise is the standard error at which there are enough probes, as a part of their mean.
	precise = 0.03
)

// Add takes what one probe found.
func (s *Sample) Add(bytes, inodes float64) {
	s.Probes++
	s.Bytes, s.Inodes, s.Squares = s.Bytes+bytes, s.Inodes+inodes, s.Squares+bytes*bytes
}

// Plus is both samples.
func (s Sample) Plus(more Sample) Sample {
	return Sample{s.Probes + more.Probes, s.Entries + more.Entries,
		s.Bytes + more.Bytes, s.Inodes + more.Inodes, s.Squares + more.Squares}
}

// Enough reports whether no more probes are needed, or wanted.
func (s Sample) Enough() bool {
	if s.Probes < fewestProbes || s.Entries >= mostEntries {
		return s.Entries >= mostEntries
	}
	n := float64(s.Probes)
	mean := s.Bytes / n
	variance := max(0, s.Squares-n*mean*mean) / (n - 1)
	return math.Sqrt(variance/n) <= precise*mean
}

// Estimate is what the volume takes by these probes, and no less than what was seen of it.
func (s Sample) Estimate(seen Measured) Measured {
	n := float64(max(s.Probes, 1))
	seen.Bytes = max(seen.Bytes, uint64(math.Round(s.Bytes/n)))
	seen.Inodes = max(seen.Inodes, uint64(math.Round(s.Inodes/n)))
	seen.Estimate = true
	return seen
}

// Figures are what the volumes of a pool without quotas take, in memory alone. The zero value is
// ready; it is safe for concurrent use.
type Figures struct {
	mu      sync.Mutex
	records []record.Record
	begun   map[string]time.Time // by PV: when it was measured last, or was to be
	of      map[string]Measured  // by PV
}

// Expect says which volumes there are. The figures of others are forgotten.
func (f *Figures) Expect(records []record.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records = nil
	begun, of := map[string]time.Time{}, map[string]Measured{}
	for _, r := range records {
		if r.Place != record.InPool {
			continue
		}
		f.records = append(f.records, r)
		if at, was := f.begun[r.PV]; was {
			begun[r.PV] = at
		}
		if m, known := f.of[r.PV]; known {
			of[r.PV] = m
		}
	}
	f.begun, f.of = begun, of
}

// Next returns the volume whose turn is longest due: its measuring began before a time, or it was
// not measured yet, which is the zero time.
func (f *Figures) Next(before time.Time) (r record.Record, since time.Time, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.records {
		at := f.begun[one.PV]
		if at.Before(before) && (!is || at.Before(since)) {
			r, since, is = one, at, true
		}
	}
	return r, since, is
}

// Begin notes that a volume has its turn: one that fails has its next when the others have.
func (f *Figures) Begin(pv string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.begun == nil {
		f.begun = map[string]time.Time{}
	}
	f.begun[pv] = now
}

// Set keeps a figure.
func (f *Figures) Set(pv string, m Measured) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[string]Measured{}
	}
	f.of[pv] = m
}

// Pool is what the pool's volumes take by these figures.
func (f *Figures) Pool() (p Pool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.Measured = make(map[string]Measured, len(f.of))
	whole := len(f.records) > 0
	for _, r := range f.records {
		m, known := f.of[r.PV]
		if !known {
			whole = false
			continue
		}
		p.Measured[r.PV] = m
		p.Used, p.Estimate = p.Used+m.Bytes, p.Estimate || m.Estimate
		if p.Oldest.IsZero() || m.At.Before(p.Oldest) {
			p.Oldest = m.At
		}
		if r.Kind == record.Volume {
			p.Volumes = append(p.Volumes, Volume{PV: r.PV, Namespace: r.Namespace, Claim: r.Claim,
				ClaimUID: r.ClaimUID, Usage: quota.Usage{Bytes: m.Bytes, Inodes: m.Inodes},
				Measured: &m})
		}
	}
	if !whole {
		p.Oldest = time.Time{}
	}
	return p
}

// byFullness orders volumes: those that take the largest part of their limits first, then those
// that take most.
func byFullness(a, b Volume) int {
	return cmp.Or(cmp.Compare(b.Part(), a.Part()), cmp.Compare(b.Bytes, a.Bytes),
		cmp.Compare(a.PV, b.PV))
}
