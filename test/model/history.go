package model

import "github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"

// A watch that breaks begins again where it was. If etcd was restored meanwhile, that is a version
// of days that are lost: a server that has not come so far refuses it, and what there is is read
// anew. One that has come so far has another object at that version.

// past is what became of the version that broken watches know.
type past uint8

const (
	present   past = iota
	lostDay        // etcd was restored since
	comeAgain      // and the server has come to that version again
)

// watchesHeal: a watch that goes on in another history brings nothing of what differs.
func watchesHeal(_ *worker, s *state, node int) bool {
	d := &s.daemons[node]
	if d.cache == 0 || d.past == comeAgain && kube.Continues("lost", "7", "new", "7") {
		return false
	}
	d.cache, d.past = 0, present
	return true
}

// loses notes that etcd was restored.
func (s *state) loses() {
	for node := range s.daemons {
		if d := &s.daemons[node]; d.cache != 0 {
			d.past = lostDay
		}
	}
}

// overtaken: the versions of a restored server begin at an earlier one, until enough was written.
func overtaken(_ *worker, s *state, _ int) bool {
	was, changed := s.revision, false
	for node := range s.daemons {
		d := &s.daemons[node]
		s.revision = max(s.revision, d.elector.known.version)
		if d.past == lostDay {
			d.past, changed = comeAgain, true
		}
	}
	return changed || s.revision != was
}
