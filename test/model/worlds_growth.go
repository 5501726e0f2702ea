package model

// growing are worlds in which claims request more than they have, and pools have room for so many
// units.
var growing = []world{
	{name: "grown", names: 1, claims: 1, room: 3, steady: true, left: [budgets]uint8{sizes: 2, kills: 1, deletions: 1}},
	{name: "grown-losses", names: 1, claims: 1, room: 3, left: [budgets]uint8{sizes: 2, losses: 1, unmounts: 1}},
	{name: "grown-restored", names: 1, claims: 1, room: 3, left: [budgets]uint8{sizes: 1, restores: 1, kills: 1}},
	{name: "last-space", names: 2, claims: 1, room: 2, steady: true, left: [budgets]uint8{sizes: 1, kills: 1}},
	{name: "raced", names: 2, claims: 1, room: 3, steady: true, opening: bothBound, left: [budgets]uint8{workers: 1, sizes: 2}},
}

// bothBound: two claims have their volumes.
var bothBound = []string{
	"claim c0 is made", "claim c1 is made",
	"the daemon takes up the claim of pvc-c0-1", "the daemon calls List of the pool", "the daemon calls Create of pvc-c0-1", "the daemon creates volume object pvc-c0-1",
	"the daemon takes up the claim of pvc-c1-1", "the daemon calls Create of pvc-c1-1", "the daemon creates volume object pvc-c1-1",
	"kube-controller-manager binds pvc-c0-1", "kube-controller-manager binds pvc-c1-1", "five seconds pass",
}
