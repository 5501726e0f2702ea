package plan

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
)

// Sources of a pool's volumes, as spelt in the configuration and in class parameters.
const (
	SourceHostPath = "hostPath"
	SourceLocal    = "local"
	SourceCSI      = "csi" // published on the node by the daemon's own CSI driver
)

// What happens to a volume's directory when its claim goes and the reclaim policy is Delete.
const (
	OnDeleteDelete  = "delete"
	OnDeleteArchive = "archive"
)

// How volumes are limited to their claims' size, as spelt in the configuration.
const (
	QuotaOff     = "off"
	QuotaProject = "project" // project quotas of xfs and ext4
	QuotaCeph    = "ceph"    // the attribute of CephFS
)

// Pool is what a decision needs to know of a configured pool.
type Pool struct {
	Name     string
	Set      string      // of several pools that a class names at once, "" for none
	Path     string      // absolute and clean
	Scope    string      // ScopeNode, ScopeShared or ScopeEveryNode
	Source   string      // SourceHostPath, SourceLocal or SourceCSI
	Sourced  bool        // the configuration says the source, and not its default
	Mode     fs.FileMode // of a volume's directory
	UID, GID int         // its owner and group
	OnDelete string      // OnDeleteDelete or OnDeleteArchive
	Default  bool        // the pool of a class that names none
	Fill     bool        // of several pools, the first that a volume fits in, and not the emptiest
	Reclaim  string      // the volumes' reclaim policy in place of the class's, "" for the class's
	Named    bool        // the configuration says how directories are named, and not its default
	Quota    string      // how volumes are limited to their claims' size: QuotaOff, QuotaProject or QuotaCeph
	Clones   string      // how they are cloned: ClonesOff, ClonesReflink or ClonesCopy
	// Snapshots is how snapshots of them are made: SnapshotsOff, SnapshotsLive, SnapshotsPaused,
	// SnapshotsSnapshot or SnapshotsCopy.
	Snapshots string
	// SnapshotSpace is how many bytes the snapshots of one namespace may be promised together, 0:
	// any.
	SnapshotSpace uint64
	// Inline is how many bytes the inline volumes of the pool may be promised together, 0: it has
	// none.
	Inline uint64
	// Directory gives a volume's directory name: one path element.
	Directory func(pv, namespace, claim string) (string, error)
}

// Class parameters.
const (
	paramPool     = "pool"
	paramPools    = "pools"
	paramPlace    = "placement"
	paramPvDir    = "pvDir"
	paramSource   = "source"
	paramMode     = "mode"
	paramOnDelete = "onDelete"
	paramCephFS   = "cephFSQuota"
)

var knownParams = []string{
	paramCephFS, paramMode, paramOnDelete, paramPlace, paramPool, paramPools, paramPvDir, paramSource,
}

// Values of paramPlace.
const (
	placeSpread = "spread" // where most is free
	placeFill   = "fill"   // in the first that it fits in
)

// Resolve is the first of Candidates: all of them have one scope.
func (s Self) Resolve(class *storagev1.StorageClass, pools []Pool) (Pool, *Refusal) {
	all, refusal := s.Candidates(class, pools)
	if refusal != nil {
		return Pool{}, refusal
	}
	return all[0], nil
}

// Candidates finds the pools that a class asks for, with the class's own settings put over theirs:
// one, or several of one node, of which each volume is in one (ClaimFacts.Place).
func (s Self) Candidates(class *storagev1.StorageClass, pools []Pool) ([]Pool, *Refusal) {
	class, refusal := s.translate(class, pools)
	if refusal != nil {
		return nil, refusal
	}
	params := class.Parameters
	for _, key := range slices.Sorted(maps.Keys(params)) {
		if !slices.Contains(knownParams, key) {
			return nil, refuse(ReasonUnknownParameter, "class %s: unknown parameter %q; known are %s",
				class.Name, key, strings.Join(knownParams, ", "))
		}
	}
	all, refusal := choose(class, pools)
	for i := 0; i < len(all) && refusal == nil; i++ {
		if len(all) > 1 && !all[i].OfOneNode() {
			return nil, refuse(ReasonBadParameter,
				"class %s: several pools are for volumes of one node, and pool %s has scope %s",
				class.Name, all[i].Name, all[i].Scope)
		}
		all[i], refusal = s.settled(class, all[i])
	}
	if refusal != nil {
		return nil, refusal
	}
	return all, nil
}

