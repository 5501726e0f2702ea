package process

import (
	"bufio"
	"os/exec"
	"runtime"
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
