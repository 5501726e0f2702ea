package model

// cloned are worlds in which one claim is a clone of another one.
var cloned = []world{
	{name: "cloned", names: 2, claims: 1, clones: true, opening: written, left: [budgets]uint8{kills: 1}},
	{name: "cloned-again", names: 2, claims: 2, clones: true, opening: writtenFirst},
	{name: "cloned-losses", names: 2, claims: 1, clones: true, opening: written, left: [budgets]uint8{losses: 1, deletions: 1, policies: 1}},
	{name: "cloned-restored", names: 2, claims: 1, clones: true, opening: written, left: [budgets]uint8{restores: 1}},
	{name: "cloned-raced", names: 2, claims: 1, clones: true, opening: written, left: [budgets]uint8{workers: 1, deletions: 1}},
}

// written: a claim is bound, and a pod wrote to its volume.
var written = []string{
	"claim c0 is made", "the daemon takes up the claim of pvc-c0-1", "the daemon calls List of the pool", "the daemon calls Create of pvc-c0-1",
	"the daemon creates volume object pvc-c0-1", "kube-controller-manager binds pvc-c0-1", "a pod writes to pvc-c0-1", "five seconds pass",
}

// writtenFirst is written where each name has two claims.
var writtenFirst = []string{
	"claim c0 is made", "the daemon takes up the claim of pvc-c0-0", "the daemon calls List of the pool", "the daemon calls Create of pvc-c0-0",
	"the daemon creates volume object pvc-c0-0", "kube-controller-manager binds pvc-c0-0", "a pod writes to pvc-c0-0", "five seconds pass",
}
