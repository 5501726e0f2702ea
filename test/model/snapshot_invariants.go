package model

// ofSnapshot is an invariant of the snapshot: on is what the pool has of it, of what it has of its
// volume.
type ofSnapshot struct {
	name   string
	means  string
	broken func(s *state, on, of onFile) string
}

// snapshotInvariants must hold in each state, of the snapshot on the pool's disk.
var snapshotInvariants = []ofSnapshot{
	{"SnapshotReady", "a snapshot that is said to be ready is whole somewhere, with the data of its volume", snapshotReady},
	{"SnapshotStays", "the data of a snapshot that was whole goes only after the daemon itself let its content go, with policy Delete", snapshotStays},
}

// snapshotSettlements must hold when nothing more happens.
var snapshotSettlements = []ofSnapshot{
	{"SnapshotSettles", "a snapshot is taken, or its volume is not there", snapshotSettles},
	{"SnapshotPutBack", "the snapshot of a content that stays, or with another policy than Delete, is not in the trash", snapshotPutBack},
	{"ContentGoes", "a content that is to go with its data is gone", contentGoes},
	{"NoSnapshotLeft", "nothing is left of a snapshot that is half made or half removed", noSnapshotLeft},
}

func snapshotReady(s *state, on, _ onFile) string {
	if c := s.api.snapshot; c.ready && !s.snapshotGoes && (!on.whole() || on.unnoted || on.data != uidOf(int(c.of))) {
		return "it is ready, and its directory is " + on.place.Describe() + " with data " + on.data
	}
	return ""
}

func snapshotStays(s *state, on, _ onFile) string {
	if s.whole && !s.snapshotGoes && !on.whole() {
		return "its directory is " + on.place.Describe()
	}
	return ""
}

func snapshotSettles(s *state, on, of onFile) string {
	c := s.api.snapshot
	owned := s.api.volumes[c.of].exists && s.api.volumes[c.of].ref // else there is no data to copy
	if c.exists && !c.deleting && !c.ready && owned && of.recorded && of.place == inPool && !on.snapshotWhole() {
		return "it is not taken"
	}
	return ""
}

func snapshotPutBack(s *state, on, _ onFile) string {
	if c := s.api.snapshot; c.exists && !c.goesWithData() && on.place == inTrash {
		return "it is in the trash"
	}
	return ""
}

func contentGoes(s *state, on, of onFile) string {
	if c := s.api.snapshot; c.exists && c.deleting && c.going && (on.recorded || of.recorded) {
		return "the content stays"
	}
	return ""
}

func noSnapshotLeft(s *state, on, _ onFile) string {
	c := s.api.snapshot
	switch {
	case on.begun, on.place == inStaging:
		return "something is half made"
	case on.recorded && on.place != inPool && on.place != inTrash && !on.retained && !c.exists:
		return "its directory is " + on.place.Describe() + ", and a record is left"
	case on.recorded && on.unnoted && !c.exists:
		return "a snapshot that may not be whole is left"
	}
	return ""
}

// restoredWhole: a claim that was made from the snapshot has what that has.
func restoredWhole(s *state, on onFile, cell int) string {
	c, exists := s.api.claimOf(cell)
	v := s.api.volumes[cell]
	if exists && c.restore && c.bound && v.exists && v.phase == bound && !s.consent[on.node][cell] && on.place == inPool && on.data == "" {
		return "it has nothing of the snapshot"
	}
	return ""
}

// ofSnapshots is the first of these that does not hold, "" if all do.
func (w *worker) ofSnapshots(s *state, all []ofSnapshot) string {
	if !s.snapshots {
		return ""
	}
	m := w.image(s, nodePool)
	for _, i := range all {
		if wrong := i.broken(s, m.snapshot, m.cells[s.api.snapshot.of]); wrong != "" {
			return i.name + ": " + wrong
		}
	}
	return ""
}
