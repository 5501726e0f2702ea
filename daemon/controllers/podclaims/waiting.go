// Package podclaims knows which claims belong together: what waits for its volumes, and which pods
// use a claim.
//
// A pod is known by a list of its namespace alone, which costs the API server something. Where all
// that waits fits it is not needed, and Waiting says so without a request. Finder lists the pods of
// one namespace after the other, so that a tenant who makes many costs no more than that.
//
// It will not decide anything, read a disk, or write.
package podclaims

import (
	"sync"
	"time"
)

// Claim is a claim that waits for its volume.
type Claim struct {
	Pool    string // of this node, to which its class leads; "" for none
	Bytes   uint64 // that it requests
	Refused bool   // it cannot have its volume here
}

// placing is how long a namespace counts after a claim of it was given to this node: the scheduler
// writes the node on one claim of a pod after the other.
const placing = 10 * time.Second

// most is more than any pool has, and so little that sums of it are right.
const most = 1 << 50

// Waiting is the claims without a volume that are this node's, or may become it. The zero value is
// ready for use.
type Waiting struct {
	mu     sync.Mutex
	spaces map[string]*space
}

type space struct {
	claims  map[string]Claim // by UID
	need    map[string]uint64
	refused int
	placed  time.Time // when a claim was given to this node last
}

// Set notes a claim as it is now. placed: it was given to this node.
func (w *Waiting) Set(namespace, uid string, c Claim, placed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.spaces[namespace]
	if s == nil {
		if w.spaces == nil {
			w.spaces = map[string]*space{}
		}
		s = &space{claims: map[string]Claim{}, need: map[string]uint64{}}
		w.spaces[namespace] = s
	}
	s.drop(uid)
	c.Bytes = min(c.Bytes, most)
	s.claims[uid] = c
	s.need[c.Pool] += c.Bytes
	if c.Refused {
		s.refused++
	}
	if placed {
		s.placed = time.Now()
	}
}

// Drop forgets a claim.
func (w *Waiting) Drop(namespace, uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.spaces[namespace]
	if s == nil {
		return
	}
	s.drop(uid)
	if len(s.claims) == 0 && time.Since(s.placed) > placing {
		delete(w.spaces, namespace)
	}
}

func (s *space) drop(uid string) {
	c, known := s.claims[uid]
	if !known {
		return
	}
	delete(s.claims, uid)
	if s.need[c.Pool] -= c.Bytes; s.need[c.Pool] == 0 {
		delete(s.need, c.Pool)
	}
	if c.Refused {
		s.refused--
	}
}

// Need is what waits beside a claim.
type Need struct {
	Alone   bool              // nothing else of its namespace
	Refused bool              // a claim of its namespace cannot have its volume here
	Bytes   map[string]uint64 // by pool: of its namespace, and of those of which claims come to this node now
}

// Need returns what waits beside a claim of a namespace, with it.
func (w *Waiting) Need(namespace string) Need {
	w.mu.Lock()
	defer w.mu.Unlock()
	own := w.spaces[namespace]
	if own == nil || len(own.claims) < 2 {
		return Need{Alone: true}
	}
	n := Need{Refused: own.refused > 0, Bytes: map[string]uint64{}}
	for name, s := range w.spaces {
		if name != namespace && time.Since(s.placed) > placing {
			if len(s.claims) == 0 {
				delete(w.spaces, name)
			}
			continue
		}
		for pool, bytes := range s.need {
			n.Bytes[pool] = min(n.Bytes[pool]+min(bytes, most), most)
		}
	}
	return n
}
