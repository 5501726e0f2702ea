package config

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// The name is read from the kernel as kubelet reads it. Each case has a hostname of its own on a
// thread that is thrown away, so the machine keeps its name.
func TestHostNodeName(t *testing.T) {
	for host, want := range map[string]string{
		"node-a":         "node-a",
		"Node-A.Example": "node-a.example",
		" node-a\n":      "node-a",
		"node_a":         "",
		"":               "",
	} {
		got, err := named(t, host)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("host %q: node %q, %v; want %q", host, got, err, want)
		}
	}
}

func named(t *testing.T, host string) (node string, err error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
			done <- err
			return
		}
		bad := unix.Sethostname([]byte(host))
		node, err = HostNodeName()
		done <- bad
	}()
	if bad := <-done; bad != nil {
		t.Fatal(bad)
	}
	return node, err
}
