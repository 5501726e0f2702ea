package metrics

import (
	"container/list"
	"net"
	"sync"
)

// maxConnections are open at once. A scraper has one or two.
const maxConnections = 32

// limited closes the oldest connection when there is one too many: requests that are never finished
// neither add up nor keep a scraper out, which is done in milliseconds.
type limited struct {
	net.Listener
	mu   sync.Mutex
	open list.List // of *connection, the oldest first
}

// Accept also makes room. A connection that gives way is closed without a lock held.
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

// Close may be called twice: by the server, and to make room.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.open.Remove(c.place) // nothing, if it is not in there
	c.of.mu.Unlock()
	return c.Conn.Close()
}
