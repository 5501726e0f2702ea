package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

func marker(id string) hostcheck.Marker {
	m := hostcheck.NewMarker("fast", time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC))
	m.ID = id
	return m
}

// snapshot is every file below dir with its mode and text.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %s\n", info.Mode(), strings.TrimPrefix(path, dir+"/"))
		if d.Type().IsRegular() {
			text, err := os.ReadFile(path)
			b.Write(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRemember(t *testing.T) {
	dir := filepath.Join(hosttest.Dir(t), "state")
	if id, err := Remembered(dir, "fast"); id != "" || err != nil {
		t.Errorf("nothing remembered: %q, %v", id, err)
	}
	for _, id := range []string{"first", "second"} {
		if err := Remember(dir, "fast", marker(id)); err != nil {
			t.Fatal(err)
		}
		if got, err := Remembered(dir, "fast"); got != id || err != nil {
			t.Errorf("%q, %v; want %q", got, err, id)
		}
	}
	want := `drwx------ pools
-rw------- pools/fast.json
{
  "version": 1,
  "pool": "fast",
  "id": "second",
  "created": "2026-05-04T03:02:01Z"
}
`
	if got := snapshot(t, dir); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A crash while writing leaves the old file, and does not stop the next try.
func TestHalfWritten(t *testing.T) {
	dir := hosttest.Dir(t)
	if err := Remember(dir, "fast", marker("old")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pools/fast.json.new"), []byte(`{"version": 1, "po`), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := Remembered(dir, "fast"); id != "old" || err != nil {
		t.Errorf("%q, %v", id, err)
	}
	if err := Remember(dir, "fast", marker("new")); err != nil {
		t.Fatal(err)
	}
	if id, err := Remembered(dir, "fast"); id != "new" || err != nil {
		t.Errorf("%q, %v", id, err)
	}
	if names, err := os.ReadDir(filepath.Join(dir, "pools")); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}

// What is damaged is never "nothing remembered".
func TestDamaged(t *testing.T) {
	dir := hosttest.Dir(t)
	file := filepath.Join(dir, "pools", "fast.json")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                                       "FILE: the marker cannot be understood: unexpected end of JSON input",
		"{":                                      "FILE: the marker cannot be understood: unexpected end of JSON input",
		"[]":                                     "FILE: the marker cannot be understood: json: cannot unmarshal array into Go value of type hostcheck.Marker",
		"null":                                   "FILE: the marker cannot be understood: version 0, only 1 is known",
		`{"version":1,"pool":"fast"}`:            "FILE: the marker cannot be understood: \"\" is not an ID of 1 to 128 letters, digits and '-'",
		`{"version":1,"pool":"slow","id":"x"}`:   `FILE: a marker of pool "slow"`,
		`{"version":0,"pool":"fast","id":"x"}`:   "FILE: the marker cannot be understood: version 0, only 1 is known",
		`{"version":2,"pool":"fast","other":[]}`: "FILE: the marker cannot be understood: version 2, only 1 is known",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		id, err := Remembered(dir, "fast")
		if id != "" || err == nil || strings.ReplaceAll(err.Error(), file, "FILE") != want {
			t.Errorf("%s: %q, %v; want %s", text, id, err, want)
		}
	}
}

func TestNamesThatAreNone(t *testing.T) {
	dir := hosttest.Dir(t)
	for _, pool := range []string{"", ".", "..", "../fast", "a/b", "A", "fast.json"} {
		want := fmt.Sprintf("%q is not a pool's name", pool)
		_, read := Remembered(dir, pool)
		for _, err := range []error{read, Remember(dir, pool, marker("x"))} {
			if err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
	if err := Remember(dir, "slow", marker("x")); err == nil || err.Error() != `the marker of pool "fast" is not one of pool "slow"` {
		t.Errorf("another pool's: %v", err)
	}
	if err := Remember(dir, "fast", marker("")); !errors.Is(err, hostcheck.ErrMarkerDamaged) {
		t.Errorf("no id: %v", err)
	}
	if got := snapshot(t, dir); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

func TestLock(t *testing.T) {
	dir := filepath.Join(hosttest.Dir(t), "state")
	release, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Lock(dir)
	var held *HeldError
	if !errors.As(err, &held) || held.PID != os.Getpid() || held.File != dir+"/lock" {
		t.Fatalf("taken twice: %v", err)
	}
	if want := fmt.Sprintf("another daemon (pid %d) holds %s/lock", os.Getpid(), dir); err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	release()
	again, err := Lock(dir)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	again()
}

// A killed holder leaves the file and no lock.
func TestLockOfTheDead(t *testing.T) {
	dir := hosttest.Dir(t)
	kill := heldBy(t, filepath.Join(dir, "lock"))
	if _, err := Lock(dir); err == nil || err.Error() != "another daemon holds "+dir+"/lock" {
		t.Errorf("while another process holds it: %v", err)
	}
	kill()
	if err := os.WriteFile(filepath.Join(dir, "lock"), []byte("99999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	release, err := Lock(dir)
	if err != nil {
		t.Fatalf("after the holder was killed: %v", err)
	}
	defer release()
	// flock(1) made the file, with its own mode.
	if got := snapshot(t, dir); got != fmt.Sprintf("-rw-r--r-- lock\n%d\n", os.Getpid()) {
		t.Errorf("%q", got)
	}
}
