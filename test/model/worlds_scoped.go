package model

// scoped are worlds of two nodes of which each has a configuration that names whether the second
// pool is its own or shared.
var scoped = []world{
	{name: "scope-shared", names: 1, claims: 1, shared: 1, alone: true, left: [budgets]uint8{scopings: 1, kills: 1, elections: 2}},
	{name: "scope-alone", names: 1, claims: 1, shared: 1, left: [budgets]uint8{scopings: 2, kills: 2, elections: 1}},
	{name: "scope-taken", names: 1, claims: 1, shared: 1, alone: true, left: [budgets]uint8{scopings: 2, departures: 1, elections: 2, policies: 1}},
	{name: "scope-restored", names: 1, claims: 1, shared: 1, alone: true, left: [budgets]uint8{scopings: 1, kills: 1, elections: 1, restores: 1}},
	{name: "scope-deleted", names: 1, claims: 1, shared: 1, alone: true, left: [budgets]uint8{scopings: 1, kills: 1, elections: 2, deletions: 1, policies: 1}},
}
