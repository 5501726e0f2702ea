package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

// The bar fits the terminal, and there is none where it says nothing.
func TestBar(t *testing.T) {
	quarter := progress.State{Files: 20, Total: progress.Total{Files: 80}, Took: time.Minute}
	done := progress.State{Files: 80, Total: progress.Total{Files: 80}, Took: time.Minute}
	unknown := progress.State{Files: 20, Took: time.Minute}
	for _, c := range []struct {
		state   progress.State
		columns int
		want    string
	}{
		{quarter, 100, "pvc-a: 20 of 80 files, 25%, about 3m0s left [#######-----------------------]"},
		{quarter, 60, "pvc-a: 20 of 80 files, 25%, about 3m0s left [###----------]"},
		{quarter, 52, "pvc-a: 20 of 80 files, 25%, about 3m0s left [#----]"},
		{quarter, 51, "pvc-a: 20 of 80 files, 25%, about 3m0s left"},
		{quarter, 20, "pvc-a: 20 of 80 fil"},
		{quarter, 1, ""},
		{done, 80, "pvc-a: 80 of 80 files, 100% [##############################]"},
		{unknown, 80, "pvc-a: 20 files"},
	} {
		if got := barOf("pvc-a", c.state, c.columns); got != c.want {
			t.Errorf("%d columns: %q, want %q", c.columns, got, c.want)
		}
	}
}

// Elsewhere than on a terminal there is a line every five seconds, also across volumes.
func TestProgressLines(t *testing.T) {
	var out bytes.Buffer
	s := (&program{stderr: &out}).show(progress.Total{})
	s.work.Add(7, 0)
	began := s.said
	for _, after := range []time.Duration{progressEvery - 1, progressEvery, progressEvery + 1} {
		s.say("pvc-a", began.Add(after))
	}
	s.say("pvc-b", began.Add(2*progressEvery))
	if want := "pvc-a: 7 files\npvc-b: 7 files\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// On a terminal the line is drawn in place, and cleared when the work is done.
func TestProgressOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	ours, theirs := pty(t)
	s := (&program{stderr: theirs}).show(progress.Total{Files: 4})
	s.work.Add(1, 0)
	drawn := make(chan string)
	go func() {
		text, buffer := "", make([]byte, 256)
		for !strings.Contains(text, "25%") {
			n, err := ours.Read(buffer)
			if text += string(buffer[:n]); err != nil {
				break
			}
		}
		drawn <- text
	}()
	s.during("pvc-a", func() {
		want := "\rpvc-a: 1 of 4 files, 25%"
		if got := <-drawn; !strings.HasPrefix(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%q, want %q", got, want)
		}
	})
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	text, buffer := "", make([]byte, 4096)
	for {
		n, err := ours.Read(buffer)
		if text += string(buffer[:n]); err != nil {
			break
		}
	}
	if !strings.HasSuffix(text, "\r\x1b[K") {
		t.Errorf("at the end %q", text)
	}
}

// pty is a terminal of 80 columns, from both sides.
func pty(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	fd := int(ours.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	const flags = unix.O_RDWR | unix.O_NOCTTY
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, flags)
	if errno != 0 {
		t.Fatal(errno)
	}
	theirs = os.NewFile(peer, "terminal")
	t.Cleanup(func() { theirs.Close() })
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// How many files there are is known by projects, or on a filesystem that is the pool's alone.
func TestFilesOf(t *testing.T) {
	alone := config.Pool{Name: "fast", Path: "/srv/fast", MountPoint: "/srv/fast", RequireMount: true}
	below := alone
	below.Path += "/pool"
	report := hostcheck.Report{Pool: "fast", Device: "8:1", Inodes: 1000, InodesFree: 400}
	takes := []quota.Usage{{ID: 0, Inodes: 3}, {ID: 5, Inodes: 30}, {ID: 6, Inodes: 50}}
	five, none := record.Record{ProjectID: 5}, record.Record{}
	for _, c := range []struct {
		name    string
		pool    config.Pool
		others  []config.Pool
		volumes []record.Record
		takes   []quota.Usage
		want    uint64
	}{
		{"by projects", below, nil, []record.Record{five, {ProjectID: 6}}, takes, 80},
		{"one of them", alone, nil, []record.Record{five}, takes, 30},
		{"one without a project", alone, nil, []record.Record{five, none}, takes, 550},
		{"no projects", alone, nil, []record.Record{none}, nil, 600},
		{"no projects, below a mount point", below, nil, []record.Record{none}, nil, 0},
		{"beside another pool", alone, []config.Pool{{Name: "slow", MountPoint: "/srv/fast"}},
			[]record.Record{none}, nil, 0},
		{"beside one elsewhere", alone, []config.Pool{alone, {Name: "slow", MountPoint: "/srv/slow"}},
			[]record.Record{none}, nil, 600},
	} {
		p := &program{loaded: config.Config{Pools: c.others}}
		if got := p.filesOf(c.pool, report, c.volumes, c.takes); got.Files != c.want {
			t.Errorf("%s: %d, want %d", c.name, got.Files, c.want)
		}
	}
}