// settled puts a class's own settings over a pool's.
func (s Self) settled(class *storagev1.StorageClass, pool Pool) (Pool, *Refusal) {
	resolved, refusal := override(class, named(class.Provisioner, s.sourced(class.Provisioner, pool)))
	if _, other := systems[class.Provisioner]; refusal == nil && !other && len(class.MountOptions) > 0 && resolved.Source == SourceHostPath {
		return Pool{}, refuse(ReasonBadParameter, "class %s: mountOptions: kubelet starts no pod on a hostPath volume that has any; mount the pool's filesystem with them, or set %s: %s", class.Name, paramSource, SourceLocal)
	}
	if refusal == nil {
		refusal = s.refuseCSI(class, resolved)
	}
	return resolved, refusal
}

// choose finds the pools that a class names, in the order in which they are given.
func choose(class *storagev1.StorageClass, pools []Pool) ([]Pool, *Refusal) {
	name, named := class.Parameters[paramPool]
	list, listed := class.Parameters[paramPools]
	dir, placed := class.Parameters[paramPvDir]
	switch {
	case named && placed:
		return nil, refuse(ReasonBadParameter, "class %s: parameters %s and %s exclude each other",
			class.Name, paramPool, paramPvDir)
	case listed && (named || placed):
		return nil, refuse(ReasonBadParameter, "class %s: parameter %s excludes %s and %s",
			class.Name, paramPools, paramPool, paramPvDir)
	case named:
		return find(pools, func(p Pool) bool { return p.Name == name || p.Set == name },
			unknownPool("class %s: this node has no pool %q; it has %s", class.Name, name, names(pools)))
	case listed:
		of := strings.Split(strings.ReplaceAll(list, " ", ""), ",")
		isOf := func(p Pool) bool {
			return slices.Contains(of, p.Name) || p.Set != "" && slices.Contains(of, p.Set)
		}
		return find(pools, isOf, unknownPool(
			"class %s: this node has none of the pools %q; it has %s", class.Name, list, names(pools)))
	case placed:
		return find(pools, func(p Pool) bool { return p.Path == dir },
			unknownPool("class %s: this node has no pool at %q; it has %s", class.Name, dir, names(pools)))
	case len(pools) == 1:
		return slices.Clone(pools), nil
	default:
		return find(pools, func(p Pool) bool { return p.Default },
			unknownPool("class %s: names no pool, and none of this node's pools is the default; it has %s", class.Name, names(pools)))
	}
}

// unknownPool is the refusal of a class that names a pool that this node does not have: another
// node may.
func unknownPool(format string, args ...any) *Refusal {
	r := refuse(ReasonUnknownPool, format, args...)
	r.Help = ByNode
	return r
}

func find(pools []Pool, is func(Pool) bool, otherwise *Refusal) (found []Pool, _ *Refusal) {
	found = slices.DeleteFunc(slices.Clone(pools), func(p Pool) bool { return !is(p) })
	if len(found) == 0 {
		return nil, otherwise
	}
	return found, nil
}

