// Package usage judges what volumes take of their limits: which are nearly full, which a bounded
// number of metrics is about, whether files have escaped the limits, and whether there are projects
// for more volumes. Of volumes without limits it keeps what their directories took (Figures).
//
// It reads no disk (package volume does) and writes no event (package controller does).
package usage

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// Volume is a volume of a pool, and what it takes: by its project, with what that may take, or as
// its directory was read.
type Volume struct {
	PV, Namespace, Claim, ClaimUID string
	quota.Usage
	Measured *Measured // nil: it has a project
}

// Part is the larger part of its limits that a volume takes: of bytes, or of inodes. 0 for one
// without limits.
func (v Volume) Part() float64 {
	return max(part(v.Bytes, v.Limit.Bytes), part(v.Inodes, v.Limit.Inodes))
}

func part(used, limit uint64) float64 {
	if limit == 0 {
		return 0
	}
	return float64(used) / float64(limit)
}

// Pool is what the filesystem of a pool says of projects or, without these, what its directories
// take.
type Pool struct {
	Volumes []Volume      // those that have a project, by project
	Others  []quota.Usage // projects that no record has; the first may be 0, of files without a project
	Taken   int           // projects of the pool's range that a record, a file or a limit has
	Range   int           // how many projects that range has; 0: the pool has no project quotas
	// Used is the bytes of all projects that a record has, also of snapshots and of what is removed.
	Used uint64
	// Records is how many records the pool has, with those of volumes that have no project.
	Records int
	// Mixed: files without a project may be others' than the daemon's own: the filesystem is not
	// the pool's alone, or the pool has volumes without a limit, or directories that no record
	// knows.
	Mixed bool

	// Of a pool without project quotas: each volume's figure by PV, also of snapshots and inline
	// volumes, and whether one of them is an estimate.
	Measured map[string]Measured
	Estimate bool
	Oldest   time.Time // of the figures that Used is the sum of; zero: one is missing
}

// Fullest returns the n volumes that take the largest part of their limits, or most.
func Fullest(all []Volume, n int) []Volume {
	all = slices.Clone(all)
	slices.SortFunc(all, byFullness)
	return all[:min(max(n, 0), len(all))]
}

// A volume is nearly full from the first of these parts on, until it takes less than the second.
const (
	nearlyFull = 0.90
	enough     = 0.85
)

// Watch remembers what was found in a pool. The zero value is ready; it is used by one goroutine.
type Watch struct {
	full    map[string]bool // by PV
	escaped int             // looks in turn that found files that have escaped
	scarce  bool            // nearly all projects were taken at the look before
}

// Full returns the volumes that are nearly full and were not at the look before.
func (w *Watch) Full(p Pool) (now []Volume) {
	full := map[string]bool{}
	for _, v := range p.Volumes {
		was := w.full[v.PV]
		full[v.PV] = v.Part() >= nearlyFull || was && v.Part() >= enough
		if full[v.PV] && !was {
			now = append(now, v)
		}
	}
	w.full = full
	return now
}

// Retract has a volume told again that could not be told.
func (w *Watch) Retract(pv string) { delete(w.full, pv) }

// Escape returns the sentence of Escaped once, when the second look in turn has found something: a
// volume that is made or removed during a look is none's for a moment.
func (w *Watch) Escape(p Pool) string {
	message := Escaped(p)
	if message == "" {
		w.escaped = 0
		return ""
	}
	if w.escaped++; w.escaped != 2 {
		return ""
	}
	return message
}

// Scarce returns the sentence of Scarce once, and again after there were enough.
func (w *Watch) Scarce(p Pool) string {
	was := w.scarce
	w.scarce = takes(p) >= nearlyFull || was && takes(p) >= enough
	if !w.scarce || was {
		return ""
	}
	return scarce(p)
}

// Scarce is the sentence about a pool of whose projects nearly all are taken, "" while there are
// enough.
func Scarce(p Pool) string {
	if takes(p) < nearlyFull {
		return ""
	}
	return scarce(p)
}

func takes(p Pool) float64 { return part(uint64(p.Taken), uint64(p.Range)) }

func scarce(p Pool) string {
	return fmt.Sprintf("%d of the %d projects in quota_ids are taken, and each volume needs one; "+
		"volumes of the pool have %d", p.Taken, p.Range, len(p.Volumes))
}

// Nearly is the sentence about a volume that is nearly full.
func Nearly(v Volume) string {
	if v.Part() > part(v.Bytes, v.Limit.Bytes) {
		return fmt.Sprintf("volume %s has %d of %d files and directories", v.PV, v.Inodes, v.Limit.Inodes)
	}
	return fmt.Sprintf("volume %s takes %s of %s", v.PV, words.Size(v.Bytes), words.Size(v.Limit.Bytes))
}

// What the daemon's own files take at most, in bytes: directories, and a file for each record.
const (
	ownBase   = 16 << 20
	ownRecord = 64 << 10
	stray     = 1 << 20 // of all projects that no volume has
)

// Escaped is the sentence about files that no limit counts any more, "" if there are none: they
// have no project, or one that no volume has and nothing limits. A project with a limit belongs to
// whatever set that.
func Escaped(p Pool) string {
	without, others := escapees{}, escapees{}
	for _, u := range p.Others {
		switch {
		case u.Limit != (quota.Limit{}) || u.Bytes == 0:
		case u.ID == 0:
			without.add(u)
		default:
			others.add(u)
		}
	}
	found := without.above(ownBase + uint64(p.Records)*ownRecord).and(others.above(stray))
	if p.Mixed || found.bytes == 0 {
		return ""
	}
	return fmt.Sprintf("files of %s are counted to projects that no volume has (%s), so that no limit holds for them", words.Size(found.bytes), strings.Join(found.where, ", "))
}

// escapees are projects that no volume has.
type escapees struct {
	bytes uint64
	where []string // the first of them
}

func (e *escapees) add(u quota.Usage) {
	if e.bytes += u.Bytes; len(e.where) < 3 {
		e.where = append(e.where, fmt.Sprint(u.ID))
	}
}

// above is none if all of them together take no more than that.
func (e escapees) above(most uint64) escapees {
	if e.bytes <= most {
		return escapees{}
	}
	return e
}

func (e escapees) and(more escapees) escapees {
	where := append(e.where, more.where...)
	return escapees{e.bytes + more.bytes, where[:min(3, len(where))]}
}
