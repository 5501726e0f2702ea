package config

import (
	"slices"
)

// finishPool fills in what follows from other keys and checks the pool as a whole.
func (l *loader) finishPool(d *draft) {
	_, hasPath := l.set[l.where(d, "path").key()]
	switch {
	case d.Path == "" && !hasPath && !l.partial:
		l.refuse(l.where(d, "path"), "is missing")
	case d.broken["path"] || d.broken["mount_point"]:
	case d.MountPoint == "":
		d.MountPoint = d.Path
	case d.Path != "" && !under(d.Path, d.MountPoint):
		l.refuse(l.where(d, "path"), "%q is not at or below mount_point %q", d.Path, d.MountPoint)
	}
	if d.Scope != ScopeNode && !d.SourceSet {
		d.Source = SourceHost
	}
	if d.Scope != ScopeNode && d.Source == SourceLocal {
		l.refuse(l.where(d, "source"), "%q volumes are one node's, and the pool's scope is %q", d.Source, d.Scope)
	}
	l.checkSet(d)
	l.checkCSI(d)
	l.finishQuota(d)
	if d.Scope != ScopeNode && d.MakesClones() {
		l.refuse(l.where(d, "clones"), "%q is for volumes of one node, and the pool's scope is %q", d.Clones, d.Scope)
	}
	if d.Scope != ScopeNode && d.TakesSnapshots() {
		l.refuse(l.where(d, "snapshots"), "%q is for volumes of one node, and the pool's scope is %q", d.Snapshots, d.Scope)
	}
	l.checkPaused(d)
	l.checkInline(d)
	l.warnMode(d)
	l.warnReserve(d)
	if d.Scope != ScopeNode && d.Exclusive {
		l.warn(l.where(d, "exclusive"), "means nothing while the pool's scope is %q", d.Scope)
	}
	if !d.RequireMount && !d.Accepts(plainDirectory) {
		l.warn(l.where(d, "require_mount"), "false: %s may be a plain directory on the host's own filesystem, which volumes can fill", d.Path)
	}
	if !d.RequireMount {
		if _, said := l.set[l.where(d, "mount_point").key()]; said {
			l.warn(l.where(d, "mount_point"), "means nothing while require_mount is false")
		}
	}
}

// checkOverlaps refuses two pools that share a directory, or of which one lies in the other: each
// would take the other's volumes for foreign directories, and purge could meet them.
func (l *loader) checkOverlaps() {
	for i, a := range l.config.Pools {
		for _, b := range l.config.Pools[i+1:] {
			da, db := l.pools[a.Name], l.pools[b.Name]
			if a.Path == "" || b.Path == "" || da.broken["path"] || db.broken["path"] {
				continue
			}
			switch {
			case a.Path == b.Path:
				l.refuse(l.where(db, "path"), "%q is the path of pool %q too", b.Path, a.Name)
			case under(b.Path, a.Path):
				l.refuse(l.where(db, "path"), "%q is inside pool %q (%s)", b.Path, a.Name, a.Path)
			case under(a.Path, b.Path):
				l.refuse(l.where(da, "path"), "%q is inside pool %q (%s)", a.Path, b.Name, b.Path)
			}
		}
	}
}

// checkDefaults allows one default, and makes an only table the default unless the file says no.
func (l *loader) checkDefaults() {
	pools := l.config.Pools
	first := slices.IndexFunc(pools, func(p Pool) bool { return p.Default })
	if first < 0 {
		others := func(p Pool) bool { return p.Table() != pools[0].Table() }
		if len(pools) > 0 && !slices.ContainsFunc(pools, others) {
			_, said := l.set[l.where(l.pools[pools[0].Name], "default").key()]
			for i := range pools {
				pools[i].Default = !said
			}
		}
		return
	}
	for _, p := range pools[first+1:] {
		if p.Default && p.Table() != pools[first].Table() {
			l.refuse(l.where(l.pools[p.Name], "default"), "pool %q is the default already", pools[first].Table())
		}
	}
}
