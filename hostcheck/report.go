package hostcheck

import (
	"fmt"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Immutability is how much the immutable flag of the directory under the mount point matters.
type Immutability string

// What may be asked for; anything else counts as ImmutableRequire.
const (
	ImmutableRequire Immutability = "require" // without it the gate closes
	ImmutableWarn    Immutability = "warn"
	ImmutableOff     Immutability = "off" // it is not looked at
)

// Expect is what the operator says a pool is.
type Expect struct {
	Pool         string       `json:"pool"`
	Path         string       `json:"path"`       // absolute and clean, at or below MountPoint
	MountPoint   string       `json:"mountPoint"` // absolute and clean
	RequireMount bool         `json:"requireMount"`
	Immutable    Immutability `json:"immutable"`
	Filesystem   string       `json:"filesystem,omitempty"` // "ext4"; "" is any
	// Device is "UUID=...", "LABEL=...", "PARTUUID=...", "PARTLABEL=...", "/dev/...", or the source
	// as the mount table spells it ("server:/export"); "" is any.
	Device         string  `json:"device,omitempty"`
	ReservePercent float64 `json:"reservePercent,omitempty"` // of the filesystem's size
	ReserveBytes   uint64  `json:"reserveBytes,omitempty"`   // the larger of the two counts
	Remembered     string  `json:"remembered,omitempty"`     // marker ID that this pool had before, "" if none is known
	// Node is this node's name, of a pool that is one node's; "" where other nodes have it, too.
	Node string `json:"node,omitempty"`
	// Exclusive: a filesystem of the network is mounted on this node and no other.
	Exclusive bool `json:"exclusive,omitempty"`
	// Cluster is the UID of the namespace kube-system; "" is not known.
	Cluster     string `json:"cluster,omitempty"`
	SELinuxType string `json:"selinuxType,omitempty"` // of volumes, where the filesystem has labels; "" is any
	// Quota: volumes are limited by project quotas.
	Quota bool `json:"quota,omitempty"`
	// Subvolumes: volumes are subvolumes.
	Subvolumes bool `json:"subvolumes,omitempty"`
	// Before are the host's pools that this one must not share directories with.
	Before []Neighbour `json:"before,omitempty"`
}

// Neighbour is another pool of the host.
type Neighbour struct {
	Pool string `json:"pool"`
	Path string `json:"path"`
}

// Severity is what a finding does to the pool's gate.
type Severity int

// Severities. The zero value is the safe one.
const (
	Close Severity = iota // nothing may be made or removed
	Full                  // nothing may be made; removing is what helps
	Warn                  // said, and nothing else
)

var severities = []string{Close: "close", Full: "full", Warn: "warn"}

// String is "close", "full" or "warn".
func (s Severity) String() string {
	if s < 0 || int(s) >= len(severities) {
		return "close"
	}
	return severities[s]
}

// MarshalText writes String.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Severity) UnmarshalText(text []byte) error {
	for i, name := range severities {
		if name == string(text) {
			*s = Severity(i)
			return nil
		}
	}
	return fmt.Errorf("severity %q is none of %q", text, severities)
}

// Finding is one thing that is not as it should be.
type Finding struct {
	Reason   string   `json:"reason"` // CamelCase and stable: a Reason constant
	Message  string   `json:"message"`
	Severity Severity `json:"severity"`
}

// Report is what one look at a pool found. It carries what is known, also when the pool is closed;
// sizes are of the filesystem that is mounted there, zero where none is, so that the host's own
// disk does not pass for an unmounted pool.
type Report struct {
	Pool      string          `json:"name"`
	Path      string          `json:"path"`
	Findings  []Finding       `json:"findings"` // in the order of the rules
	Identity  mounts.Identity `json:"identity"` // of the pool's directory
	Marker    string          `json:"marker,omitempty"`
	Mark      Marker          `json:"-"`         // all of it
	Device    string          `json:"-"`         // major:minor of its filesystem in the mount table
	Size      uint64          `json:"size"`      // bytes, statfs(2) f_blocks
	Available uint64          `json:"available"` // bytes, statfs(2) f_bavail
	RootOnly  uint64          `json:"-"`         // bytes that are free for root alone: f_bfree less f_bavail
	Reserve   uint64          `json:"reserve"`   // bytes
	Free      uint64          `json:"free"`      // bytes that new volumes may take: Available less Reserve, never below zero
	Inodes    uint64          `json:"inodes"`    // 0 where the filesystem does not count them (btrfs)
	// InodesFree counts those that any user may take.
	InodesFree uint64        `json:"inodesFree"`
	Labelled   bool          `json:"labelled,omitempty"` // the pool's files have SELinux labels
	Took       time.Duration `json:"-"`
}

// Without is the report without the warnings of these reasons. What closes a pool stays.
func (r Report) Without(accepted func(reason string) bool) Report {
	kept := []Finding{}
	for _, f := range r.Findings {
		if f.Severity != Warn || !accepted(f.Reason) {
			kept = append(kept, f)
		}
	}
	r.Findings = kept
	return r
}

// Add adds a finding, if there is one.
func (r *Report) Add(f Finding, found bool) {
	if found {
		r.Findings = append(r.Findings, f)
	}
}

// AddFirst adds a finding before all others: the first one is the pool's reason.
func (r *Report) AddFirst(f Finding) { r.Findings = append([]Finding{f}, r.Findings...) }

// Shut returns the first finding for which nothing may be made or removed.
func (r Report) Shut() (Finding, bool) { return r.first(Close) }

// Open reports whether volumes may be made: nothing found closes the pool or calls it full.
func (r Report) Open() bool {
	_, closed := r.Closed()
	return !closed
}

// Removable reports whether volumes may be removed: as Open, but a full pool counts as good,
// because removing is how it gets better.
func (r Report) Removable() bool {
	_, found := r.first(Close)
	return !found
}

// Closed is the finding that keeps the pool from taking new volumes: the first that closes it, or
// else the first that calls it full.
func (r Report) Closed() (Finding, bool) {
	if f, found := r.first(Close); found {
		return f, true
	}
	return r.first(Full)
}

func (r Report) first(s Severity) (Finding, bool) {
	for _, f := range r.Findings {
		if f.Severity == s {
			return f, true
		}
	}
	return Finding{}, false
}
