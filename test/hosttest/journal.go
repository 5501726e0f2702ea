package hosttest

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Journal puts a socket where journald has its own, in the test's mount namespace. What it returns
// waits for an entry and returns its fields.
func Journal(t *testing.T) (receive func() map[string]string) {
	t.Helper()
	Mount(t, "-t", "tmpfs", "journal", "/run")
	t.Cleanup(func() { UnmountLazy(t, "/run") })
	Check(t, os.MkdirAll("/run/systemd/journal", 0o755))
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "/run/systemd/journal/socket", Net: "unixgram"})
	Check(t, err)
	t.Cleanup(func() { socket.Close() })
	return func() map[string]string {
		t.Helper()
		socket.SetReadDeadline(time.Now().Add(10 * time.Second))
		entry := make([]byte, 1<<16)
		n, err := socket.Read(entry)
		Check(t, err)
		return journalFields(string(entry[:n]))
	}
}

// journalFields reads one entry as https://systemd.io/JOURNAL_NATIVE_PROTOCOL/ describes it.
func journalFields(entry string) map[string]string {
	got := map[string]string{}
	for entry != "" {
		head, rest, _ := strings.Cut(entry, "\n")
		name, value, short := strings.Cut(head, "=")
		if !short {
			size := binary.LittleEndian.Uint64([]byte(rest[:8]))
			value, rest = rest[8:8+size], rest[9+size:]
		}
		got[name], entry = value, rest
	}
	return got
}

// OnJournal makes the environment say that stderr is the journal's stream, as systemd does; with an
// offset, that another file is.
func OnJournal(t *testing.T, offset uint64) {
	t.Helper()
	var stat unix.Stat_t
	Check(t, unix.Fstat(2, &stat))
	t.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", stat.Dev, stat.Ino+offset))
}
