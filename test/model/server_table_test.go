package model

import (
	"sync"
	"testing"
)

// served are the requests to the model's API server that were compared with a real one. That of nil
// notes nothing.
type served struct {
	mu    sync.Mutex
	kinds map[kind]bool
}

// by has the model's API server serve a request, and notes that.
func (s *served) by(e *etcd, o op) response {
	s.note(o.kind)
	return e.serve(o)
}

func (s *served) note(k kind) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds == nil {
		s.kinds = map[kind]bool{}
	}
	s.kinds[k] = true
}

// comparedElsewhere are the requests that TestServer does not make, and what shows how a real API
// server responds.
var comparedElsewhere = map[kind]string{
	eachVolume:     "a list, of which the model's has each object as getVolume",
	listVolumes:    "the same",
	fewVolumes:     "TestFewVolumes (daemon/kube)",
	markVolume:     "TestAdopt, TestAdoptOnTwoNodes (test/e2e)",
	getContent:     "TestSnapshot (test/e2e): the server needs other definitions",
	getSnapshot:    "TestSnapshot (test/e2e)",
	writeContent:   "TestSnapshot (test/e2e)",
	releaseContent: "TestSnapshot (test/e2e)",
}

// complete reports each request that was compared nowhere, and each that was, although
// comparedElsewhere says that it is not.
func (s *served) complete(t *testing.T) {
	t.Helper()
	for k := ended + 1; k < onDisk; k++ {
		if !k.local() && s.kinds[k] == (comparedElsewhere[k] != "") {
			t.Errorf("a request that %q: compared %t, and elsewhere %q", kindNames[k], s.kinds[k], comparedElsewhere[k])
		}
	}
}
