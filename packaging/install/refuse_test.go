package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// dpkg gives files and directories the modes of the package; so does this, with the umask of a
// careful administrator.
func TestUmask(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	from, to := staged(t), t.TempDir()
	if code := run([]string{from, to}, os.Stderr); code != 0 {
		t.Fatalf("exit %d", code)
	}
	for name, want := range map[string]fs.FileMode{
		"usr": 0o755, "usr/lib/units": 0o755, "etc/program": 0o755, "usr/bin/program": 0o755, "usr/lib/units/a": 0o644,
	} {
		if info, err := os.Stat(filepath.Join(to, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", name, info.Mode(), err, want)
		}
	}
	if now := syscall.Umask(0o077); now != 0o077 {
		t.Errorf("the umask is %o afterwards", now)
	}
}

// A program that runs goes on with the file that it has, and the new one has the package's mode,
// not the old one's.
func TestReplace(t *testing.T) {
	from, to := staged(t), t.TempDir()
	file := filepath.Join(to, "usr/bin/program")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".new", []byte("of a run that was interrupted"), 0o600); err != nil {
		t.Fatal(err)
	}
	runs, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer runs.Close()
	if code := run([]string{from, to}, os.Stderr); code != 0 {
		t.Fatalf("exit %d", code)
	}
	text := make([]byte, 3)
	if _, err := runs.ReadAt(text, 0); err != nil || string(text) != "old" {
		t.Errorf("what runs reads %q, %v", text, err)
	}
	if got := tree(t, to)["/usr/bin/program"]; got != "-rwxr-xr-x new" {
		t.Errorf("the program is now %s", got)
	}
}

// Each case changes what was staged, or what is installed, and names the one line that is printed.
func TestRefusals(t *testing.T) {
	describe := func(text string) func(from, to string) error {
		return func(from, _ string) error { return os.WriteFile(from+"/nfpm.yaml", []byte(text), 0o600) }
	}
	for name, test := range map[string]struct {
		change func(from, to string) error
		want   string
	}{
		"nothing was staged":           {func(from, _ string) error { return os.Remove(from + "/nfpm.yaml") }, "FROM/nfpm.yaml: no such file or directory"},
		"a description that is broken": {describe("contents: {"), "did not find expected node content"},
		"contents that are no list":    {describe("contents: all"), "cannot unmarshal string"},
		"a pattern without any file":   {func(from, _ string) error { return os.RemoveAll(from + "/root/units") }, "/usr/lib/units/: root/units/* is missing"},
		"a pattern that is none":       {describe("contents: [{src: 'root/[', dst: /x}]"), "/x: syntax error in pattern\nroot/[ is missing"},
		"a type that is not known":     {describe("contents: [{src: root/program, dst: /x, type: ghost}]"), `/x: type "ghost" is not known`},
		"a directory is in the way of a file": {func(_, to string) error { return os.MkdirAll(to+"/usr/bin/program/x", 0o755) },
			"/usr/bin/program: rename TO/usr/bin/program.new TO/usr/bin/program: file exists"},
		"a directory is in the way of a link": {func(_, to string) error { return os.MkdirAll(to+"/usr/lib/generator/x", 0o755) },
			"/usr/lib/generator: remove TO/usr/lib/generator: directory not empty"},
		"a file is in the way of a directory": {func(_, to string) error { return os.WriteFile(to+"/etc", nil, 0o644) },
			"/etc/program: mkdir TO/etc: not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := staged(t), t.TempDir()
			if err := test.change(from, to); err != nil {
				t.Fatal(err)
			}
			var complaints strings.Builder
			code := run([]string{from, to}, &complaints)
			got := strings.NewReplacer(from, "FROM", to, "TO").Replace(complaints.String())
			if code != 1 || !strings.HasPrefix(got, "install: ") || !strings.Contains(got, test.want) {
				t.Errorf("exit %d, %q, want %q", code, got, test.want)
			}
		})
	}
}
