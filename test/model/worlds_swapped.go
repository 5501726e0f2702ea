package model

// swapping are worlds in which another filesystem is mounted in place of the pool's, or the pool's
// on the other node, too.
var swapping = []world{
	{name: "swapped", names: 1, claims: 1, spare: marked, left: [budgets]uint8{swaps: 2, kills: 1}},
	{name: "copied-disk", names: 1, claims: 1, spare: copied, left: [budgets]uint8{clonings: 1, swaps: 1, policies: 1}},
	{name: "copied-disk-killed", names: 1, claims: 1, spare: copied, left: [budgets]uint8{clonings: 1, swaps: 1, kills: 1}},
	{name: "copied-disk-restored", names: 1, claims: 1, spare: copied, left: [budgets]uint8{clonings: 1, swaps: 1, restores: 1}},
	{name: "shared-swapped", names: 1, claims: 1, shared: 1, spare: marked, left: [budgets]uint8{swaps: 2, elections: 2}},
	{name: "shared-copied", names: 1, claims: 1, shared: 1, spare: copied, left: [budgets]uint8{clonings: 1, swaps: 1, elections: 2}},
	{name: "shared-copied-killed", names: 1, claims: 1, shared: 1, spare: copied, left: [budgets]uint8{clonings: 1, swaps: 1, kills: 1, elections: 2}},
	{name: "twice", names: 1, claims: 1, twice: true, left: [budgets]uint8{unmounts: 1, kills: 1}},
}
