package metrics

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// served is a server on the loopback, which ends with the test.
func served(t *testing.T, serve func(context.Context, net.Listener) error) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve ended with %v", err)
		}
	})
	return l.Addr().String()
}

func whole(ctx context.Context, l net.Listener) error {
	return New("v1", Sources{}).Serve(ctx, l, "", func() error { return nil }, func() error { return nil }, "node-a.example")
}

// Requests that are begun and never finished do not add up, and a scrape gets its response beside
// them.
func TestConnectionsAreFew(t *testing.T) {
	address := served(t, whole)
	var half []net.Conn
	for range 4 * maxConnections {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Half: "); err != nil {
			t.Fatal(err)
		}
		half = append(half, c)
	}
	r, err := http.Get("http://" + address + "/healthz")
	if err != nil || r.StatusCode != 200 {
		t.Fatalf("a scrape beside them: %v, %v", r, err)
	}
	for i, c := range half[:3*maxConnections] {
		c.SetReadDeadline(time.Now().Add(4 * time.Second)) // the server itself gives up after 5 s
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			t.Fatalf("connection %d of %d is still open: %v", i, len(half), err)
		}
	}
}

// A connection of a host that has few stays open, however many another host makes.
func TestConnectionsOfAnotherHost(t *testing.T) {
	address := served(t, whole)
	scraper, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer scraper.Close()
	other := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range 4 * maxConnections {
		c, err := other.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	request := "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	if _, err := io.WriteString(scraper, request); err != nil {
		t.Fatal(err)
	}
	if n, err := scraper.Read(make([]byte, 12)); err != nil || n == 0 {
		t.Errorf("the connection was closed: %v", err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestHostIsChecked(t *testing.T) {
	address := served(t, whole)
	_, port, _ := net.SplitHostPort(address)
	for host, want := range map[string]int{
		address: 200, "localhost": 200, "LOCALHOST.:" + port: 200, "127.1.2.3": 200, "[::1]:" + port: 200, "node-a.example:" + port: 200,
		"evil.example": 421, "evil.example:" + port: 421, "127.0.0.1.evil.example": 421, "192.0.2.1:" + port: 421, "localhost.evil.example": 421,
	} {
		request, err := http.NewRequest(http.MethodGet, "http://"+address+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		r, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != want || want == 421 && !strings.HasSuffix(string(body), "is not a name of this host\n") {
			t.Errorf("Host %s: %d %q, want %d", host, r.StatusCode, body, want)
		}
	}
}

// A request without a Host, as HTTP/1.0 allows, comes from no browser.
func TestNoHost(t *testing.T) {
	c, err := net.Dial("tcp", served(t, whole))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET /healthz HTTP/1.0\r\n\r\n")
	if response, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(response), "HTTP/1.0 200") {
		t.Errorf("%q, %v", response, err)
	}
}

// Refuse takes the connections that wait off the socket, says why, and ends by itself without one.
func TestRefuse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	asked := make(chan string, 1)
	go func() {
		defer cancel()
		r, err := http.Get("http://" + l.Addr().String() + "/metrics")
		if err != nil {
			asked <- err.Error()
			return
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		asked <- r.Status + ": " + string(body)
	}()
	if err := Refuse(ctx, l, errors.New("config.toml: bad")); err != nil {
		t.Error(err)
	}
	if got, want := <-asked, "503 Service Unavailable: config.toml: bad\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := Refuse(context.Background(), l, errors.New("bad")); err != nil || time.Since(began) > refuseFor {
		t.Errorf("without a request: %v after %s", err, time.Since(began))
	}
}
