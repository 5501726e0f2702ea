package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const description = `
contents:
  - {src: root/program, dst: /usr/bin/program, file_info: {mode: 0755}}
  - {src: root/units/*, dst: /usr/lib/units/, file_info: {mode: 0644}}
  - {src: ../bin/program, dst: /usr/lib/generator, type: symlink}
  - {dst: /etc/program, type: dir, file_info: {mode: 0755}}
  - {dst: /etc/program/config.toml, type: ghost, packager: rpm, file_info: {mode: 0644}}
  - {src: root/rpm, dst: /usr/share/rpm, packager: rpm, file_info: {mode: 0644}}
`

func staged(t *testing.T) string {
	dir := t.TempDir()
	for name, text := range map[string]string{"nfpm.yaml": description, "root/program": "new", "root/units/a": "a", "root/units/b": "b"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tree lists what is below a folder, with modes, links and texts.
func tree(t *testing.T, dir string) map[string]string {
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, dir)
		if target, err := os.Readlink(path); err == nil {
			all[name] = "-> " + target
			return nil
		}
		info, _ := d.Info()
		text, err := os.ReadFile(path)
		all[name] = info.Mode().String() + " " + string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Twice is the same as once, and a configuration that was edited stays.
func TestInstall(t *testing.T) {
	from, to := staged(t), t.TempDir()
	want := map[string]string{
		"/usr/bin/program": "-rwxr-xr-x new", "/usr/lib/units/a": "-rw-r--r-- a", "/usr/lib/units/b": "-rw-r--r-- b",
		"/usr/lib/generator": "-> ../bin/program",
	}
	for range 2 {
		if code := run([]string{from, to}, os.Stderr); code != 0 {
			t.Fatalf("exit %d", code)
		}
		if got := tree(t, to); !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if err := os.WriteFile(to+"/etc/program/config.toml", []byte("edited"), 0o644); err != nil {
			t.Fatal(err)
		}
		want["/etc/program/config.toml"] = "-rw-r--r-- edited"
	}
}

func TestInstallRefuses(t *testing.T) {
	from, to := staged(t), t.TempDir()
	if err := os.Remove(from + "/root/program"); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if code := run([]string{from, to}, &said); code != 1 || said.String() != "install: /usr/bin/program: root/program is missing\n" {
		t.Errorf("exit %d: %s", code, said.String())
	}
	if code := run(nil, &said); code != 2 {
		t.Errorf("without arguments: exit %d", code)
	}
}
