package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

var times = regexp.MustCompile(`"created": "[^"]*"`)

// contents prints everything below a directory: names, types, modes, owners, and what files and
// links contain. Tests compare whole trees, so that what no test thought of is noticed as well.
func contents(t testing.TB, root string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		name, _ := filepath.Rel(root, path)
		fmt.Fprintf(&out, "%q %s %d:%d", name, info.Mode(), st.Uid, st.Gid)
		switch {
		case info.Mode().IsRegular():
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " %q", times.ReplaceAll(text, nil))
		case info.Mode()&os.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			fmt.Fprintf(&out, " -> %q", target)
		}
		out.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}
