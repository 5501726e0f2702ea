package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// grace is for requests that are being answered when the server is to end: a reload is no reason for a
// scrape to fail.
const grace = time.Second

// Serve serves /metrics, /healthz and /readyz on the listener until ctx ends, and then what was asked before.
// healthy returns what a restart could mend, usable what keeps work waiting, nil if nothing does. Limits are small: this is a page for one scraper on the
// same host.
func (m *Metrics) Serve(ctx context.Context, l net.Listener, healthy, usable func() error) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", page(healthy))
	mux.HandleFunc("GET /readyz", page(usable))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if server.Shutdown(patience) != nil {
			server.Close()
		}
	})
	err := server.Serve(l) // returns when Shutdown begins
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// page is "ok", or what is wrong with 503.
func page(wrong func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := wrong(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
