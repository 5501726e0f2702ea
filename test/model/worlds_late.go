package model

// latenesses are worlds in which the API server serves a request when its daemon has given it up
// and does something else.
var latenesses = []world{
	{name: "late", names: 1, claims: 1, left: [budgets]uint8{lates: 1, policies: 1, deletions: 1}},
	{name: "late-killed", names: 1, claims: 1, left: [budgets]uint8{lates: 1, deletions: 1, kills: 1}},
	{name: "late-retained", names: 1, claims: 1, left: [budgets]uint8{lates: 1, deletions: 1, policies: 1, kills: 1}},
	{name: "late-again", names: 1, claims: 2, left: [budgets]uint8{lates: 1, kills: 1}},
	{name: "late-grown", names: 1, claims: 1, room: 3, steady: true, left: [budgets]uint8{lates: 1, sizes: 2}},
	{name: "late-shared", names: 1, claims: 1, shared: 1, left: [budgets]uint8{lates: 1, elections: 2}},
}
