package webconfig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/certs"
)

// Versions, ciphers and curves are those of the file, and HTTP/2 is never one of them.
func TestHandshakes(t *testing.T) {
	a, _, file := directory(t, "")
	for _, one := range []struct {
		keys   string
		client *tls.Config
		want   string // in the error, "" for none
	}{
		{"", &tls.Config{}, ""},
		{"", &tls.Config{MaxVersion: tls.VersionTLS12}, ""},
		{"", &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "protocol version"},
		{", min_version: TLS13", &tls.Config{MaxVersion: tls.VersionTLS12}, "protocol version"},
		{", max_version: TLS12", &tls.Config{MinVersion: tls.VersionTLS13}, "protocol version"},
		{", min_version: TLS10", &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, ""},
		{", curve_preferences: [CurveP521]", &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519}}, "handshake failure"},
		{", cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]", &tls.Config{
			MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384},
		}, "handshake failure"},
	} {
		certs.Replace(t, file, []byte(withTLS+one.keys+"}\nhttp_server_config: {http2: true}"))
		s := serve(t, file)
		one.client.RootCAs, one.client.NextProtos = a.Pool(), []string{"h2", "http/1.1"}
		c, err := tls.Dial("tcp", s.address, one.client)
		if got := text(err); !strings.Contains(got, one.want) || (got == "") != (one.want == "") {
			t.Errorf("%q: %q, want %q", one.keys, got, one.want)
		}
		if err != nil {
			continue
		}
		if got := c.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
			t.Errorf("%q: the protocol is %q", one.keys, got)
		}
		c.Close()
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A name of client_allowed_sans may be of each kind, and is compared whole. The subject's common
// name is none.
func TestAllowed(t *testing.T) {
	client := &x509.Certificate{
		DNSNames: []string{"prometheus"}, EmailAddresses: []string{"a@b.example"},
		IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)}, URIs: []*url.URL{{Scheme: "spiffe", Host: "b.example", Path: "/p"}},
	}
	client.Subject.CommonName = "common"
	for name, want := range map[string]bool{
		"prometheus": true, "a@b.example": true, "192.0.2.1": true, "spiffe://b.example/p": true,
		"prom": false, "prometheus.example": false, "common": false, "": false, "*": false,
	} {
		var f format
		f.TLS.ClientSANs = []string{"other", name}
		err := f.allowed(tls.ConnectionState{PeerCertificates: []*x509.Certificate{client}})
		if (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
	f := format{}
	f.TLS.ClientSANs = []string{}
	if err := f.allowed(tls.ConnectionState{PeerCertificates: []*x509.Certificate{client}}); err == nil {
		t.Error("an empty list lets a certificate through")
	}
}

// Who needs no certificate may have one, which is looked at then.
func TestCertificateIfGiven(t *testing.T) {
	a, _, file := directory(t, withTLS+", client_auth_type: VerifyClientCertIfGiven, client_ca_file: ca.crt, client_allowed_sans: [prometheus]}\n")
	s := serve(t, file)
	for name, one := range map[string]struct {
		c    *http.Client
		want string
	}{
		"none":         {client(t, a), "200"},
		"its own":      {client(t, a, a.Client(t, "prometheus")), "200"},
		"another name": {client(t, a, a.Client(t, "grafana")), refused},
	} {
		if got, _ := s.get(t, one.c, "https", "", ""); got != one.want {
			t.Errorf("%s: %s, want %s", name, got, one.want)
		}
	}
}

// While one password is compared, others wait, and a client that goes away waits no longer.
func TestOneComparison(t *testing.T) {
	a, err := newAccounts(map[string]string{"prometheus": strings.Split(users, "'")[1]})
	if err != nil {
		t.Fatal(err)
	}
	request := func(ctx context.Context, password string) *http.Request {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("prometheus", password)
		return r
	}
	if !a.allow(request(t.Context(), right)) {
		t.Fatal("the right password is refused")
	}
	a.comparing <- struct{}{} // another request's comparison
	gone, leave := context.WithCancel(t.Context())
	leave()
	if a.allow(request(gone, "wrong")) {
		t.Error("a wrong password is taken")
	}
	if !a.allow(request(gone, right)) {
		t.Error("a password that was right is compared again")
	}
	<-a.comparing
	if a.allow(request(t.Context(), "wrong")) || !a.allow(request(t.Context(), right)) {
		t.Error("later it is another one")
	}
}

func (h *hosts) has(host string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[host]
}

// Guesses on many connections keep no other host waiting: of each host one password is compared, or
// waits for that.
func TestManyGuesses(t *testing.T) {
	a, err := newAccounts(map[string]string{"prometheus": strings.Split(users, "'")[1]})
	if err != nil {
		t.Fatal(err)
	}
	request := func(from, password string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.RemoteAddr = from
		r.SetBasicAuth("prometheus", password)
		return r
	}
	a.comparing <- struct{}{} // all that follow wait, or are refused
	guess := make(chan bool)
	for _, from := range []string{"192.0.2.1:1", "[2001:db8::1]:1"} {
		go func() { guess <- a.allow(request(from, "wrong")) }()
		for end := time.Now().Add(10 * time.Second); !a.waiting.has(Origin(from)); runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("%s does not wait", from)
			}
		}
	}
	for _, from := range []string{"192.0.2.1:2", "[::ffff:192.0.2.1]:3", "[2001:db8::2]:1"} {
		second := make(chan bool, 1)
		go func() { second <- a.allow(request(from, right)) }()
		select {
		case allowed := <-second:
			if allowed {
				t.Errorf("%s: a second password is compared", from)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: a second password waits", from)
		}
	}
	scrape := make(chan bool)
	go func() { scrape <- a.allow(request("192.0.2.2:1", right)) }()
	<-a.comparing
	if <-guess || <-guess || !<-scrape {
		t.Error("another host is kept out")
	}
	if !a.allow(request("192.0.2.1:2", right)) {
		t.Error("a password that was right is compared again")
	}
}

