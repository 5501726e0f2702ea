package metrics

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/certs"
)

// right is the password of the user prometheus, at bcrypt's lowest cost.
const (
	right   = "right password"
	users   = "basic_auth_users: {prometheus: '$2a$04$02V0i0o5LW3QW2gphPpCM.W9f4TZl8JJ3BwDAT5CKprmC6Rt/iLcC'}\n"
	withTLS = "tls_server_config: {cert_file: server.crt, key_file: server.key"
)

// scraped serves metrics by a web configuration file, until the test ends.
type scraped struct {
	*testing.T
	authority          *certs.Authority
	dir, file, address string
}

func serveBy(t *testing.T, text string) *scraped {
	t.Helper()
	s := &scraped{T: t, authority: certs.NewAuthority(t), dir: t.TempDir()}
	s.file = filepath.Join(s.dir, "web.yml")
	s.authority.Write(t, s.dir, "node-a")
	s.write(text)
	s.address = served(t, func(ctx context.Context, l net.Listener) error {
		fine := func() error { return nil }
		return New("v1", Sources{}).Serve(ctx, l, s.file, fine, fine)
	})
	return s
}

func (s *scraped) write(text string) { certs.Replace(s.T, s.file, []byte(text)) }

// client knows the authority, and may have a certificate.
func (s *scraped) client(own ...tls.Certificate) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.authority.Pool(),
		Certificates: own}}
	s.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// refused is in the place of a status. How it ends is chance: a connection that is closed with data
// unread is reset, and the reason, which was sent before, may be lost.
const refused = "refused"

// get returns the status, or refused, and the name in the server's certificate.
func (s *scraped) get(c *http.Client, scheme, user, password string) (got, name string) {
	s.Helper()
	request, err := http.NewRequest(http.MethodGet, scheme+"://"+s.address+"/healthz", nil)
	if err != nil {
		s.Fatal(err)
	}
	if user != "" {
		request.SetBasicAuth(user, password)
	}
	response, err := c.Do(request)
	if err != nil {
		s.Log(err)
		return refused, ""
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body) // so that the connection could be used again
	if response.TLS != nil {
		name = response.TLS.PeerCertificates[0].DNSNames[0]
	}
	return fmt.Sprint(response.StatusCode), name
}

func TestPasswords(t *testing.T) {
	s := serveBy(t, users)
	for _, one := range []struct{ user, password, want string }{
		{"", "", "401"}, {"prometheus", "wrong", "401"}, {"other", right, "401"}, {"prometheus", "", "401"},
		{"prometheus", right, "200"}, {"prometheus", right, "200"}, {"prometheus", "wrong", "401"},
	} {
		if got, _ := s.get(s.client(), "http", one.user, one.password); got != one.want {
			t.Errorf("%q, %q: %s, want %s", one.user, one.password, got, one.want)
		}
	}
}

// A certificate of another authority, of another name or none at all is refused, and so is plain
// text.
func TestClientCertificates(t *testing.T) {
	s := serveBy(t, withTLS+", client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt, client_allowed_sans: [prometheus]}\n")
	for name, one := range map[string]struct {
		c    *http.Client
		want string
	}{
		"its own":           {s.client(s.authority.Client(t, "prometheus")), "200"},
		"another name":      {s.client(s.authority.Client(t, "grafana")), refused},
		"another authority": {s.client(certs.NewAuthority(t).Client(t, "prometheus")), refused},
		"none":              {s.client(), refused},
	} {
		if got, _ := s.get(one.c, "https", "", ""); got != one.want {
			t.Errorf("%s: %s, want %s", name, got, one.want)
		}
	}
	if got, _ := s.get(s.client(), "http", "", ""); got != "400" {
		t.Errorf("plain text: %s", got)
	}
}

// What is replaced counts for the next request, also of a client that was connected. A mistake lets
// nobody in until it is mended.
func TestReplaced(t *testing.T) {
	s := serveBy(t, withTLS+"}\n"+users)
	c := s.client()
	want := func(when, status, name string) {
		t.Helper()
		if got, server := s.get(c, "https", "prometheus", right); got != status || server != name {
			t.Errorf("%s: %s of %s, want %s of %s", when, got, server, status, name)
		}
	}
	want("at first", "200", "node-a")
	s.authority.Write(t, s.dir, "node-b")
	want("with another certificate", "200", "node-b")
	certs.Replace(t, filepath.Join(s.dir, "server.key"), []byte("no key"))
	want("with half of a certificate", refused, "")
	s.authority.Write(t, s.dir, "node-c")
	want("with the next one", "200", "node-c")
	s.write(withTLS + "}\nbasic_auth_users: {other: '" + strings.Split(users, "'")[1] + "'}\n")
	want("without the user", "401", "node-c")
	s.write(withTLS + "}\nunknown: key\n")
	want("with a mistake", refused, "")
	s.write(withTLS + ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt}")
	want("without a certificate", refused, "")
	c = s.client(s.authority.Client(t, "prometheus"))
	want("with one", "200", "node-c")
}

// A file that is not valid at the start serves nobody, and leaves no listener.
func TestNotValid(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yml")
	certs.Replace(t, file, []byte("basic_auth_users: s3cret"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := New("v1", Sources{}).Serve(t.Context(), l, file, nil, nil); err == nil {
		t.Error("it is served")
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		c.Close()
		t.Error("connections are accepted, and have no response")
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
