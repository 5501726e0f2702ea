package leadership

import "time"

// Memory is what a process knows of a lease, as far as it decides. It is gone when the process
// ends. Its times are counted from now.
type Memory struct {
	Lease     *Lease        // as it was last seen; nil: there was none
	Unchanged time.Duration // since it was seen to change
	Doubtful  bool          // it is read before the next decision
	Term      *Term         // that this process holds; nil: none
	Reporter  bool          // in that term it is Reporter
	Trusted   time.Duration // for which it counts on that; not positive: it does not
	Worked    string        // Facts.Worked
}

// Memory returns what the process knows.
func (e *Elector) Memory() Memory {
	s := e.state
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	return Memory{Lease: s.lease, Unchanged: now - s.changed, Doubtful: s.doubtful, Term: s.term, Reporter: s.reporter,
		Trusted: s.trusted - now, Worked: s.worked}
}

// Remember puts this in the place of what the process knows. Where Run runs, Remember must not be
// called.
func (e *Elector) Remember(m Memory) {
	s := e.state
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	s.lease, s.changed, s.doubtful, s.term, s.reporter, s.trusted = m.Lease, now-m.Unchanged, m.Doubtful, m.Term, m.Reporter, now+m.Trusted
	s.worked, s.wanted, s.lost, s.mismatch = m.Worked, nil, nil, ""
}
