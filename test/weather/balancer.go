package weather

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// balancer is an address behind which several API servers are, as a cluster with more than one
// has it: it passes on bytes, and gives each new connection to the next server.
type balancer struct {
	net.Listener

	mu      sync.Mutex
	servers []string // host:port
	next    int
	open    map[net.Conn]bool // of clients
	taken   map[string]int    // connections, by server
}

func newBalancer(t hosttest.T) *balancer {
	listener := hosttest.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	b := &balancer{Listener: listener, open: map[net.Conn]bool{}, taken: map[string]int{}}
	go b.serve()
	return b
}

// to gives connections to these servers from now on. Those that are open stay.
func (b *balancer) to(servers ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers = slices.Clone(servers)
	clear(b.taken)
}

// fewest is how many connections since to the server took that took fewest.
func (b *balancer) fewest() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	var n []int
	for _, server := range b.servers {
		n = append(n, b.taken[server])
	}
	return slices.Min(n)
}

// cut breaks all connections, so that each client goes to the next server.
func (b *balancer) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for client := range b.open {
		_ = client.Close()
	}
}

func (b *balancer) serve() {
	for {
		client, err := b.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			go b.pass(client)
		}
	}
}

// pass serves a connection until either end closes it.
func (b *balancer) pass(client net.Conn) {
	defer client.Close()
	address := b.choose()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	b.mu.Lock()
	b.open[client] = true
	b.taken[address]++
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.open, client)
	}()
	ended := make(chan struct{}, 2)
	pipe := func(to, from net.Conn) { _, _ = io.Copy(to, from); ended <- struct{}{} }
	go pipe(server, client)
	go pipe(client, server)
	<-ended
}

// choose is the server of the next connection, "" if there is none.
func (b *balancer) choose() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.servers) == 0 {
		return ""
	}
	b.next++
	return b.servers[b.next%len(b.servers)]
}
