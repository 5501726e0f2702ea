package weather

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
)

// proxy stands between the daemon and the API server. It ends the daemon's TLS with a certificate
// of its own and passes on everything else, the daemon's token included.
type proxy struct {
	address  string // https://host:port
	ca       []byte // PEM, of its own certificate
	target   *url.URL
	upstream http.RoundTripper
	server   *http.Server
	faults   *injector
}

// newProxy listens on loopback and passes on to the server of config.
func newProxy(config *rest.Config, s *injector) (*proxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	certificate, ca, err := selfSigned()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{
		address: "https://" + listener.Addr().String(), ca: ca, target: target, faults: s,
		upstream: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
			DisableCompression: true, // what is compressed stays so
		},
	}
	p.server = &http.Server{
		Handler: p, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, wire{}, c) },
		ErrorLog:    log.New(io.Discard, "", 0), // broken connections are what it is for
	}
	go func() { _ = p.server.ServeTLS(listener, "", "") }()
	return p, nil
}

func (p *proxy) close() { _ = p.server.Close() }

// wire is the key of a request's connection in its context.
type wire struct{}

// cut breaks the connection of a request, and with it every request and watch on it.
func cut(r *http.Request) {
	if c, ok := r.Context().Value(wire{}).(net.Conn); ok {
		_ = c.Close()
	}
	panic(http.ErrAbortHandler)
}

// selfSigned makes a certificate for loopback that is its own authority. It is valid for a clock
// that is an hour off.
func selfSigned() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "chaos"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(48 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// ServeHTTP draws a fault for a request, and serves it accordingly.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		cut(r)
	}
	kind := kindOf(r)
	f := p.faults.next(kind)
	switch {
	case f == delayed:
		p.faults.delay(r.Context())
	case f == cutBefore:
		cut(r)
	case f.refusal() && p.faults.beforeServer():
		refuse(w, r, f) // before the server heard of it
		return
	case kind == watching:
		p.watch(w, r, f)
		return
	}
	response, err := p.ask(r, body)
	if err == nil && f == twice {
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		response, err = p.ask(r, body)
	}
	if err != nil {
		p.away(r)
	}
	defer response.Body.Close()
	switch {
	case f == cutAfter:
		cut(r)
	case f.refusal():
		refuse(w, r, f) // though the server did it
	default:
		pass(w, r, response, f == half)
	}
}

// ask sends the request on. The response's body is the caller's to close.
func (p *proxy) ask(r *http.Request, body []byte) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host = p.target.Scheme, p.target.Host, ""
	out.RequestURI = ""
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return p.upstream.RoundTrip(out)
}

// away breaks the connection, because the server's is broken, or is not to be had.
func (p *proxy) away(r *http.Request) {
	if r.Context().Err() == nil { // else it was the client's, by another request's fault
		p.faults.note(away)
	}
	cut(r)
}

// pass hands the response on, or the first half of it.
func pass(w http.ResponseWriter, r *http.Request, response *http.Response, halfOnly bool) {
	body, err := io.ReadAll(response.Body)
	if err != nil {
		cut(r)
	}
	copyHeader(w, response)
	if halfOnly {
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}

func copyHeader(w http.ResponseWriter, response *http.Response) {
	for key, values := range response.Header {
		w.Header()[key] = values
	}
	w.WriteHeader(response.StatusCode)
}
