package hostcheck

import (
	"fmt"
	"math"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Check judges what was seen, rule by rule, and reports everything that is wrong, in the order of
// the rules. It is pure.
func Check(e Expect, f Facts) Report {
	v := newView(e, f)
	r := Report{Pool: e.Pool, Path: e.Path, Findings: []Finding{}}
	for _, rule := range rules {
		if finding, found := rule.find(v); found {
			r.Findings = append(r.Findings, finding)
		}
	}
	if finding, found := v.unseen(r); found {
		r.Findings = append(r.Findings, finding)
	}
	if v.placed {
		v.fill(&r)
	}
	return r
}

// unseen closes a pool that no rule closes only because too little of it was seen: without its
// identity, or without a look for its marker, nothing tells whose filesystem it is.
func (v view) unseen(r Report) (Finding, bool) {
	_, closed := r.first(Close)
	seen := v.placed && v.facts.Path.Kind == Directory && v.facts.Path.Identity != mounts.Identity{} && v.facts.Marker.Looked
	return when(!closed && !seen, Close, ReasonNotSeen, "%s was not checked: its marker was not read", v.want.Path)
}

// view is what the rules look at: what is expected, what was seen, and where the mount table puts
// the two.
type view struct {
	want    Expect
	facts   Facts
	on      mounts.Mount   // covers the mount point; the path, where no mount is required
	pathOn  mounts.Mount   // covers the path
	root    mounts.Mount   // covers "/"
	stack   []mounts.Mount // everything at the mount point, the lowest first
	parent  mounts.Mount   // what the lowest of them stands on
	mounted bool           // something is mounted exactly at the mount point
	waits   bool           // an automounter covers it, and has mounted nothing yet
	placed  bool           // what the pool is asked about itself is really asked of the pool
	reserve uint64         // bytes
}

func newView(e Expect, f Facts) view {
	v := view{want: e, facts: f, reserve: reserve(e, f.Space.Size)}
	place := e.place()
	var known bool
	v.on, known = mounts.Covering(f.Mounts, place)
	v.pathOn = v.on
	if place != e.Path {
		v.pathOn, _ = mounts.Covering(f.Mounts, e.Path)
	}
	v.root, _ = mounts.Covering(f.Mounts, "/")
	v.stack, v.parent, _ = mounts.At(f.Mounts, place)
	v.waits = known && v.on.FSType == autofs
	v.mounted = known && !v.waits && v.on.Point == place
	v.placed = known && !v.waits && (v.mounted || !e.RequireMount)
	return v
}

// place is where the pool's filesystem is expected to be mounted; the path, where no mount is
// required.
func (e Expect) place() string {
	if e.RequireMount {
		return e.MountPoint
	}
	return e.Path
}

// fill writes into the report what is known of the pool itself.
func (v view) fill(r *Report) {
	r.Identity, r.Marker, r.Mark = v.facts.Path.Identity, v.facts.Marker.Marker.ID, v.facts.Marker.Marker
	r.Device = number(v.pathOn.Major, v.pathOn.Minor)
	s := v.facts.Space
	r.Size, r.Available, r.Inodes, r.InodesFree, r.Reserve = s.Size, s.Available, s.Inodes, s.InodesFree, v.reserve
	r.RootOnly, r.Labelled = s.RootOnly, v.facts.Label.Looked
	if s.Available > v.reserve {
		r.Free = s.Available - v.reserve
	}
}

// reserve is how many bytes of a filesystem of this size are kept back.
func reserve(e Expect, size uint64) uint64 {
	percent := e.ReservePercent
	if math.IsNaN(percent) || percent < 0 {
		percent = 0
	}
	part := uint64(float64(size) * min(percent, 100) / 100)
	return max(part, e.ReserveBytes)
}

// when is a finding if bad is true.
func when(bad bool, s Severity, reason, format string, args ...any) (Finding, bool) {
	if !bad {
		return Finding{}, false
	}
	return Finding{Reason: reason, Severity: s, Message: fmt.Sprintf(format, args...)}, true
}

// described is a mount as messages name it: "/ (ext4, /dev/vda)".
type described mounts.Mount

func (m described) String() string {
	if m.Point == "" {
		return "no mount that is known"
	}
	if m.Source == "" {
		return fmt.Sprintf("%s (%s)", m.Point, m.FSType)
	}
	return fmt.Sprintf("%s (%s, %s)", m.Point, m.FSType, m.Source)
}
