package pool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func populate(t *testing.T, dirs ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(root, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestTree(t *testing.T) {
	for _, test := range []struct {
		name    string
		dirs    []string
		want    []string
		missing bool
	}{
		{"an empty pool", []string{private + "/staging", private + "/trash", private + "/volumes", private + "/archive", "lost+found"}, nil, false},
		{"an entry in each directory", []string{"pvc-1", private + "/staging/a", private + "/trash/pvc-2~", private + "/volumes/pvc-1.json", private + "/archive/b"},
			[]string{"ours/archive/b", "ours/staging/a", "ours/trash/pvc-2~", "ours/volumes/pvc-1.json", "pvc-1"}, false},
		{"directories missing", []string{"pvc-1", private + "/trash/pvc-2"}, []string{"ours/trash/pvc-2", "pvc-1"}, true},
		{"no pool", nil, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Tree(populate(t, test.dirs...))
			if !slices.Equal(got, test.want) || errors.Is(err, fs.ErrNotExist) != test.missing || err != nil != test.missing {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	extra, missing := Compare([]string{"a", "ours/volumes/pvc-1.json"}, Of("pvc-1"))
	if !slices.Equal(extra, []string{"a"}) || !slices.Equal(missing, []string{"pvc-1"}) {
		t.Errorf("extra %q, missing %q", extra, missing)
	}
	if extra, missing := Compare(Of("pvc-1"), Of("pvc-1")); extra != nil || missing != nil {
		t.Errorf("the same: extra %q, missing %q", extra, missing)
	}
}
