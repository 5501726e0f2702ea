package metrics

import (
	"container/list"
	"net"
	"sync"
)

// maxConnections is the limit of open connections. A scraper has one or two.
const maxConnections = 32

// limited is a listener that closes the oldest connection when there is one too many. Requests that are never finished
// do not accumulate, and do not keep out a scraper, which needs milliseconds.
type limited struct {
	net.Listener
	mu   sync.Mutex
	open list.List // of *connection, the oldest first
}

// Accept accepts a connection, and closes the oldest one if there are too many. It holds no lock while it closes it.
func (l *limited) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	added, oldest := l.add(c)
	if oldest != nil {
		oldest.Close()
	}
	return added, nil
}

func (l *limited) add(c net.Conn) (added, oldest *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open.Len() >= maxConnections {
		oldest = l.open.Remove(l.open.Front()).(*connection)
	}
	added = &connection{Conn: c, of: l}
	added.place = l.open.PushBack(added)
	return added, oldest
}

type connection struct {
	net.Conn
	of    *limited
	place *list.Element
}

// Close may be called twice: by the server and by Accept.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.open.Remove(c.place) // does nothing if it was removed before
	c.of.mu.Unlock()
	return c.Conn.Close()
}
