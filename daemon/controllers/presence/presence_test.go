package presence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// server has one lease, or none.
type server struct {
	mu      sync.Mutex
	lease   *Lease
	version int
	fails   error
	reads   int
	writes  int
	first   bool // the host has not written it before
	told    bool // the Node tells which host it is
	tells   State
	key     string
}

func (s *server) needed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.told
}

// state is what the daemon tells of itself.
func (s *server) state() (text, news string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tells.Time.IsZero() {
		return "", ""
	}
	return s.tells.Encode()
}

func (s *server) tell(change func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tells.Time = time.Now()
	change(&s.tells)
}

func (s *server) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *server) ReadNodeLease(context.Context) (*Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.fails != nil || s.lease == nil {
		return nil, s.fails
	}
	copied := *s.lease
	return &copied, nil
}

func (s *server) WriteNodeLease(_ context.Context, l Lease) (*Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != nil {
		return nil, s.fails
	}
	if now := s.lease; now == nil && l.Version != "" || now != nil && now.Version != l.Version {
		return nil, nil
	}
	s.version++
	s.writes++
	s.lease = &Lease{Holder: l.Holder, UID: "u", Version: fmt.Sprint(s.version), States: l.States}
	copied := *s.lease
	return &copied, nil
}

// becomes has another program write the lease; "" deletes it.
func (s *server) becomes(holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	if s.lease = nil; holder != "" {
		s.lease = &Lease{Holder: holder, UID: "u", Version: fmt.Sprint(s.version)}
	}
}

func (s *server) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return ""
	}
	return s.lease.Holder
}

func (s *server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

// keep runs a Keeper of a host on a server for the time of do.
func keep(t *testing.T, s *server, host string, do func(*Keeper)) {
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	k := New(Options{Identity: host, API: s, Changed: func() {}, Requested: func(error) {},
		Needed: s.needed, First: s.first, Key: "state.hostpath-provisioner/" + s.key, State: s.state,
		Clock: func() time.Duration { return time.Since(began) }})
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	synctest.Wait()
	do(k)
	cancel()
	<-done
}

func wait(d time.Duration) { time.Sleep(d); synctest.Wait() }

func known(k *Keeper) bool {
	select {
	case <-k.Known():
		return true
	default:
		return false
	}
}

// A free name is taken, and kept by few requests; a host that starts again goes on with it.
func TestOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		keep(t, s, "a_1", func(k *Keeper) {
			if !known(k) || k.Other() != "" || s.holder() != "a_1" {
				t.Errorf("%q, %q", k.Other(), s.holder())
			}
			wait(time.Hour)
			if s.writes < 120 || s.writes > 146 {
				t.Errorf("%d writes in an hour", s.writes)
			}
			s.becomes("")
			wait(2 * Renewal)
			if s.holder() != "a_1" {
				t.Error("one that was deleted is not made again")
			}
		})
		keep(t, s, "a_1", func(k *Keeper) {
			if !known(k) || k.Other() != "" {
				t.Errorf("after a restart: %q", k.Other())
			}
		})
	})
}

// Of two hosts with one name the one that came first has it, as long as it renews the lease, and
// then the other one; the first sees that when it comes back.
func TestTwoHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		keep(t, s, "a_1", func(first *Keeper) {
			keep(t, s, "a_2", func(second *Keeper) {
				for range 100 {
					wait(recheck)
					if !known(second) || second.Other() != "a_1" || first.Other() != "" {
						t.Fatalf("first sees %q, second %q", first.Other(), second.Other())
					}
				}
			})
			s.becomes("a_2") // it was cut off for long
			wait(Renewal + 2*time.Second)
			if first.Other() != "a_2" {
				t.Errorf("cut off for long it sees %q", first.Other())
			}
		})
		s.becomes("a_1")
		keep(t, s, "a_2", func(second *Keeper) {
			if wait(Duration - time.Second); second.Other() != "a_1" {
				t.Errorf("before it is silent for long: %q", second.Other())
			}
			if wait(recheck + 2*time.Second); second.Other() != "" || s.holder() != "a_2" {
				t.Errorf("once it is: %q, %q", second.Other(), s.holder())
			}
		})
	})
}

// A Node that tells its host by itself costs no request, and its lease counts for nothing.
func TestNodeTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{told: true}
		s.becomes("a_2")
		tells := func(k *Keeper, told bool) {
			s.mu.Lock()
			s.told = told
			s.mu.Unlock()
			k.NodeChanged()
			synctest.Wait()
		}
		keep(t, s, "a_1", func(k *Keeper) {
			if wait(time.Hour); !known(k) || k.Other() != "" || s.writes != 0 {
				t.Errorf("%q, %d writes", k.Other(), s.writes)
			}
			if tells(k, false); k.Other() != "a_2" {
				t.Errorf("it tells nothing any more: %q", k.Other())
			}
			if tells(k, true); k.Other() != "" {
				t.Errorf("it tells again: %q", k.Other())
			}
		})
	})
}

// A name is known once the API server was asked. A right that is missing keeps nobody from working.
func TestErrors(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "lease", errors.New("no"))
	synctest.Test(t, func(t *testing.T) {
		s := &server{fails: errors.New("away")}
		keep(t, s, "a_1", func(k *Keeper) {
			if wait(time.Minute); known(k) {
				t.Error("known without a response")
			}
			s.fail(forbidden)
			if wait(recheck); !known(k) || k.Other() != "" {
				t.Errorf("forbidden: %q", k.Other())
			}
			s.fail(nil)
			s.becomes("a_2")
			wait(Renewal)
			if k.Other() != "a_2" {
				t.Errorf("another host's is seen as %q", k.Other())
			}
			s.fail(errors.New("away"))
			wait(time.Hour)
			if k.Other() != "a_2" {
				t.Error("the other host is forgotten while the server is away")
			}
		})
	})
}
