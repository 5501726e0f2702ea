package mounts

import (
	"path"
	"slices"
	"strings"
)

// Covering is the mount on which path lies, as a path walk would find it: from the root down, into
// each mount that stands in the way. path is absolute and clean. ok is false if the table has no
// mount above path.
//
// The longest mount point alone would not do: a mount at /a hides an older one at /a/b, and a mount
// may be put *beneath* another by propagation, so that neither length nor order decides. The
// parents do (TestCovering).
func Covering(table []Mount, path string) (m Mount, ok bool) {
	chain := walk(table, path)
	if len(chain) == 0 {
		return Mount{}, false
	}
	return chain[len(chain)-1], true
}

// At is the stack of mounts at exactly this point, the lowest first, with the mount that the bare
// directory under all of them belongs to. ok is false if nothing is mounted there, or if what is
// mounted there has nothing under it in the table: the root.
func At(table []Mount, point string) (stack []Mount, parent Mount, ok bool) {
	chain := walk(table, point)
	for i, m := range chain {
		if m.Point == point && i > 0 {
			return chain[i:], chain[i-1], true
		}
	}
	return nil, Mount{}, false
}

// walk lists the mounts that a path walk goes through.
func walk(table []Mount, path string) []Mount {
	var inTheWay []Mount // few, also on a host with thousands of mounts
	for _, m := range table {
		if beneath(path, m.Point) {
			inTheWay = append(inTheWay, m)
		}
	}
	var chain []Mount
	for range inTheWay { // no step twice, however the table is made
		next := -1
		for i, m := range inTheWay {
			// The walk meets the shortest point first; of equals the last one was mounted over it.
			if follows(m, chain, table) && (next < 0 || len(m.Point) <= len(inTheWay[next].Point)) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		chain = append(chain, inTheWay[next])
	}
	return chain
}

// follows reports whether m is mounted on the last mount of the chain; at the start of the chain,
// whether it is mounted on nothing that the table shows.
func follows(m Mount, chain, table []Mount) bool {
	if len(chain) > 0 {
		return m.Parent == chain[len(chain)-1].ID && m.Parent != m.ID
	}
	return !slices.ContainsFunc(table, func(o Mount) bool { return o.ID == m.Parent && o.ID != m.ID })
}

// beneath reports whether path is dir or below it. Both are clean.
func beneath(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir) && path[len(dir)] == '/'
}

// Location is a directory by its filesystem and its path in that: the same wherever a bind mount
// shows it.
type Location struct {
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
	Path  string `json:"path"`
}

// Locate finds where a path lies, by the table alone: absolute and clean, without symbolic links.
// ok is false if the table has no mount above it.
func Locate(table []Mount, at string) (l Location, ok bool) {
	m, ok := Covering(table, at)
	if !ok {
		return Location{}, false
	}
	return m.Locate(at), true
}

// Locate is the location of a clean absolute path that lies on this mount, whatever is mounted over
// it.
func (m Mount) Locate(at string) Location {
	return Location{m.Major, m.Minor, path.Join(m.Root, strings.TrimPrefix(at, m.Point))}
}

// In reports whether l is other or below it.
func (l Location) In(other Location) bool {
	return l.Major == other.Major && l.Minor == other.Minor && beneath(l.Path, other.Path)
}
