package metrics

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// maxConnections is the limit of open connections. A scraper has one or two.
const maxConnections = 32

// limited is a listener that closes a connection when there is one too many: the oldest of the host
// that has most. Requests that are never finished do not accumulate, and another host's keep no
// scraper out, also while it waits for its password to be compared.
type limited struct {
	net.Listener
	mu   sync.Mutex
	open list.List // of *connection, the oldest first
}

// Accept accepts a connection, and closes the oldest one if there are too many. It holds no lock
// while it closes it.
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
		oldest = l.open.Remove(l.most()).(*connection)
	}
	added = &connection{Conn: c, of: l, host: origin(c.RemoteAddr().String())}
	added.place = l.open.PushBack(added)
	return added, oldest
}

// most is the oldest connection of the host that has most.
func (l *limited) most() *list.Element {
	count, oldest := map[string]int{}, l.open.Front()
	for e := oldest; e != nil; e = e.Next() {
		count[e.Value.(*connection).host]++
	}
	for e := oldest; e != nil; e = e.Next() {
		if count[e.Value.(*connection).host] > count[oldest.Value.(*connection).host] {
			oldest = e
		}
	}
	return oldest
}

type connection struct {
	net.Conn
	host  string
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

// origin is the host of an address of a connection. Of IPv6 it is the network of 64 bits, all of
// which one host may have.
func origin(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	ip := at.Addr().Unmap()
	if ip.Is4() {
		return ip.String()
	}
	network, _ := ip.WithZone("").Prefix(64) // of IPv6 there is one
	return network.String()
}
