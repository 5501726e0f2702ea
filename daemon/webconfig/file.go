package webconfig

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
)

// File is a web configuration file in use. It is looked at for each connection and each request,
// and read again when it or a file that it names changed. What is not valid is not taken into use:
// what was valid stays in force. Until something was valid, connections are closed.
type File struct {
	path string
	tell func(err error, inForce bool)

	mu   sync.Mutex
	seen []stamp // of the files as they were read last
	now  *config // nil: none was valid yet
}

// stamp tells a file that was changed or replaced. Its zero value is one that cannot be looked at.
type stamp struct {
	path         string
	device, node uint64
	size         int64
	written      syscall.Timespec
	changed      syscall.Timespec
}

// Open reads the file at path. tell is called each time that the file was read, now and when it was
// changed: with what is wrong and whether an earlier one stays in force, or with nil. It must not
// call the File.
func Open(path string, tell func(err error, inForce bool)) *File {
	f := &File{path: path, tell: tell}
	f.current()
	return f
}

// Path is the one that it was opened with.
func (f *File) Path() string { return f.path }

// current is the configuration in force, nil if there is none.
func (f *File) current() *config {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen != nil && slices.Equal(f.seen, stamps(f.seen)) {
		return f.now
	}
	f.seen = []stamp{stampOf(f.path)} // before it is read: what changes meanwhile differs the next time
	for _, path := range Files(f.path)[1:] {
		f.seen = append(f.seen, stampOf(path))
	}
	read, err := read(f.path)
	f.tell(err, f.now != nil)
	if err == nil {
		f.now = read
	}
	return f.now
}

func stamps(of []stamp) []stamp {
	now := make([]stamp, len(of))
	for i, one := range of {
		now[i] = stampOf(one.path)
	}
	return now
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{path: path}
	}
	s := info.Sys().(*syscall.Stat_t) // what it is on Linux (os.FileInfo)
	return stamp{path, uint64(s.Dev), s.Ino, s.Size, s.Mtim, s.Ctim}
}

// Apply has a server serve by the file, and returns the listener to serve in place of l. It is
// called once for each server, after its handler was set.
func (f *File) Apply(server *http.Server, l net.Listener) net.Listener {
	server.Handler = f.guard(server.Handler)
	server.ErrorLog = log.New(noHandshakes{log.Writer()}, "", 0)
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if encrypted, is := c.(*tls.Conn); is {
			c = encrypted.NetConn()
		}
		return context.WithValue(ctx, ofConnection{}, c.(connection).config)
	}
	return listener{l, f}
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

type ofConnection struct{} // the key of a connection's config in the context of its requests

// connection is one that was accepted by a configuration.
type connection struct {
	net.Conn
	config *config
}

type listener struct {
	net.Listener
	file *File
}

// Accept accepts a connection, with TLS if the file says so. The handshake is the server's, which
// bounds its time.
func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		switch now := l.file.current(); {
		case now == nil:
			c.Close()
		case now.tls != nil:
			return tls.Server(connection{c, now}, now.tls), nil
		default:
			return connection{c, now}, nil
		}
	}
}

// guard lets the requests through that the configuration in force allows. A connection that an
// earlier one accepted is closed without a response: clients make another one, by the rules that
// hold now.
func (f *File) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := f.current()
		if r.Context().Value(ofConnection{}) != c {
			panic(http.ErrAbortHandler) // net/http closes the connection, and logs nothing
		}
		for name, value := range c.headers {
			w.Header().Set(name, value)
		}
		if c.limiter != nil && !c.limiter.Allow() {
			http.Error(w, "more requests than rate_limit allows", http.StatusTooManyRequests)
			return
		}
		if len(c.accounts.users) > 0 && !c.accounts.allow(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="metrics"`)
			http.Error(w, "a user and its password are wanted", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
