package weather

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// proxy stands between the daemon and the API server. It ends the daemon's TLS with a certificate
// of its own and passes on everything else, the daemon's token included.
type proxy struct {
	address  string // https://host:port
	ca       []byte // PEM, of its own certificate
	target   *url.URL
	upstream http.RoundTripper
	server   *httptest.Server
	faults   *injector
}

// newProxy listens on loopback and passes on to the server of config.
func newProxy(t hosttest.T, config *rest.Config, s *injector) *proxy {
	target := hosttest.Need(url.Parse(config.Host))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	p := &proxy{target: target, faults: s, upstream: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
		DisableCompression: true, // what is compressed stays so
	}}
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2 = true
	p.server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, wire{}, c)
	}
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0) // broken connections are what it is for
	p.server.StartTLS()                                   // its certificate is valid for any clock
	p.address = p.server.URL
	p.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	return p
}

// close does not wait for the requests and watches that there are.
func (p *proxy) close() { _ = p.server.Config.Close() }

// wire is the key of a request's connection in its context.
type wire struct{}

// cut breaks the connection of a request, and with it every request and watch on it.
func cut(r *http.Request) {
	if c, ok := r.Context().Value(wire{}).(net.Conn); ok {
		_ = c.Close()
	}
	panic(http.ErrAbortHandler)
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

// soon is how long a watch lives at most before its fault.
const soon = 5 * time.Second

// watch passes events on until its fault. Faults of the response happen in the middle of it.
func (p *proxy) watch(w http.ResponseWriter, r *http.Request, f fault) {
	changed, silent := p.faults.signals()
	r.Header.Set("Accept-Encoding", "identity") // 1.37 compresses watch-lists (WatchListCompression)
	response, err := p.ask(r, nil)
	if err != nil {
		p.away(r)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) {
		pass(w, r, response, false)
		return
	}
	copyHeader(w, response)
	s := &stream{w: w, flush: http.NewResponseController(w).Flush, frames: frames(r, response.Body)}
	_ = s.flush()
	ends := p.endOf(f)
	for {
		select {
		case <-r.Context().Done():
			return
		case frame, open := <-s.frames:
			if !open {
				return
			}
			s.event(frame, f == twice)
		case <-ends:
			s.end(r, f)
		case <-changed:
			if changed, _ = p.faults.signals(); p.faults.dark() {
				cut(r)
			}
			f = p.faults.again()
			ends = p.endOf(f)
		case <-silent:
			p.faults.note(silenced)
			s.silence(r)
			return
		}
	}
}

// endOf is the time of a fault that ends a watch, nil for others.
func (p *proxy) endOf(f fault) <-chan time.Time {
	if f == cutAfter || f == half || f.refusal() {
		return time.After(p.faults.within(soon))
	}
	return nil
}

// stream is the response to a watch: frames of four bytes with the length and then the event
// (apimachinery, pkg/runtime/serializer/protobuf, LengthDelimitedFramer).
type stream struct {
	w      io.Writer
	flush  func() error
	frames <-chan []byte
}

func (s *stream) event(frame []byte, twice bool) {
	_, _ = s.w.Write(frame)
	if twice {
		_, _ = s.w.Write(frame)
	}
	_ = s.flush()
}

// end ends a watch by its fault.
func (s *stream) end(r *http.Request, f fault) {
	switch f {
	case half:
		// The next event, or the beginning of one that never comes.
		frame := []byte{0, 0, 1, 0, 'k', '8'}
		select {
		case next, open := <-s.frames:
			if open {
				frame = next[:len(next)/2]
			}
		case <-time.After(time.Second):
		}
		s.event(frame, false)
	case cutAfter:
		cut(r)
	default:
		if frame, err := errorEvent(f); err == nil {
			s.event(frame, false)
		}
	}
	panic(http.ErrAbortHandler)
}

// silence keeps the watch open and delivers nothing, until the client ends it.
func (s *stream) silence(r *http.Request) {
	frames := s.frames
	for {
		select {
		case <-r.Context().Done():
			return
		case _, open := <-frames:
			if !open {
				frames = nil // the server ended it; the client does not learn that
			}
		}
	}
}

// frames reads whole events. The channel is closed with the body.
func frames(r *http.Request, body io.Reader) <-chan []byte {
	out, in := make(chan []byte), bufio.NewReader(body)
	go func() {
		defer close(out)
		for {
			frame := make([]byte, 4)
			if _, err := io.ReadFull(in, frame); err != nil {
				return
			}
			frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
			if _, err := io.ReadFull(in, frame[4:]); err != nil {
				return
			}
			select {
			case out <- frame:
			case <-r.Context().Done():
				return
			}
		}
	}()
	return out
}

// errorEvent is an event of type ERROR with a made-up status.
func errorEvent(f fault) ([]byte, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	status, err := runtime.Encode(protobuf.NewSerializer(scheme, scheme), f.status())
	if err != nil {
		return nil, err
	}
	event := &metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Raw: status}}
	body, err := event.Marshal()
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}
