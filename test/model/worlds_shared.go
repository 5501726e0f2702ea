package model

// twoNodes are worlds of two nodes with a shared pool, of which each has a daemon. A term begins
// when one of them takes the lease: with two terms the work goes from one to the other.
var twoNodes = []world{
	{name: "shared", names: 1, claims: 1, shared: 1, left: [budgets]uint8{elections: 2, switches: 1}},
	{name: "shared-killed", names: 1, claims: 1, shared: 1, left: [budgets]uint8{elections: 2, kills: 1}},
	{name: "shared-policies", names: 1, claims: 1, shared: 1, left: [budgets]uint8{elections: 2, policies: 1}},
	{name: "shared-deleted", names: 1, claims: 1, shared: 1, left: [budgets]uint8{elections: 2, deletions: 1}},
	{name: "shared-stopped", names: 1, claims: 1, shared: 1, left: [budgets]uint8{elections: 2, switches: 1, stops: 1}},
	{name: "shared-between", names: 1, claims: 1, shared: 1, left: [budgets]uint8{elections: 2, switches: 2}},
	{name: "shared-changed", names: 1, claims: 1, shared: 1, left: [budgets]uint8{elections: 2, switches: 1, policies: 1}},
	{name: "shared-restored", names: 1, claims: 1, shared: 1, left: [budgets]uint8{elections: 2, restores: 1}},
	{name: "shared-gone", names: 1, claims: 1, shared: 1, left: [budgets]uint8{elections: 2, departures: 1}},
	{name: "shared-archived", names: 1, claims: 1, shared: 1, archive: true, left: [budgets]uint8{elections: 2, switches: 1}},
	{name: "shared-labels", names: 1, claims: 1, shared: 1, left: [budgets]uint8{labels: 2, elections: 2}},
	{name: "shared-beside", names: 2, claims: 1, shared: 1, left: [budgets]uint8{elections: 2}},
	{name: "shared-unmounted", names: 1, claims: 1, shared: 1, left: [budgets]uint8{elections: 3, unmounts: 1, losses: 1}},
}
