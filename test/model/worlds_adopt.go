package model

// adopting are worlds in which another provisioner made a volume, which is adopted and given up.
var adopting = []world{
	{name: "adopted", names: 1, claims: 1, peer: true, opening: madeByPeer, left: [budgets]uint8{adoptions: 2, undoings: 1, kills: 1}},
	{name: "adopted-changed", names: 1, claims: 1, peer: true, opening: madeByPeer, left: [budgets]uint8{
		adoptions: 1, undoings: 1, peers: 1, policies: 1, deletions: 1,
	}},
	{name: "adopted-restored", names: 1, claims: 1, peer: true, opening: madeByPeer, left: [budgets]uint8{adoptions: 1, undoings: 1, restores: 1, kills: 1}},
	{name: "adopted-lost", names: 1, claims: 1, peer: true, opening: madeByPeer, left: [budgets]uint8{adoptions: 2, undoings: 1, losses: 2, unmounts: 1}},
	{name: "adopted-archived", names: 1, claims: 1, peer: true, archive: true, opening: madeByPeer, left: [budgets]uint8{
		adoptions: 1, undoings: 1, configs: 1, kills: 1, forced: 1,
	}},
}

// madeByPeer: another provisioner made a volume, and a pod wrote to it.
var madeByPeer = []string{
	"claim c0 is made", "the other provisioner makes pvc-c0-1", "kube-controller-manager binds pvc-c0-1", "a pod writes to pvc-c0-1",
}
