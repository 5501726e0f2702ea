package main

import (
	"os"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// The daemon's first record says what starts, and why it could not start is an error with fields:
// `journalctl
// -p warning` shows it.
func TestStartInTheJournal(t *testing.T) {
	receive := hosttest.Journal(t)
	hosttest.OnJournal(t, 0)
	h := newHost(t, "node = 'node-a'\nkubeconfig = 'BASE/no-such'\nconfine = false\n[pool.fast]\npath = 'BASE/fast'\n[pool.slow]\npath = 'BASE/slow'\n")
	start := func() int {
		return run([]string{"run", "--config", h.path("config.toml"), "--state-dir", h.path("state"), "--runtime-dir", h.path("run")}, strings.NewReader(""), os.Stdout, os.Stderr)
	}
	want := func(got map[string]string, fields map[string]string) {
		t.Helper()
		for name, value := range fields {
			if !strings.HasPrefix(got[name], value) || value == "" && got[name] != "" {
				t.Errorf("%s is %q, want %q in %q", name, got[name], value, got)
			}
		}
	}
	if code := start(); code != exitNot {
		t.Errorf("exit %d", code)
	}
	want(receive(), map[string]string{
		"MESSAGE": "starting ", "PRIORITY": "6", "HOSTPATH_REASON": "Starting", "MESSAGE_ID": systemd.MessageID("Starting"),
		"HOSTPATH_NODE": "node-a", "HOSTPATH_FILE": h.path("config.toml"), "HOSTPATH_POOLS": "fast,slow",
	})
	got := receive()
	for got["HOSTPATH_REASON"] != "StartFailed" {
		got = receive()
	}
	failed := map[string]string{"PRIORITY": "3", "HOSTPATH_REASON": "StartFailed", "MESSAGE_ID": systemd.MessageID("StartFailed"), "HOSTPATH_HINT": "run: hostpath-provisioner enroll"}
	want(got, failed)

	h.write("config.toml", "node = 5\n[pool.fast]\npath = 'fast'\n")
	if code := start(); code != exitConfig {
		t.Errorf("exit %d", code)
	}
	failed["HOSTPATH_HINT"] = "correct it"
	for _, key := range []string{"node: ", "pool.fast.path: "} {
		got := receive()
		want(got, failed)
		if !strings.Contains(got["MESSAGE"], key) {
			t.Errorf("%q, want %s in it", got["MESSAGE"], key)
		}
	}
}
