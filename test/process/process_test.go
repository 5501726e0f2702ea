package process

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func start(t *testing.T, cmd *exec.Cmd) *Child {
	t.Helper()
	c, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Kill(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// The pipes of a child live as long as the child, also when the test has no further use for them.
func TestPipesLive(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo ready; cat; exit 3")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, cmd)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("read %q, %v", line, err)
	}
	for range 5 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond) // finalizers run in a goroutine of their own
	}
	if !c.Running() {
		t.Errorf("the child ended when its pipes were collected: %v", c.Wait())
	}
}

// A thread of this process that ends does not take the child with it.
func TestChildOutlivesThreads(t *testing.T) {
	var c *Child
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and the thread ends with this goroutine
		c = start(t, exec.Command("sleep", "60"))
	}()
	<-done
	time.Sleep(50 * time.Millisecond)
	if !c.Running() {
		t.Errorf("the child ended: %v", c.Wait())
	}
}

func TestEnd(t *testing.T) {
	for _, test := range []struct {
		name, script string
		killed       bool
	}{
		{"a process that ends by the signal", "echo ready; exec sleep 60", false},
		{"a process that ignores the signal", "trap '' TERM; echo ready; while :; do sleep 1; done", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", test.script)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			c := start(t, cmd)
			if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			timeout := 30 * time.Second
			if test.killed {
				timeout = 200 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			if err := c.End(ctx, syscall.SIGTERM); (err != nil) != test.killed {
				t.Errorf("End: %v", err)
			}
			if c.Running() || c.State() == nil {
				t.Error("the process runs")
			}
			if err := c.End(ctx, syscall.SIGTERM); err != nil {
				t.Errorf("End of a process that has ended: %v", err)
			}
		})
	}
}

func TestStartFails(t *testing.T) {
	if c, err := Start(exec.Command("/no/such/program")); c != nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestExitCode(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want int
	}{
		{"no error", nil, 0},
		{"exit code 3", exec.Command("sh", "-c", "exit 3").Run(), 3},
		{"a signal", exec.Command("sh", "-c", "kill -9 $$").Run(), 1},
		{"no process", io.EOF, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := ExitCode("test", test.err); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	status := parseStatus("Name:\tab c\nUmask:\t0022\nVmHWM:\t  5120 kB\nVmRSS:\t  4096 kB\nThreads:\t7\n")
	if status["VmHWM"] != 5120 || status["VmRSS"] != 4096 || status["Threads"] != 7 {
		t.Errorf("status: %v", status)
	}
	// A program's name may look like anything.
	fields := afterName([]byte("42 (a b) R) S 1 1 1 0 -1 4194304 1 0 0 0 250 50 7 7 20 0 1 0 100 0 0"))
	if got, err := parseCPUTime(fields); err != nil || got != 3*time.Second {
		t.Errorf("CPU time: %v, %v", got, err)
	}
	if _, err := parseCPUTime(strings.Fields("S 1 2")); err == nil {
		t.Error("a line with too few fields has a CPU time")
	}
}

// What is read of this process exists.
func TestProc(t *testing.T) {
	pid := os.Getpid()
	status, err := Status(pid)
	if err != nil || status["VmRSS"] == 0 || status["Threads"] == 0 {
		t.Errorf("status: %v, %v", status, err)
	}
	if n, err := Descriptors(pid); err != nil || n < 3 {
		t.Errorf("descriptors: %d, %v", n, err)
	}
	if _, err := CPUTime(pid); err != nil {
		t.Error(err)
	}
	if Threads(pid) == 0 || Zombie(pid) {
		t.Error("this process has no threads")
	}
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); !Zombie(cmd.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a process that ended and was not waited for is no zombie")
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
