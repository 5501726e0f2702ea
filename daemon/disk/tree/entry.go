package tree

import "strings"

// Depth is how many directories of the tree the entry lies below; the top of the tree lies below
// none.
func (e Entry) Depth() int { return e.depth }

// Path is the way from the top of the tree to the entry, "" for the top itself. Its owner chose its
// length.
func (e Entry) Path() string {
	if e.depth == 0 {
		return ""
	}
	names := make([]string, 0, e.depth)
	for _, l := range e.w.levels[1:e.depth] {
		names = append(names, l.name)
	}
	return strings.Join(append(names, e.Name), "/")
}

// Above returns the descriptors of the directories that the entry's directory lies below, as far as
// they are held: from the top of the tree downwards, at most Held. The walk closes them.
func (e Entry) Above() []int {
	var all []int
	for _, l := range e.w.levels[:max(0, min(Held, e.depth-1))] {
		all = append(all, l.fd)
	}
	return all
}
