package systemd

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// insideEnv says that this process is the service of TestPassed.
const insideEnv = "HOSTPATH_TEST_PASSED"

// TestPassedInside is the service of TestPassed: it responds to one request on the socket that it
// was passed, and says what else it sees.
func TestPassedInside(t *testing.T) {
	if os.Getenv(insideEnv) == "" {
		return // only a process of TestPassed is the service
	}
	f := Passed(SocketMetrics)
	if f == nil || Passed(SocketMetrics) != nil || os.Getenv("LISTEN_FDS") != "" {
		t.Fatalf("%v, LISTEN_FDS=%q", f, os.Getenv("LISTEN_FDS"))
	}
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan bool)
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "passed")
		close(asked)
	})}
	go server.Serve(l)
	<-asked
	if err := server.Shutdown(t.Context()); err != nil { // waits for the response to be sent: the process ends now
		t.Fatal(err)
	}
}

// Sockets are passed as systemd does: descriptors from 3 on, their number, their names, and the
// process that they are for.
func TestPassed(t *testing.T) {
	var files []*os.File
	var address string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		address, files = l.Addr().String(), append(files, f)
	}
	files[0], files[1] = files[1], files[0] // address is that of the first
	service := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" -test.run '^TestPassedInside$'`, os.Args[0])
	service.Env = append(os.Environ(), "LISTEN_FDS=2", "LISTEN_FDNAMES=metrics:other", insideEnv+"=1")
	service.ExtraFiles = files
	var said strings.Builder
	service.Stdout, service.Stderr = &said, &said
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	defer service.Process.Kill()
	client := http.Client{Timeout: time.Minute} // no process may respond: the socket listens by itself
	response, err := client.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body := make([]byte, 200)
	n, _ := response.Body.Read(body)
	if got := string(body[:n]); got != "passed" {
		t.Errorf("%q; the service said %s", got, said.String())
	}
}

func TestNothingPassed(t *testing.T) {
	t.Setenv("LISTEN_FDS", "1")
	t.Setenv("LISTEN_PID", "1")
	if f := Passed(SocketMetrics); f != nil {
		t.Errorf("%v is another process's", f)
	}
}

func TestCredential(t *testing.T) {
	dir := hosttest.Dir(t)
	if err := os.WriteFile(filepath.Join(dir, "kubeconfig"), nil, 0o400); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ dir, name, want string }{
		{"", "kubeconfig", ""},
		{dir, "kubeconfig", dir + "/kubeconfig"},
		{dir, "other", ""},
	} {
		t.Setenv("CREDENTIALS_DIRECTORY", c.dir)
		if got := Credential(c.name); got != c.want {
			t.Errorf("%s in %q: %q, want %q", c.name, c.dir, got, c.want)
		}
	}
}
