package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// childEnv, to beChild, makes the test's program the product ("program"), the service that looks
// under mount points on the host in a directory ("mountpoint DIRECTORY") or mounts for kubelet
// there ("csi DIRECTORY"), a child that begins, writes its process ID to the file of its last
// argument and then waits, as one does on a filesystem that hangs ("hang"), or one that begins late,
// as all do on a busy host ("late").
const childEnv = "HOSTPATH_PROVISIONER_TEST_CHILD"

func beChild() {
	switch what, base, _ := strings.Cut(os.Getenv(childEnv), " "); what {
	case "program":
		main()
	case "mountpoint":
		os.Exit(serveMountPoints(base))
	case "csi":
		os.Exit(serveCSI(base))
	case "hang":
		file := os.Args[len(os.Args)-1]
		os.WriteFile(file+".new", []byte(strconv.Itoa(os.Getpid())), 0o600)
		os.Rename(file+".new", file)
		fmt.Println()
		time.Sleep(time.Minute)
		os.Exit(1)
	case "late":
		time.Sleep(respondDeadline + time.Second)
		main()
	}
}

// An error is a response of a filesystem as well: only a child that does not end in time, counted
// from when it begins to ask, means that it hangs.
func TestAnswers(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(childEnv, "program")
	for name, path := range map[string]string{"a directory": dir, "nothing of this name": filepath.Join(dir, "none"), "beneath a file": "/proc/self/exe/x"} {
		if !responds(path) {
			t.Errorf("%s: does not respond", name)
		}
	}
	t.Setenv(childEnv, "late")
	if !responds(dir) {
		t.Error("a child that begins late has asked a filesystem that does not respond")
	}
	t.Setenv(childEnv, "hang")
	file, start := filepath.Join(dir, "pid"), time.Now()
	if responds(file) {
		t.Error("a child that waits has responded")
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("waited for %s", took)
	}
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Lstat("/proc/" + string(pid)); err != nil {
			break // killed, and waited for: a zombie would be there
		}
		if time.Now().After(end) {
			t.Fatalf("the child %s is still there", pid)
		}
	}
}

// The service that looks under mount points works only on the socket that systemd passes to it.
func TestMountpointSocket(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	for _, c := range []struct {
		name, as string // as is the socket's name
		socket   func() (*os.File, error)
		want     string
		code     int
	}{
		{"no socket", "", nil, "mountpoint is started by hostpath-provisioner-mountpoint.socket", 2},
		{"socket of another name", "metrics", udp.(*net.UDPConn).File, "mountpoint is started by hostpath-provisioner-mountpoint.socket", 2},
		{"datagrams of the network", "mountpoint", udp.(*net.UDPConn).File, "hostpath-provisioner-mountpoint.socket passed a socket of another kind", 2},
		{"stream", "mountpoint", tcp.(*net.TCPListener).File, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			// LISTEN_PID is the process's own (sd_listen_fds(3)), which only a shell knows before
			// the program starts.
			child := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$0" mountpoint`, self)
			child.Env = append(os.Environ(), childEnv+"=program")
			if c.socket != nil {
				file, err := c.socket()
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				child.ExtraFiles = []*os.File{file}
				child.Env = append(child.Env, "LISTEN_FDS=1", "LISTEN_FDNAMES="+c.as)
			}
			var stderr bytes.Buffer
			child.Stderr = &stderr
			child.Run()
			if code := child.ProcessState.ExitCode(); code != c.code || !strings.Contains(stderr.String(), c.want) || stderr.Len() == 0 {
				t.Errorf("exit code %d, want %d with %q:\n%s", code, c.code, c.want, stderr.String())
			}
		})
	}
}
