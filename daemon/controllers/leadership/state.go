package leadership

import (
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// Role is what a daemon does in a shared pool at this moment.
type Role string

// Roles.
const (
	Standby  Role = "standby"  // another daemon works in the pool, or reports for it: this one does and tells nothing
	Reporter Role = "reporter" // no daemon can work in the pool, and this one tells claims and volumes why
	Leader   Role = "leader"   // this daemon works in the pool
)

// state is what a process knows of a lease, and whether it holds it. Times are by its clock.
type state struct {
	me    string
	clock func() time.Duration

	mu         sync.Mutex
	lease      *Lease        // as it was last seen
	changed    time.Duration // when that was
	doubtful   bool          // what the watch brings is not what is known: read it before the next decision
	term       *Term         // that this process holds
	reporter   bool          // in that term it is Reporter
	trusted    time.Duration // until when it may count on that
	worked     string        // Facts.Worked
	wanted     *Lease        // what was written last, whether or not there was a response
	usual      string        // damage that even a lease has that was written just now: an admission webhook adds it
	lost       []string      // messages of terms that were overwritten, to be reported
	mismatch   string        // Facts.StorageMismatch
	mismatched time.Duration // when that was found first
}

func newState(me string, clock func() time.Duration) *state {
	return &state{me: me, clock: clock, changed: clock()}
}

// role is the role at this moment: one that was not renewed in time is over.
func (s *state) role() Role {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.term == nil || s.clock() >= s.trusted:
		return Standby
	case s.reporter:
		return Reporter
	default:
		return Leader
	}
}

// leader is the holder of the lease, if it is a Leader that was seen to renew; "" where there is
// none.
func (s *state) leader() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lease
	if l == nil || l.Reporter || s.clock()-s.changed > Duration {
		return ""
	}
	return l.Holder
}

// held is the term that this process holds, nil if none.
func (s *state) held() *Term {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.term
}

// watched notes a lease as the watch brought it. One that is older than what is known is not taken:
// a watch lags behind our own writes. Or the server's data was restored, and it is what the server
// has: then it is read.
func (s *state) watched(lease *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lease != nil && s.lease != nil && lease.Term.UID == s.lease.Term.UID &&
		!plan.Newer(lease.Version, s.lease.Version, true) {
		s.doubtful = s.doubtful || lease.Version != s.lease.Version
		return
	}
	s.note(lease)
}

// read notes a lease as the API server returned it, which is the truth whatever was known.
func (s *state) read(lease *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubtful = false
	s.note(lease)
}

// refused notes what is there in place of what this process would have written. The object is not
// the one that was known, so the term ends, also if the lease still has this holder: a restored
// server may have given it back after another daemon held it.
func (s *state) refused(lease *Lease) {
	s.read(lease)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term = nil
}

// note takes a lease for what is there now.
func (s *state) note(lease *Lease) {
	was := s.lease
	s.lease = lease
	if was != nil && lease != nil && was.Term.UID == lease.Term.UID && was.Version == lease.Version {
		return // read again: nothing happened
	}
	s.changed = s.clock()
	if was != nil && lease != nil && was.Term == lease.Term && was.Holder == lease.Holder && lease.Holder != s.me && lease.Marker != s.worked {
		s.worked = "" // another daemon works in another storage, and renews
	}
	if s.term != nil && !s.mine(lease) {
		s.lose(lease)
	}
}

// mine reports whether a lease is held by this process in its term, and in the same role.
func (s *state) mine(lease *Lease) bool {
	return s.term != nil && lease != nil && lease.Term == *s.term && lease.Holder == s.me && lease.Reporter == s.reporter
}

// lose ends the term. Another daemon may take the lease only after it ran out, and this process'
// own writes come through the watch before their responses; anything else was not to happen.
func (s *state) lose(lease *Lease) {
	ours := s.wanted != nil && lease != nil && lease.Holder == s.wanted.Holder && lease.Term.Number == s.wanted.Term.Number &&
		lease.Term.Token == s.wanted.Term.Token && lease.Reporter == s.wanted.Reporter
	if s.wanted != nil && !ours && s.clock() < s.trusted {
		s.lost = append(s.lost[:min(len(s.lost), 3)], overwritten(s.wanted.Name, lease))
	}
	s.term = nil
}

// confirm compares a lease that the API server returned just now with a term that was held before
// it was asked for. It reports whether this process is Leader in that term still.
func (s *state) confirm(term Term, lease *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.term == nil || *s.term != term {
		return false // it began a new term meanwhile, or lost this one
	}
	if !s.mine(lease) || lease.Reporter {
		s.lose(lease)
		s.doubtful = true
		return false
	}
	return true
}

// mustRead reports whether the lease is to be read before the next decision.
func (s *state) mustRead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doubtful
}

// facts are those that are remembered.
func (s *state) facts() Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := Facts{Lease: s.lease, Term: s.term, Worked: s.worked, Unchanged: s.clock() - s.changed}
	if s.lease != nil && s.lease.Damage == s.usual {
		lease := *s.lease
		lease.Damage, f.Lease = "", &lease
	}
	return f
}

// found notes what keeps this daemon from work although its pool is usable.
func (s *state) found(f Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mismatch := ""
	if f.Usable {
		mismatch = f.StorageMismatch()
	}
	if s.mismatch == "" {
		s.mismatched = s.clock()
	}
	s.mismatch = mismatch
}

// mismatchFor is the storage mismatch that was found last, "" for none, and since when there is
// one.
func (s *state) mismatchFor() (message string, lasted time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mismatch, s.clock() - s.mismatched
}

// takeLost returns the messages of terms that were overwritten, each once.
func (s *state) takeLost() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.lost
	s.lost = nil
	return lost
}

// wants notes what is about to be written.
func (s *state) wants(l Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = &l
}

// wrote notes a write of this process. It is trusted from when it began, not from its response.
func (s *state) wrote(now *Lease, action Action, began time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil && s.lease.Term.UID == now.Term.UID &&
		plan.Newer(s.lease.Version, now.Version, true) {
		s.doubtful = true // another write came after it, and the watch was faster than the response
		return
	}
	s.lease, s.changed, s.usual = now, s.clock(), now.Damage
	switch action {
	case Lead, Report:
		s.term, s.reporter = &now.Term, action == Report
	case Resign:
		s.term = nil
	}
	if action == Lead {
		s.worked = now.Marker
	}
	s.trusted = began + Trust
}
