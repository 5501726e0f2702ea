package daemon

import (
	"maps"
	"slices"
	"testing"
	"testing/fstest"
)

// Projects that an administrator has named are found in both files, whatever else is in them.
func TestNamedProjects(t *testing.T) {
	root := fstest.MapFS{
		"etc/projects": {Data: []byte("# projects\n1213202432:/srv/a\n 7 :/srv/b:c\n\nbad\n-1:/x\n4294967296:/x\n")},
		"etc/projid":   {Data: []byte("web:1213202440\nalone\ndb: 9\n")},
	}
	if got := slices.Sorted(maps.Keys(namedProjects(root))); !slices.Equal(got, []uint32{7, 9, 1213202432, 1213202440}) {
		t.Errorf("got %v", got)
	}
	if got := namedProjects(fstest.MapFS{}); len(got) > 0 {
		t.Errorf("without files: %v", got)
	}
}
