package model

import "slices"

// snapshotted are worlds in which a snapshot is taken of a volume with data, or was, and a claim is
// made from it.
var snapshotted = []world{
	{name: "snapshot", names: 2, claims: 1, snapshots: true, opening: written, left: [budgets]uint8{snapshotsTaken: 1, snapshotEnds: 1, kills: 1}},
	{name: "snapshot-losses", names: 2, claims: 1, snapshots: true, opening: written, left: [budgets]uint8{snapshotsTaken: 1, snapshotEnds: 1, losses: 1, unmounts: 1}},
	{name: "snapshot-source", names: 2, claims: 1, snapshots: true, opening: written, left: [budgets]uint8{snapshotsTaken: 1, deletions: 1, forced: 1, breaks: 1}},
	{name: "snapshot-ends", names: 2, claims: 1, snapshots: true, opening: taken, left: [budgets]uint8{snapshotsTaken: 1, snapshotEnds: 3, kills: 1}},
	{name: "snapshot-raced", names: 2, claims: 1, snapshots: true, opening: taken, left: [budgets]uint8{snapshotsTaken: 1, snapshotEnds: 2, workers: 1}},
	{name: "snapshot-restored", names: 2, claims: 1, snapshots: true, opening: taken, left: [budgets]uint8{snapshotsTaken: 1, snapshotEnds: 1, restores: 1}},
	{name: "snapshot-forced", names: 2, claims: 1, snapshots: true, opening: taken, left: [budgets]uint8{snapshotsTaken: 1, snapshotEnds: 2, forced: 1, breaks: 1}},
	{name: "snapshot-lost", names: 2, claims: 1, snapshots: true, opening: taken, left: [budgets]uint8{snapshotsTaken: 1, snapshotEnds: 2, losses: 1, unmounts: 1}},
}

// taken: a claim is bound, a pod wrote to its volume, and a snapshot of that is ready.
var taken = slices.Concat(written, []string{
	"a snapshot is taken of pvc-c0-1", "the daemon takes up the snapshot's content",
	"the daemon calls Lookup of snapshot-s-0", "the daemon calls Lookup of pvc-c0-1", "the daemon calls List of the pool",
	"the daemon reads volume object pvc-c0-1",
	"the daemon reads the VolumeSnapshot of snapshot-s-0", "the daemon reads claim c0", "the daemon writes the content of snapshot-s-0",
	"the daemon calls Lookup of pvc-c0-1", "the daemon calls Create of snapshot-s-0", "the daemon takes up the snapshot's content",
	"the daemon calls Lookup of snapshot-s-0", "the daemon calls Lookup of pvc-c0-1", "the daemon calls List of the pool",
	"the daemon reads volume object pvc-c0-1",
	"the daemon reads the VolumeSnapshot of snapshot-s-0", "the daemon reads claim c0", "the daemon calls Lookup of snapshot-s-0",
	"the daemon reads the content of snapshot-s-0", "the daemon calls Published of snapshot-s-0", "the daemon writes the content of snapshot-s-0",
})
