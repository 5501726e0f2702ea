package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// workingAt returns what is under way after a step of what is done.
func (r *rig) workingAt(t *testing.T, step string, do func() error) string {
	t.Helper()
	seen := "none"
	r.atCrashPoint = func(name string) {
		if name != step {
			return
		}
		seen = ""
		for _, w := range r.Working() {
			now := w.State
			seen += fmt.Sprintf("%s of %s: %d files, %d bytes, total %v\n",
				w.Kind, w.PV, now.Files, now.Bytes, now.Total)
		}
	}
	must(t, do())
	r.atCrashPoint = nil
	if after := r.Working(); len(after) > 0 {
		t.Errorf("after all was done %+v", after)
	}
	return seen
}

// What a copy and a purge have done is seen while they go on, and nothing is seen after that; how
// much there is to do is known of a volume that has a project.
func TestWorking(t *testing.T) {
	r, _ := onXFS(t)
	r.limited(t, pv)
	dir := filepath.Join(r.path, spec(pv).Directory)
	must(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	total := progress.Total{Files: 3}
	for _, c := range []struct {
		kind   string
		change func(*Spec)
		file   string
		bytes  int
	}{
		{WorkClone, func(*Spec) {}, "", 0},
		{WorkSnapshot, func(s *Spec) { s.Kind = record.Snapshot }, "", 0},
		{WorkClone, func(s *Spec) { s.Full = true }, "data", 4},
	} {
		files := 3
		if c.file != "" {
			write(t, filepath.Join(dir, "a", "b", "file"), c.file)
			files++
		}
		s := copyOf("xfs")
		s.Expected = progress.Total{Files: 77} // the project is exact
		c.change(&s)
		create := func() error { _, err := r.Create(t.Context(), r.id, s); return err }
		want := fmt.Sprintf("%s of %s: %d files, %d bytes, total %v\n",
			c.kind, clone, files, c.bytes, total)
		if got := r.workingAt(t, "copied", create); got != want {
			t.Errorf("copy: %s\nwant %s", got, want)
		}
		must(t, r.Undo(t.Context(), r.id, clone))
		want = fmt.Sprintf("purge of %s: %d files, 0 bytes, total %v\n", clone, files, progress.Total{})
		purge := func() error { _, err := r.Pool.Purge(t.Context(), r.id, clone); return err }
		if got := r.workingAt(t, "emptied", purge); got != want {
			t.Errorf("purge: %s\nwant %s", got, want)
		}
	}
	must(t, r.Trash(t.Context(), r.id, pv))
	must(t, r.Discard(t.Context(), r.id, pv))
	want := fmt.Sprintf("purge of %s: 4 files, 0 bytes, total %v\n", pv, total)
	purge := func() error { _, err := r.Pool.Purge(t.Context(), r.id, pv); return err }
	if got := r.workingAt(t, "emptied", purge); got != want {
		t.Errorf("purge: %s\nwant %s", got, want)
	}
}

// Of a volume without a project there is as much as was measured.
func TestWorkingAsMeasured(t *testing.T) {
	r := onTmpfs(t)
	withData(t, r)
	measured := progress.Total{Files: 7, Bytes: 9}
	s := copyOf("tmpfs")
	s.Expected = measured
	create := func() error { _, err := r.Create(t.Context(), r.id, s); return err }
	want := fmt.Sprint("total ", measured, "\n")
	if got := r.workingAt(t, "copied", create); !strings.HasSuffix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}
