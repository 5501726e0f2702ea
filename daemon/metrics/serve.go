package metrics

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"
)

// grace is how long requests that are in flight may take when the server ends, so that a reload
// does not fail a scrape.
const grace = time.Second

// Serve serves /metrics, /healthz and /readyz on the listener until ctx ends, and then the requests
// in flight. healthy returns an error that a restart may remove, usable an error that keeps claims
// waiting. names are the names of this host that a request may have in Host, in addition to those
// of the loopback. file says whom it serves and with which certificate (web-configuration.md of
// exporter-toolkit); "" is everybody, in plain text. The limits are small: there is one scraper.
func (m *Metrics) Serve(
	ctx context.Context, l net.Listener, file string, healthy, usable func() error, names ...string,
) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", page(healthy))
	mux.HandleFunc("GET /readyz", page(usable))
	return serve(ctx, l, file, ownHost(names, mux))
}

// Refuse responds to every request with an error. A daemon that cannot start calls it on a socket
// that systemd listens on: while a connection waits there, systemd starts the service again at
// once, whatever its exit code. Refuse returns when no request came for quietFor, or refuseFor
// after the first one, and at the latest when ctx ends.
func Refuse(ctx context.Context, l net.Listener, why error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(quietFor, cancel)
	var asked sync.Once
	return serve(ctx, l, "", ownHost(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Do(func() { quiet.Reset(refuseFor) })
		text := why.Error()
		if !local(r) { // whom the configuration lets read that is not known
			text = "the daemon has not started"
		}
		http.Error(w, text, http.StatusServiceUnavailable)
	})))
}

// Times of Refuse: how long it waits for the first request, and how long it continues after that,
// so that the service is started once in that time, and the configuration is read again after it.
const (
	quietFor  = 200 * time.Millisecond
	refuseFor = 10 * time.Second
)

func serve(ctx context.Context, l net.Listener, file string, handler http.Handler) error {
	defer l.Close() // also of a file that cannot be used, with which nothing is served
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: 16 << 10, ErrorLog: log.New(noHandshakes{log.Writer()}, "", 0),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		// No HTTP/2: each of its connections has many requests, and connections are what is bounded.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	// A certificate is looked at for each connection: what is replaced counts for the next request.
	server.SetKeepAlivesEnabled(file == "")
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if server.Shutdown(limit) != nil {
			server.Close()
		}
	})
	// It returns when Shutdown begins. It would log each request while the file has a mistake.
	silent := slog.New(slog.DiscardHandler)
	err := web.Serve(&limited{Listener: l}, server, &web.FlagConfig{WebConfigFile: &file}, silent)
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// noHandshakes leaves out what net/http logs of each failed handshake: otherwise each scan of the
// port would fill the log.
type noHandshakes struct{ io.Writer }

// Write is part of io.Writer.
func (w noHandshakes) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		return len(line), nil
	}
	return w.Writer.Write(line)
}

// page returns a handler that responds with "ok", or with 503 and the error.
func page(wrong func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := wrong(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// ownHost refuses requests over the loopback for another host. Otherwise a web page whose DNS name
// resolves to
// 127.0.0.1 could read the metrics with the browser of a user of this host (DNS rebinding). At an address
// that other machines can reach, a check of Host would protect nothing.
func ownHost(names []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if local(r) && !own(r.Host, names) {
			http.Error(w, fmt.Sprintf("%q is not a name of this host", r.Host), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// local reports whether a request came over the loopback.
func local(r *http.Request) bool {
	tcp, is := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return is && tcp.IP.IsLoopback()
}

// own reports whether a request's Host, which HTTP/1.0 may leave empty, is the loopback or one of
// names.
func own(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	return host == "" || host == "localhost" || slices.Contains(names, host)
}
