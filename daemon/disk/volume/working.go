package volume

import (
	"cmp"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Kinds of work that takes as long as there are files.
const (
	WorkClone    = "clone"
	WorkPurge    = "purge"
	WorkRestore  = "restore"  // a volume from a snapshot
	WorkSnapshot = "snapshot" // a snapshot that is a copy
)

// WorkKinds are all of them.
var WorkKinds = []string{WorkClone, WorkPurge, WorkRestore, WorkSnapshot}

// Work is a purge or a copy under way.
type Work struct {
	Kind, PV string
	State    progress.State
}

type work struct {
	kind, pv string
	*progress.Work
}

// Working returns what is under way, by the names of the volumes.
func (p *Pool) Working() (all []Work) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.calls {
		if w := c.work.Load(); w != nil {
			all = append(all, Work{w.kind, w.pv, w.Now()})
		}
	}
	slices.SortFunc(all, func(a, b Work) int {
		return cmp.Or(cmp.Compare(a.PV, b.PV), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

// works has Working show the call until it ends.
func (s *session) works(kind, pv string, total progress.Total) *progress.Work {
	w := progress.Begin(total)
	s.call.work.Store(&work{kind, pv, w})
	return w
}

// takes is what a volume takes, by its project; without one it is not known.
func (s *session) takes(r record.Record) progress.Total {
	if r.ProjectID == 0 || s.quotas == nil {
		return progress.Total{}
	}
	u, err := s.quotas.Kernel.Get(s.root, r.ProjectID)
	if err != nil { // the work goes on without an estimate
		return progress.Total{}
	}
	return progress.Total{Files: u.Inodes, Bytes: u.Bytes}
}

// copies has Working show a copy.
func (s *session) copies(spec Spec) *progress.Work {
	kind := WorkClone
	switch {
	case spec.Kind == record.Snapshot:
		kind = WorkSnapshot
	case spec.Origin.Kind == record.Snapshot:
		kind = WorkRestore
	}
	total := spec.Expected
	source, err := s.load(spec.Origin.Name)
	if spec.Receive == nil && err == nil && source.ProjectID != 0 {
		total = s.takes(source)
	}
	if !spec.Full { // its files share their data
		total.Bytes = 0
	}
	return s.works(kind, spec.PV, total)
}
