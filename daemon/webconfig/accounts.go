package webconfig

import (
	"crypto/hmac"
	"crypto/sha256"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/crypto/bcrypt"
)

// accounts are the users and their passwords' hashes. Without users everybody is let in.
type accounts struct {
	users     []user
	comparing chan struct{} // one password is compared at a time: each costs much processor time, also for those who guess
	waiting   *hosts
	salt      []byte
	known     *passwords
}

type user struct {
	name string
	hash []byte
}

// passwords are those that were right, so that a scraper's is compared once. There is one for each
// user.
type passwords struct {
	mu  sync.Mutex
	sum map[[sha256.Size]byte]bool
}

// allow reports whether a request is of a user with its password. It waits while another password
// is compared, until the client goes away. Of each host one request waits; the others are refused.
func (a accounts) allow(r *http.Request) bool {
	name, password, sent := r.BasicAuth()
	if !sent {
		return false
	}
	sum := a.sum(name, password)
	if a.known.has(sum) {
		return true
	}
	// Of each host one request waits: who guesses on many connections keeps no other host waiting.
	host := Origin(r.RemoteAddr)
	if !a.waiting.enter(host) {
		return false
	}
	defer a.waiting.leave(host)
	select {
	case a.comparing <- struct{}{}:
	case <-r.Context().Done():
		return false
	}
	defer func() { <-a.comparing }()
	at := slices.IndexFunc(a.users, func(u user) bool { return u.name == name })
	hash := a.users[max(at, 0)].hash // a user that is not there takes as long
	if bcrypt.CompareHashAndPassword(hash, []byte(password)) != nil || at < 0 {
		return false
	}
	a.known.add(sum)
	return true
}

// hosts are those of which a request waits for a comparison, or has one.
type hosts struct {
	mu  sync.Mutex
	all map[string]bool
}

func (h *hosts) enter(host string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all[host] {
		return false
	}
	h.all[host] = true
	return true
}

func (h *hosts) leave(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, host)
}

// Origin is the host of an address of a connection. Of IPv6 it is the network of 64 bits, all of
// which one host may have.
func Origin(address string) string {
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

// sum tells a user with a password from all others, and tells nothing about either.
func (a accounts) sum(name, password string) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, a.salt)
	h.Write([]byte(name + "\x00" + password)) // a header has no NUL
	return [sha256.Size]byte(h.Sum(nil))
}

func (p *passwords) has(sum [sha256.Size]byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sum[sum]
}

func (p *passwords) add(sum [sha256.Size]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sum == nil {
		p.sum = map[[sha256.Size]byte]bool{}
	}
	p.sum[sum] = true
}
