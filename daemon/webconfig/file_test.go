package webconfig

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/certs"
)

// server serves "ok" by a web configuration file, until the test ends.
type server struct {
	address string
	file    *File
	mu      sync.Mutex
	told    []string
}

func serve(t *testing.T, file string) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{address: l.Addr().String()}
	s.file = Open(file, s.tell)
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })}
	l = s.file.Apply(web, l)
	go web.Serve(l) // ends with Close
	t.Cleanup(func() { web.Close() })
	return s
}

func (s *server) tell(err error, inForce bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, fmt.Sprint(err != nil, inForce))
}

// tells is how often the file was read, whether each was wrong, and whether an earlier one was in
// force.
func (s *server) tells() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.told, ", ")
}

// client is a client that knows an authority, and may have a certificate.
func client(t *testing.T, a *certs.Authority, own ...tls.Certificate) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.Pool(), Certificates: own}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// refused is in the place of a status. How it ends is chance: a connection that is closed with data
// unread is reset, and the reason, which was sent before, may be lost.
const refused = "refused"

// get returns the status, or refused, and the name in the server's certificate.
func (s *server) get(t *testing.T, c *http.Client, scheme, user, password string) (got, name string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, scheme+"://"+s.address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		request.SetBasicAuth(user, password)
	}
	response, err := c.Do(request)
	if err != nil {
		t.Log(err)
		return refused, ""
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body) // so that the connection is used again
	if response.TLS != nil {
		name = response.TLS.PeerCertificates[0].DNSNames[0]
	}
	return fmt.Sprint(response.StatusCode), name
}

func TestPasswords(t *testing.T) {
	a, _, file := directory(t, users+"http_server_config: {headers: {X-Content-Type-Options: nosniff}}\n")
	s, c := serve(t, file), client(t, a)
	for _, one := range []struct{ user, password, want string }{
		{"", "", "401"}, {"prometheus", "wrong", "401"}, {"other", right, "401"}, {"prometheus", "", "401"},
		{"prometheus", right, "200"}, {"prometheus", right, "200"}, {"prometheus", "wrong", "401"},
	} {
		if got, _ := s.get(t, c, "http", one.user, one.password); got != one.want {
			t.Errorf("%q, %q: %s, want %s", one.user, one.password, got, one.want)
		}
	}
	if known := s.file.current().accounts.known.sum; len(known) != 1 {
		t.Errorf("%d passwords are kept, want the right one: guesses would fill the memory", len(known))
	}
	response, err := http.Get("http://" + s.address)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if h := response.Header; h.Get("WWW-Authenticate") == "" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", h)
	}
}

// A certificate of another authority, of another name or none at all is refused, and so is plain
// text.
func TestClientCertificates(t *testing.T) {
	a, _, file := directory(t, withTLS+", client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt, client_allowed_sans: [prometheus]}\n")
	s := serve(t, file)
	for name, one := range map[string]struct {
		c    *http.Client
		want string
	}{
		"its own":           {client(t, a, a.Client(t, "prometheus")), "200"},
		"another name":      {client(t, a, a.Client(t, "grafana")), refused},
		"another authority": {client(t, a, certs.NewAuthority(t).Client(t, "prometheus")), refused},
		"none":              {client(t, a), refused},
	} {
		if got, _ := s.get(t, one.c, "https", "", ""); got != one.want {
			t.Errorf("%s: %s, want %s", name, got, one.want)
		}
	}
	if got, _ := s.get(t, client(t, a), "http", "", ""); got != "400" {
		t.Errorf("plain text: %s", got)
	}
}

// What is replaced counts for the next request, also of a client that is connected, and a session
// is not resumed.
func TestReplaced(t *testing.T) {
	a, dir, file := directory(t, withTLS+"}\n"+users)
	s, c := serve(t, file), client(t, a)
	c.Transport.(*http.Transport).TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	want := func(when, status, name string) {
		t.Helper()
		if got, server := s.get(t, c, "https", "prometheus", right); got != status || server != name {
			t.Errorf("%s: %s of %s, want %s of %s", when, got, server, status, name)
		}
	}
	want("at first", "200", "node-a")
	a.Write(t, dir, "node-b")
	want("with another certificate", "200", "node-b")
	certs.Replace(t, filepath.Join(dir, "server.key"), []byte("no key"))
	want("with half of a certificate", "200", "node-b")
	a.Write(t, dir, "node-c")
	want("with the next one", "200", "node-c")
	certs.Replace(t, file, []byte(withTLS+"}\nbasic_auth_users: {other: '"+strings.Split(users, "'")[1]+"'}\n"))
	want("without the user", "401", "node-c")
	certs.Replace(t, file, []byte(withTLS+"}\nunknown: key\n"))
	want("with a mistake", "401", "node-c")
	certs.Replace(t, file, []byte(withTLS+", client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt}"))
	if got, _ := s.get(t, c, "https", "prometheus", right); got != refused {
		t.Errorf("with client certificates: %s", got)
	}
}

// A file that is not valid at the start serves nobody, and the one that takes its place counts.
func TestUntilItIsValid(t *testing.T) {
	a, _, file := directory(t, "basic_auth_users: s3cret")
	s, c := serve(t, file), client(t, a)
	for range 2 {
		if got, _ := s.get(t, c, "http", "", ""); got != refused {
			t.Errorf("with a file that is not valid: %s", got)
		}
	}
	certs.Replace(t, file, []byte(users))
	if got, _ := s.get(t, c, "http", "prometheus", right); got != "200" {
		t.Errorf("with one that is: %s", got)
	}
	certs.Replace(t, file, []byte("unknown: key"))
	if got, _ := s.get(t, c, "http", "prometheus", right); got != "200" {
		t.Errorf("with a mistake: %s", got)
	}
	if got, want := s.tells(), "true false, false false, true true"; got != want {
		t.Errorf("told %s, want each once: %s", got, want)
	}
}

func TestRate(t *testing.T) {
	a, _, file := directory(t, "rate_limit: {interval: 1h, burst: 2}\n")
	s, c := serve(t, file), client(t, a)
	for i, want := range []string{"200", "200", "429"} {
		if got, _ := s.get(t, c, "http", "", ""); got != want {
			t.Errorf("request %d: %s, want %s", i+1, got, want)
		}
	}
}

func TestScansFillNoLog(t *testing.T) {
	var got bytes.Buffer
	l := log.New(noHandshakes{&got}, "", 0)
	l.Print("http: TLS handshake error from 192.0.2.1:4242: EOF")
	l.Print("http: Accept error")
	if got.String() != "http: Accept error\n" {
		t.Errorf("%q", got.String())
	}
}
