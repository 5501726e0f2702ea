package model

import "github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"

// serve does what the API server does with a step of the product, in the state, and returns its
// response. Reads change nothing.
func (e *etcd) serve(o op) response {
	switch o.kind {
	case getClaim:
		return response{claim: e.claims[o.at]}
	case getVolume:
		return response{volume: e.volumes[o.at]}
	case getContent, getSnapshot:
		return response{content: e.snapshot}
	case writeContent:
		return e.patchContent(o.content)
	case releaseContent:
		return e.releaseContent(o.content)
	case createVolume:
		return response{volume: e.create(o.at, o.with)}
	case releaseVolume:
		return e.release(o.at, o.with)
	case holdVolume:
		return e.hold(o.at, o.with)
	case deleteVolume:
		return e.remove(o.at, o.with)
	case writeStatus:
		return e.grow(o.at, o.grow)
	case writeCapacity:
		return e.enlarge(o.at, o.with)
	case markVolume:
		return e.mark(o.at, o.with)
	case writeNode:
		return e.give(o)
	case writeTomb:
		return response{yes: e.bury(o.at, o.with.retain)}
	case readTomb:
		return response{yes: e.tombs[o.at].exists, volume: object{retain: e.tombs[o.at].retain}}
	}
	return response{}
}

// create makes a volume object, and returns the one that is there already, if there is one. The API
// server adds the finalizer of pv-protection
// (plugin/pkg/admission/storage/storageobjectinuseprotection).
func (e *etcd) create(cell int, v object) (existing object) {
	if old := e.volumes[cell]; old.exists {
		return old
	}
	v.version = next(e.volumes[cell].version)
	v.protected = true
	e.volumes[cell] = v
	return object{}
}

// release is Client.ReleaseFinalizer (daemon/kube) and what the API server does with its patch.
func (e *etcd) release(cell int, given object) response {
	if !given.finalizer {
		return response{volume: given}
	}
	now := e.volumes[cell]
	switch {
	case !now.exists:
		return response{}
	case now.retain != given.retain, now.ref != given.ref, given.phase == released && now.phase != released:
		return response{fault: conflict}
	case now.finalizer:
		now.finalizer = false
		now.version = next(now.version)
		e.put(cell, now)
	}
	return response{volume: now}
}

// hold is Client.HoldVolume (daemon/kube) and what the API server does with its patch.
func (e *etcd) hold(cell int, given object) response {
	now := e.volumes[cell]
	switch {
	case given.finalizer:
		return response{volume: given}
	case !now.exists:
		return response{}
	case now.version != given.version:
		return response{fault: conflict}
	}
	now.finalizer, now.version = true, next(now.version)
	e.put(cell, now)
	return response{volume: now}
}

// remove is Client.DeleteVolume (daemon/kube) and what the API server does with its request.
func (e *etcd) remove(cell int, given object) response {
	now := e.volumes[cell]
	switch {
	case !now.exists:
		return response{}
	case now.version != given.version && now.deleting && !now.finalizer && now.retain == given.retain && now.ref && given.ref:
		return response{} // it was done before
	case now.version != given.version:
		return response{fault: conflict}
	}
	if !now.deleting {
		now.deleting = true
		now.version = next(now.version)
	}
	e.put(cell, now)
	return response{}
}

// put writes a volume object. One that is being deleted goes with its last finalizer.
func (e *etcd) put(cell int, v object) {
	if v.deleting && !v.finalizer && !v.protected {
		v = object{version: next(v.version)}
	}
	e.volumes[cell] = v
}

// next is a version after this one. So few are enough to tell the changes during one piece of work
// apart.
func next(version uint8) uint8 { return (version + 1) % 16 }

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
