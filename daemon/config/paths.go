package config

import (
	"cmp"
	"errors"
	"fmt"
	"path"

	"k8s.io/apimachinery/pkg/util/validation"
)

// A table [pool.NAME] may have several paths, one on each disk of a server: each becomes a pool of
// its own, with the table's settings, and a class that names the table has its volumes in any of
// them.

// Table is the name of the table that a pool is of: its own, or that of one with several paths.
func (p Pool) Table() string { return cmp.Or(p.Set, p.Name) }

// Named are the pools of this name: one, or those of a table with several paths.
func (c Config) Named(name string) (all []Pool) {
	for _, p := range c.Pools {
		if p.Name == name || p.Set == name {
			all = append(all, p)
		}
	}
	return all
}

// setPaths checks the paths, which expand takes.
func setPaths(_ *Pool, v any) error {
	paths, err := texts(v)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, p := range paths {
		if err := checkPoolPath(p); err != nil {
			return err
		}
		name := path.Base(p)
		if len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("%q: its pool is named after the last element, and that is not of "+
				"lower-case letters, digits and - between them; give it a table of its own", p)
		}
		if seen[name] {
			return fmt.Errorf("%q ends as another one does, and their pools are named after that", p)
		}
		seen[name] = true
	}
	if len(paths) == 0 {
		return errors.New("names no path")
	}
	return nil
}

// expand makes a pool of each of a table's paths. The table's own path, if it has one, keeps the
// table's name.
func (l *loader) expand() {
	for _, name := range names(l.pools) {
		of := l.pools[name]
		said, has := l.set[l.where(of, "paths").key()]
		if !has {
			continue
		}
		if _, own := l.set[l.where(of, "path").key()]; own {
			of.Set = name
		} else {
			l.refuseAlone(of, "mount_point", "device")
			delete(l.pools, name)
		}
		if l.noTable = l.noTable || of.broken["paths"]; !of.broken["paths"] {
			paths, _ := texts(said.value)
			l.members(*of, said, paths)
		}
	}
}

// members adds a table's further pools.
func (l *loader) members(of draft, said setting, paths []string) {
	for _, p := range paths {
		one := of
		one.Set, one.Name = of.Name, of.Name+"-"+path.Base(p)
		one.Path, one.MountPoint, one.Device = p, "", ""
		if err := checkPoolName(one.Name); err != nil {
			l.refuse(said, "%v", err)
		}
		if l.pools[one.Name] != nil {
			l.refuse(said, "the pool of %q is %q, which is a table or a pool already", p, one.Name)
			continue
		}
		l.pools[one.Name] = &one
	}
}

// refuseAlone refuses keys that are about the path of a table that has none.
func (l *loader) refuseAlone(d *draft, keys ...string) {
	for _, key := range keys {
		if s, said := l.set[l.where(d, key).key()]; said {
			l.refuse(s, "is for path, and the table has paths alone")
		}
	}
}

// checkSet refuses several paths where another node's claims are served, too.
func (l *loader) checkSet(d *draft) {
	if d.Set != "" && d.Scope != ScopeNode && !d.broken["scope"] {
		s, _ := l.set[setting{path: []string{"pool", d.Set, "paths"}}.key()]
		l.refuse(s, "are for a pool of one node, and the pool's scope is %q", d.Scope)
	}
}
