package metrics

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

const asServer = "SERVE_METRICS"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	go func() { io.Copy(io.Discard, os.Stdin); cancel() }()
	if err := whole(ctx, l); err != nil {
		panic(err)
	}
}

// process is a server in a process of its own, whose memory can be measured.
func process(t *testing.T) (address string, peak func() int) {
	t.Helper()
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), asServer+"=yes")
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := server.Wait(); err != nil {
			t.Error(err)
		}
	})
	address, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(address), func() int {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", server.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "\nVmHWM:") // KiB (proc(5))
		kib, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			t.Fatal(err)
		}
		return kib
	}
}

// 8,000 requests that are begun and never finished, each with nearly as much of a header as is
// taken, cost no more than those that are open at once. Without a limit of connections they take
// 300 MiB.
func TestHalfSentRequestsAreCheap(t *testing.T) {
	const requests, most = 8000, 16 << 10 // KiB
	address, peak := process(t)
	before := peak()
	half := "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Half: " + strings.Repeat("x", 15<<10)
	for range requests {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, half) // fails once it has given way
	}
	growth := peak() - before
	t.Logf("%d KiB before, %d KiB more with %d half-sent requests", before, growth, requests)
	if growth > most {
		t.Errorf("%d KiB more, want at most %d", growth, most)
	}
}
