package hostcheck

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMarkerGoesRound(t *testing.T) {
	now := time.Now()
	m, other := NewMarker("fast", now), NewMarker("fast", now)
	if m.ID == other.ID {
		t.Fatal("the same ID twice")
	}
	m.Node, m.FormerNodes, m.Cluster = "node-b", "node-a node-c", "11111111-aaaa"
	data, err := EncodeMarker(m)
	must(t, err)
	back, err := DecodeMarker(data)
	if err != nil || back != m {
		t.Fatalf("%v\nwrote %+v\nread  %+v", err, m, back)
	}
	if _, err := EncodeMarker(Marker{Version: 1, Pool: "fast"}); err == nil {
		t.Fatal("wrote a marker without ID")
	}
}

func TestDecodeMarkerRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "not JSON": "x", "cut off": `{"version":1,"pool":"fast"`, "a list": "[]", "null": "null", "two": `{} {}`,
		"no version":    `{"pool":"fast","id":"A"}`,
		"newer version": `{"version":2,"pool":"fast","id":"A"}`,
		"no pool":       `{"version":1,"id":"A"}`,
		"no ID":         `{"version":1,"pool":"fast"}`,
		"odd ID":        `{"version":1,"pool":"fast","id":"../x"}`,
		"long ID":       `{"version":1,"pool":"fast","id":"` + strings.Repeat("A", 129) + `"}`,
		"zeros":         strings.Repeat("\x00", 200),
	} {
		if m, err := DecodeMarker([]byte(text)); !errors.Is(err, ErrMarkerDamaged) || m != (Marker{}) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

// Whatever lies where the marker should be, reading it comes to an end and to the right error, past
// the page cache too.
func TestReadMarker(t *testing.T) {
	marker := func(dir string) string { return filepath.Join(dir, MarkerPath) }
	for _, c := range []struct {
		name  string
		place func(t *testing.T, dir string)
		want  error
	}{
		{"a marker", func(t *testing.T, dir string) { prepare(t, dir, "fast") }, nil},
		{"nothing", func(t *testing.T, dir string) {}, ErrNoMarker},
		{"an empty private directory", func(t *testing.T, dir string) { must(t, os.Mkdir(filepath.Join(dir, PrivateDir), 0o700)) }, ErrNoMarker},
		{"an empty file", func(t *testing.T, dir string) {
			prepare(t, dir, "fast")
			must(t, os.Truncate(marker(dir), 0))
		}, ErrMarkerDamaged},
		{"a huge file", func(t *testing.T, dir string) {
			prepare(t, dir, "fast")
			must(t, os.Truncate(marker(dir), 1<<40))
		}, ErrMarkerDamaged},
		{"a long one", func(t *testing.T, dir string) {
			m := prepare(t, dir, "fast")
			data, err := EncodeMarker(m)
			must(t, err)
			must(t, os.WriteFile(marker(dir), append(data, make([]byte, 9000)...), 0o600))
		}, ErrMarkerDamaged},
		{"a long one of spaces", func(t *testing.T, dir string) {
			m := prepare(t, dir, "fast")
			data, err := EncodeMarker(m)
			must(t, err)
			must(t, os.WriteFile(marker(dir), append(data, strings.Repeat(" ", 9000)...), 0o600))
		}, nil},
		{"a FIFO", func(t *testing.T, dir string) {
			must(t, os.Mkdir(filepath.Join(dir, PrivateDir), 0o700))
			must(t, unix.Mkfifo(marker(dir), 0o600))
		}, ErrMarkerDamaged},
		{"a directory", func(t *testing.T, dir string) { must(t, os.MkdirAll(marker(dir), 0o700)) }, ErrMarkerDamaged},
		{"a link to a good one", func(t *testing.T, dir string) {
			prepare(t, dir, "fast")
			must(t, os.Rename(marker(dir), marker(dir)+".moved"))
			must(t, os.Symlink("pool.json.moved", marker(dir)))
		}, ErrMarkerDamaged},
		{"a link as private directory", func(t *testing.T, dir string) {
			prepare(t, dir, "fast")
			must(t, os.Rename(filepath.Join(dir, PrivateDir), filepath.Join(dir, "moved")))
			must(t, os.Symlink("moved", filepath.Join(dir, PrivateDir)))
		}, ErrMarkerDamaged},
		{"a file as private directory", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, PrivateDir), nil, 0o600))
		}, ErrMarkerDamaged},
		{"a mount as private directory", func(t *testing.T, dir string) {
			prepare(t, dir, "fast")
			hosttest.Mount(t, "-t", "tmpfs", "t", filepath.Join(dir, PrivateDir))
		}, ErrMarkerDamaged},
	} {
		for how, read := range map[string]func(int) (Marker, error){"cached": ReadMarker, "direct": readMarkerDirect} {
			t.Run(c.name+"/"+how, func(t *testing.T) {
				dir := hosttest.Dir(t)
				hosttest.Mkfs(t, "ext4", 16).Mount(t, dir)
				c.place(t, dir)
				root, err := mounts.Open(dir, unix.O_PATH)
				must(t, err)
				defer unix.Close(root)
				m, err := read(root)
				if !errors.Is(err, c.want) || (err == nil) != (m.Pool == "fast") {
					t.Fatalf("%+v, %v, want %v", m, err, c.want)
				}
			})
		}
	}
}

// FuzzMarker: nothing panics, what is accepted is complete, and goes round.
func FuzzMarker(f *testing.F) {
	f.Add([]byte(`{"version":1,"pool":"fast","id":"A","created":"2026-01-02T03:04:05Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := DecodeMarker(data)
		if err != nil {
			if !errors.Is(err, ErrMarkerDamaged) || m != (Marker{}) {
				t.Fatalf("%+v, %v", m, err)
			}
			return
		}
		if m.Version != 1 || m.Pool == "" || m.ID == "" {
			t.Fatalf("accepted %+v", m)
		}
		again, err := EncodeMarker(m)
		if err != nil {
			t.Skip("a year that JSON cannot write") // time.Time takes offsets that it does not write
		}
		back, err := DecodeMarker(again)
		if err != nil || back.ID != m.ID || back.Pool != m.Pool || !back.Created.Equal(m.Created) {
			t.Fatalf("%v\nfirst %+v\nagain %+v", err, m, back)
		}
	})
}
