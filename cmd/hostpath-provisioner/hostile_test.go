package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

const plainPool = `
node = "a"
[pool.fast]
path = "BASE/pool"
require_mount = false
`

// What the daemon's user puts in the places of its files keeps no command waiting, and root's
// prepare writes through none of it.
func TestHostileStateOfCommands(t *testing.T) {
	for name, plant := range map[string]func(name, victim string) error{
		"FIFO":      func(name, _ string) error { return unix.Mkfifo(name, 0o666) },
		"link":      func(name, victim string) error { return os.Symlink(victim, name) },
		"hard link": func(name, victim string) error { return os.Link(victim, name) },
	} {
		h := newHost(t, plainPool)
		victim := h.path("victim")
		h.must(errors.Join(os.WriteFile(victim, []byte("root's"), 0o604), os.MkdirAll(h.path("state/pools"), 0o700), os.MkdirAll(h.path("run"), 0o755)))
		for _, at := range []string{"state/pools/fast.json.new", "state/pools/fast.json", "run/status.json"} {
			h.must(errors.Join(plant(h.path(at), victim), os.Lchown(h.path(at), 4711, 4711)))
		}
		h.must(os.Chown(victim, 0, 0)) // a hard link's owner is the file's
		said := make(chan string)
		go func() {
			for _, command := range []string{"status", "check", "volumes", "relabel fast --dry-run", "prepare fast --replace", "check"} {
				said <- command + ": " + h.raw(strings.Fields(command)...)
			}
			close(said)
		}()
		last, limit := "", time.After(time.Minute)
		for done := false; !done; {
			select {
			case text, more := <-said:
				if done = !more; more {
					last = text
				}
			case <-limit:
				t.Fatalf("%s: the command after this one waits: %s", name, last)
			}
		}
		if !strings.Contains(last, "exit 0") {
			t.Errorf("%s: after prepare --replace: %s", name, last)
		}
		if text, err := os.ReadFile(victim); string(text) != "root's" || err != nil {
			t.Errorf("%s: root's file is %q, %v", name, text, err)
		}
	}
}

// A status that another user wrote does not command the terminal, and makes no lines of its own.
func TestHostileStatus(t *testing.T) {
	h := newHost(t, plainPool)
	h.must(os.MkdirAll(h.path("run"), 0o755))
	evil := `a\u001b]0;owned\u0007\u009b31m\nPOOL  open\r`
	h.write("run/"+daemon.StatusFile, `{"pid":1,"version":"`+evil+`","node":"`+evil+`","provisioner":"`+evil+`","api":"`+evil+`","sentence":"`+evil+
		`","pools":[{"name":"`+evil+`","path":"`+evil+`","reason":"`+evil+`","message":"`+evil+`","warnings":["`+evil+`"],"scope":"shared","worker":"`+evil+`"}]}`)
	for _, args := range [][]string{{"status"}, {"status", "--json"}} {
		out := h.raw(args...)
		if strings.ContainsAny(out, "\x1b\a\r\u009b") || strings.Contains(out, "\nPOOL  open") || !strings.Contains(out, "x1b]0;owned") {
			t.Errorf("%q: %q", args, out)
		}
	}
}

// The names of files in a pool are a tenant's, or of a host's other users; a record is the
// daemon's.
func TestHostileNames(t *testing.T) {
	h := newHost(t, plainPool)
	h.raw("prepare", "fast")
	fill(t, h)
	record := h.path("pool/.hostpath-provisioner/volumes/pvc-pool.json")
	text, err := os.ReadFile(record)
	forged := strings.Replace(string(text), "data-pool", `data\u001b]0;x\u0007\u009b31m`, 1)
	h.must(errors.Join(err, os.WriteFile(record, []byte(forged), 0o600), os.Mkdir(h.path("pool", "x\x1b[31m\u009bm"), 0o700)))
	if out := h.raw("volumes"); strings.ContainsAny(out, "\x1b\a\u009b") || !strings.Contains(out, "x1b[31m") || !strings.Contains(out, `data\x1b]0;x`) {
		t.Errorf("%q", out)
	}
}

// What no rule of ours has quoted is made harmless on its way out: lines and columns stay.
func TestTerminal(t *testing.T) {
	var out strings.Builder
	p := &program{stdout: &out, stderr: io.Discard, now: func() time.Time { return noon }}
	file := filepath.Join(hosttest.Dir(t), "a\x1b[31m\u009b.toml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(plainPool, "BASE", "/srv")), 0o600); err != nil {
		t.Fatal(err)
	}
	code := p.run([]string{"check", "--config-only", "--config", file}, strings.NewReader(""))
	if want := `a\x1b[31m\u009b.toml: configuration is valid` + "\n"; code != 0 || !strings.HasSuffix(out.String(), want) {
		t.Errorf("%d, %q, want %q", code, out.String(), want)
	}
}
