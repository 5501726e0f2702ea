package pause

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/ipc"
)

// listen takes requests as the service does, whose own tests are in daemon/node/csi, and has each one
// served.
func listen(t *testing.T, serve func(r Request, end *os.File)) Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "pause-") // a socket's path has at most 107 bytes
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := Client{Socket: filepath.Join(dir, "pause.sock")}
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: c.Socket, Net: "unixgram"})
	must(t, err)
	var all sync.WaitGroup
	t.Cleanup(func() { socket.Close(); all.Wait() })
	all.Go(func() {
		for from := ipc.New(socket, nil); ; {
			message, fd, err := from.Receive(make([]byte, Largest+1))
			if err != nil {
				return
			}
			if r, end := request(t, message, fd); end != nil {
				all.Go(func() { defer end.Close(); serve(r, end) })
			}
		}
	})
	return c
}

// request returns what is asked for and the service's end, nil where the test fails.
func request(t *testing.T, message []byte, fd int) (r Request, end *os.File) {
	if err := json.Unmarshal(message, &r); err != nil || fd < 0 {
		t.Errorf("request %q with end %d: %v", message, fd, err)
		return r, nil
	}
	err := syscall.SetNonblock(fd, true)
	end = os.NewFile(uintptr(fd), "pause")
	if err := errors.Join(err, end.SetDeadline(time.Now().Add(time.Minute))); err != nil {
		t.Error(err)
	}
	return r, end
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reply sends one. The queue has room for it.
func reply(t *testing.T, end *os.File, r Reply) {
	message, err := json.Marshal(r)
	if err == nil {
		_, err = end.Write(message)
	}
	if err != nil {
		t.Error(err)
	}
}

// sent is what the client sends, "" when it closed its end.
func sent(t *testing.T, end *os.File) string {
	message := make([]byte, Largest)
	n, err := end.Read(message)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	return string(message[:n])
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// receive is a receive with a limit.
func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-soon(t).Done():
		t.Fatal("nothing came")
	}
	return value
}

// A pause has the service's two replies: how many pods stand still, and how long they did. Its
// context ends with it.
func TestPause(t *testing.T) {
	t.Parallel()
	c := listen(t, func(r Request, end *os.File) {
		if want := (Request{"fast", "pvc-1"}); r != want {
			t.Errorf("asked for %+v, want %+v", r, want)
		}
		reply(t, end, Reply{Pods: 2})
		if got := sent(t, end); got != "end" {
			t.Errorf("sent %q", got)
		}
		reply(t, end, Reply{Pods: 2, For: time.Hour})
	})
	ctx, p, err := c.Begin(soon(t), "fast", "pvc-1")
	must(t, err)
	if p.Pods != 2 || ctx.Err() != nil {
		t.Errorf("%d pods, %v", p.Pods, ctx.Err())
	}
	if took, err := p.End(); took != time.Hour || err != nil || ctx.Err() == nil {
		t.Errorf("%s: %v, its context %v", took, err, ctx.Err())
	}
}

// A pause that did not begin has an error, and the service sees its client's end closed.
func TestNotBegun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first string // message, none where the service ends
		want  string
	}{
		"refused":        {`{"error":"no pool"}`, "no pool"},
		"service ends":   {"", "the CSI node service ended"},
		"no JSON":        {"still", "invalid character"},
		"a part of JSON": {`{"pods":`, "unexpected end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := make(chan string, 1)
			client := listen(t, func(_ Request, end *os.File) {
				if c.first == "" {
					return
				}
				if _, err := end.WriteString(c.first); err != nil {
					t.Error(err)
				}
				after <- sent(t, end)
			})
			ctx, p, err := client.Begin(soon(t), "fast", "pvc-1")
			if err == nil || !strings.Contains(err.Error(), c.want) || p != nil || ctx != nil {
				t.Errorf("%v, %v", p, err)
			}
			if c.first != "" && receive(t, after) != "" {
				t.Error("the client sent something")
			}
		})
	}
}

// Pods that go on before the pause is ended end its context, and the end says why.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		last string // message, none where the service ends
		want string
	}{
		"time over":    {`{"error":"they went on after 30s","pods":1,"for":30000000000}`, "after 30s"},
		"service ends": {"", "the CSI node service ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := make(chan struct{})
			client := listen(t, func(_ Request, end *os.File) {
				reply(t, end, Reply{Pods: 1})
				select {
				case <-begun:
				case <-t.Context().Done():
				}
				if c.last != "" {
					_, _ = end.WriteString(c.last)
				}
			})
			ctx, p, err := client.Begin(soon(t), "fast", "pvc-1")
			must(t, err)
			if ctx.Err() != nil {
				t.Error("not paused")
			}
			close(begun)
			receive(t, ctx.Done())
			if took, err := p.End(); err == nil || !strings.Contains(err.Error(), c.want) || took != 0 {
				t.Errorf("%s: %v", took, err)
			}
		})
	}
}

// A daemon that stops while it waits for the pods to stand still lets go of the request.
func TestCancelledBegin(t *testing.T) {
	t.Parallel()
	asked, after := make(chan struct{}), make(chan string, 1)
	c := listen(t, func(_ Request, end *os.File) {
		close(asked)
		after <- sent(t, end)
	})
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan error, 1)
	go func() {
		_, _, err := c.Begin(ctx, "fast", "pvc-1")
		begun <- err
	}()
	receive(t, asked)
	cancel()
	if err := receive(t, begun); err == nil {
		t.Error("a pause began")
	}
	if got := receive(t, after); got != "" {
		t.Errorf("sent %q", got)
	}
}

// The context of a pause ends with that of its caller, who ends the pause all the same.
func TestCancelledPause(t *testing.T) {
	t.Parallel()
	c := listen(t, func(_ Request, end *os.File) {
		reply(t, end, Reply{Pods: 1})
		if got := sent(t, end); got != "end" {
			t.Errorf("sent %q", got)
		}
		reply(t, end, Reply{Pods: 1, For: time.Second})
	})
	caller, cancel := context.WithCancel(t.Context())
	ctx, p, err := c.Begin(caller, "fast", "pvc-1")
	must(t, err)
	cancel()
	receive(t, ctx.Done())
	if took, err := p.End(); took != time.Second || err != nil {
		t.Errorf("%s: %v", took, err)
	}
}

// A service that does not respond to the end of a pause is not waited for longer than the package
// says.
func TestSilentEnd(t *testing.T) {
	t.Parallel()
	c := listen(t, func(_ Request, end *os.File) {
		reply(t, end, Reply{Pods: 1})
		if end, closed := sent(t, end), sent(t, end); end != "end" || closed != "" {
			t.Errorf("sent %q, and then %q", end, closed)
		}
	})
	_, p, err := c.Begin(soon(t), "fast", "pvc-1")
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := p.End()
		ended <- err
	}()
	if err := receive(t, ended); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// Without a service there is no pause, and the error has the path of its socket.
func TestNoService(t *testing.T) {
	t.Parallel()
	c := Client{Socket: SocketPath(t.TempDir(), "driver")}
	if _, _, err := c.Begin(soon(t), "fast", "pvc-1"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "plugins/driver/pause.sock") {
		t.Error(err)
	}
	c = listen(t, nil)
	must(t, os.Rename(c.Socket, c.Socket+".old"))
	must(t, os.WriteFile(c.Socket, nil, 0o600))
	if _, _, err := c.Begin(soon(t), "fast", "pvc-1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
}
