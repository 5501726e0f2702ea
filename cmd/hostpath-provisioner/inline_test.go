package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Each socket of the daemon's is there where a pool needs it.
func TestDaemonSockets(t *testing.T) {
	const dir = "/var/lib/kubelet/plugins/hostpath-provisioner/"
	for _, c := range []struct {
		snapshots string
		inline    uint64
		want      []string
	}{
		{plan.SnapshotsLive, 0, nil},
		{plan.SnapshotsPaused, 0, []string{dir + "pause.sock"}},
		{plan.SnapshotsOff, 1, []string{dir + "inline.sock"}},
		{plan.SnapshotsPaused, 1, []string{dir + "pause.sock", dir + "inline.sock"}},
	} {
		cfg := config.Default()
		cfg.Pools = []config.Pool{config.DefaultPool("a"), {Name: "b", Snapshots: c.snapshots, InlineVolumes: c.inline}}
		if got := daemonSockets(cfg); !slices.Equal(got, c.want) {
			t.Errorf("snapshots %s, inline volumes %d: %q", c.snapshots, c.inline, got)
		}
	}
}

// A socket that systemd passed is known by its name, whatever the order.
func TestPassedToCSI(t *testing.T) {
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := func(name string) *os.File {
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		file, err := conn.File()
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	var all passedToCSI
	for _, name := range []string{"inline.sock", "pause.sock"} {
		if err := all.add(socket(name)); err != nil {
			t.Fatal(err)
		}
	}
	defer all.inline.Close()
	defer all.pause.Close()
	for want, conn := range map[string]*net.UnixConn{"inline.sock": all.inline, "pause.sock": all.pause} {
		if got := conn.LocalAddr().String(); got != filepath.Join(dir, want) {
			t.Errorf("%s is %s", want, got)
		}
	}
}

// An inline volume is none that is missed: it has no object, and it goes from the trash.
func TestStateOfInline(t *testing.T) {
	for place, want := range map[record.Place]string{record.InPool: stateInline, record.InTrash: "trash", record.Emptying: string(record.Emptying)} {
		if got := stateOf(record.Record{Kind: record.Inline, Place: place}, nil, true); got != want {
			t.Errorf("%s: %s", place, got)
		}
	}
}

// A snapshot that no VolumeSnapshotContent names is orphaned, unless it is kept on purpose or that
// is not known.
func TestStateOfSnapshot(t *testing.T) {
	named, none := map[string]bool{"s": true}, map[string]bool{}
	retained := record.Record{Kind: record.Snapshot, PV: "s", Place: record.InPool, Retained: true}
	for _, c := range []struct {
		of      record.Record
		handles map[string]bool
		want    string
	}{
		{record.Record{Kind: record.Snapshot, PV: "s", Place: record.InPool}, named, stateSnapshot},
		{record.Record{Kind: record.Snapshot, PV: "s", Place: record.InPool}, none, stateOrphaned},
		{record.Record{Kind: record.Snapshot, PV: "s", Place: record.InPool}, nil, stateSnapshot},
		{record.Record{Kind: record.Snapshot, PV: "s", Place: record.InTrash}, named, "trash"},
		{record.Record{Kind: record.Snapshot, PV: "s", Place: record.InTrash}, none, stateOrphaned},
		{record.Record{Kind: record.Snapshot, PV: "s", Place: record.InPool, Unpublished: true}, none, stateTaking},
		{retained, none, stateRetained},
	} {
		if got := stateOfSnapshot(c.of, stateOf(c.of, nil, true), c.handles); got != c.want {
			t.Errorf("%+v, named %v: %s, want %s", c.of, c.handles, got, c.want)
		}
	}
}