// The confinement is told each file of which the daemon reads, by an absolute path, also of a file
// with a mistake in a value.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yml")
	for text, want := range map[string][]string{
		"":            {file},
		"no: key":     {file},
		withTLS + "}": {file, dir + "/server.crt", dir + "/server.key"},
		"tls_server_config: {cert_file: /a/crt, key_file: ../key, client_ca_file: ca/crt, min_version: bad}": {file, "/a/crt", filepath.Dir(dir) + "/key", dir + "/ca/crt"},
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Files(file); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := Files(dir + "/gone"); !slices.Equal(got, []string{dir + "/gone"}) {
		t.Errorf("of a file that is not there: %q", got)
	}
	if got := Files(""); got != nil {
		t.Errorf("of none: %q", got)
	}
}

// A certificate that comes by a link, as ACME clients and Kubernetes have them, is replaced by
// another link.
func TestLinkReplaced(t *testing.T) {
	a, dir, file := directory(t, "tls_server_config: {cert_file: live/server.crt, key_file: live/server.key}\n")
	link := func(name string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		a.Write(t, filepath.Join(dir, name), name)
		if err := os.Symlink(name, filepath.Join(dir, "next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "live")); err != nil {
			t.Fatal(err)
		}
	}
	link("node-a")
	s, c := serve(t, file), client(t, a)
	if got, name := s.get(t, c, "https", "", ""); got != "200" || name != "node-a" {
		t.Errorf("%s of %s", got, name)
	}
	link("node-b")
	if got, name := s.get(t, c, "https", "", ""); got != "200" || name != "node-b" {
		t.Errorf("with another link: %s of %s", got, name)
	}
}

// Certificates and keys may be in the file itself.
func TestInline(t *testing.T) {
	a, _, file := directory(t, "")
	certificate, key := a.Sign(t, "node-a")
	indent := func(pem []byte) string { return strings.ReplaceAll("\n"+string(pem), "\n", "\n    ") }
	certs.Replace(t, file, []byte("tls_server_config:\n  cert: |"+indent(certificate)+"\n  key: |"+indent(key)+"\n  client_ca: |"+indent(a.PEM())+
		"\n  client_auth_type: RequireAndVerifyClientCert\n"))
	if err := Check(file); err != nil {
		t.Fatal(err)
	}
	s := serve(t, file)
	if got, name := s.get(t, client(t, a, a.Client(t, "prometheus")), "https", "", ""); got != "200" || name != "node-a" {
		t.Errorf("%s of %s", got, name)
	}
	if got, _ := s.get(t, client(t, a), "https", "", ""); got != refused {
		t.Errorf("without a certificate: %s", got)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := Exposed(file); len(got) != 1 {
		t.Errorf("%q is exposed", got)
	}
}
