package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Only what is whole in a pool's trash may be kept there.
func TestLeft(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		want leftError
	}{
		"whole in the trash":  {"fast/.hostpath-provisioner/trash/pvc-1", leftError{"fast/.hostpath-provisioner/trash/pvc-1", "fast", "pvc-1"}},
		"its files are going": {"fast/.hostpath-provisioner/trash/pvc-1~", leftError{path: "fast/.hostpath-provisioner/trash/pvc-1~"}},
		"half made":           {"big/.hostpath-provisioner/staging/pvc-1", leftError{path: "big/.hostpath-provisioner/staging/pvc-1"}},
	} {
		if got := newLeftError(c.path); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// put appends a log's sector.
func put(log *bytes.Buffer, values ...any) {
	var b bytes.Buffer
	for _, v := range values {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	log.Write(append(b.Bytes(), make([]byte, 512-b.Len())...))
}

func sector(fill byte) []byte { return bytes.Repeat([]byte{fill}, 512) }

// A log with every kind of entry is read in order, and leaves the disk that it describes.
func TestReplay(t *testing.T) {
	var log bytes.Buffer
	put(&log, uint64(logMagic), uint64(1), uint64(5), uint32(512))
	put(&log, uint64(2), uint64(2), uint64(0), uint64(0)) // a plain write of sectors 2 and 3
	log.Write(append(sector('a'), sector('b')...))
	put(&log, uint64(0), uint64(0), uint64(flagMark), uint64(6), []byte("exists"))
	put(&log, uint64(0), uint64(0), uint64(flagFlush), uint64(0))
	put(&log, uint64(3), uint64(1), uint64(flagDiscard), uint64(0)) // has no data in the log
	put(&log, uint64(0), uint64(1), uint64(flagFlush|flagFUA), uint64(0))
	log.Write(sector('c'))

	file, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var durable []bool
	var marks []string
	err = replay(bytes.NewReader(log.Bytes()), func(e logEntry, size int64) error {
		durable = append(durable, e.durable())
		if e.Mark != "" {
			marks = append(marks, e.Mark)
		}
		return e.apply(file, size)
	})
	if err != nil || !slices.Equal(durable, []bool{false, false, true, false, true}) || !slices.Equal(marks, []string{"exists"}) {
		t.Errorf("%v, durable %v, marks %q", err, durable, marks)
	}
	got, err := os.ReadFile(file.Name())
	want := slices.Concat(sector('c'), sector(0), sector('a'), sector(0))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v, %q", err, got)
	}
}

// What is no log, or ends early, is an error and no panic.
func TestReplayDamaged(t *testing.T) {
	var whole bytes.Buffer
	put(&whole, uint64(logMagic), uint64(1), uint64(1), uint32(512))
	put(&whole, uint64(0), uint64(1<<40), uint64(0), uint64(0))
	for name, log := range map[string][]byte{"empty": nil, "zeros": make([]byte, 4096), "cut": whole.Bytes()[:600], "huge": whole.Bytes()} {
		if err := replay(bytes.NewReader(log), func(logEntry, int64) error { return nil }); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