func override(class *storagev1.StorageClass, pool Pool) (Pool, *Refusal) {
	if v, ok := class.Parameters[paramSource]; ok {
		if v != SourceHostPath && v != SourceLocal && v != SourceCSI {
			return Pool{}, refuse(ReasonBadParameter, "class %s: %s: %q is none of %s, %s and %s", class.Name, paramSource, v, SourceHostPath, SourceLocal, SourceCSI)
		}
		if v == SourceLocal && !pool.OfOneNode() {
			return Pool{}, refuse(ReasonBadParameter, "class %s: %s: %q volumes are one node's, and pool %s has scope %s", class.Name, paramSource, v, pool.Name, pool.Scope)
		}
		pool.Source = v
	}
	if v, ok := class.Parameters[paramPlace]; ok {
		if v != placeSpread && v != placeFill {
			return Pool{}, refuse(ReasonBadParameter, "class %s: %s: %q is neither %s nor %s",
				class.Name, paramPlace, v, placeSpread, placeFill)
		}
		pool.Fill = v == placeFill
	}
	if v, ok := class.Parameters[paramOnDelete]; ok {
		if v != OnDeleteDelete && v != OnDeleteArchive {
			return Pool{}, refuse(ReasonBadParameter, "class %s: %s: %q is neither %s nor %s", class.Name, paramOnDelete, v, OnDeleteDelete, OnDeleteArchive)
		}
		pool.OnDelete = v
	}
	if v, ok := class.Parameters[paramCephFS]; ok {
		quota, refusal := overrideQuota(class.Name, v, pool)
		if refusal != nil {
			return Pool{}, refusal
		}
		pool.Quota = quota
	}
	if v, ok := class.Parameters[paramMode]; ok {
		mode, err := strconv.ParseUint(v, 8, 32)
		if err != nil || len(v) < 3 || len(v) > 5 || mode >= 0o4000 { // setuid means nothing on a directory
			return Pool{}, refuse(ReasonBadParameter, "class %s: %s: %q is not an octal mode such as 0770 or 2770", class.Name, paramMode, v)
		}
		if why := modeOfNobody(mode); why != "" {
			return Pool{}, refuse(ReasonBadParameter, "class %s: %s: %q lets no user but root %s a volume", class.Name, paramMode, v, why)
		}
		pool.Mode = fileMode(uint32(mode))
	}
	return pool, nil
}

// overrideQuota returns the quota of a class's volumes, for its parameter cephFSQuota. False takes
// back what the pool says of CephFS, and nothing else.
func overrideQuota(class, value string, pool Pool) (string, *Refusal) {
	ceph, err := strconv.ParseBool(value)
	switch {
	case err != nil:
		return "", refuse(ReasonBadParameter, "class %s: %s: %q is neither true nor false", class, paramCephFS, value)
	case ceph && pool.Scope == ScopeEveryNode:
		return "", refuse(ReasonBadParameter,
			"class %s: %s: a volume of scope %s has a directory on each node: this would limit only one", class, paramCephFS, pool.Scope)
	case ceph && pool.Quota == QuotaProject:
		return "", refuse(ReasonBadParameter, "class %s: %s: pool %s has quota = %q", class, paramCephFS, pool.Name, pool.Quota)
	case ceph:
		return QuotaCeph, nil
	case pool.Quota == QuotaCeph:
		return QuotaOff, nil
	}
	return pool.Quota, nil
}

// modeOfNobody is what a mode keeps all users but root from; the configuration warns of the same.
// Root, which needs no bits, loses nothing by 0700.
func modeOfNobody(bits uint64) string {
	switch {
	case bits&0o111 == 0:
		return "into"
	case bits&0o222 == 0:
		return "write to"
	}
	return ""
}

// fileMode turns the bits of chmod(2) into Go's, which keeps setgid and sticky elsewhere.
func fileMode(bits uint32) fs.FileMode {
	mode := fs.FileMode(bits & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			mode |= flag
		}
	}
	return mode
}

func names(pools []Pool) string {
	if len(pools) == 0 {
		return "none"
	}
	var all []string
	for _, p := range pools {
		all = append(all, p.Name+" ("+p.Path+")")
	}
	return strings.Join(all, ", ")
}

func refuse(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
