package model

// keepings are worlds in which the daemon acts as soon as a node was chosen, and volumes of others
// are kept for claims.
var keepings = []world{
	{name: "kept", names: 1, claims: 1, unasked: true, left: [budgets]uint8{keeps: 1, kills: 1}},
	{name: "kept-deleted", names: 1, claims: 1, unasked: true, left: [budgets]uint8{keeps: 2, deletions: 1, policies: 1}},
	{name: "kept-losses", names: 1, claims: 1, unasked: true, left: [budgets]uint8{keeps: 1, losses: 1, unmounts: 1}},
	{name: "kept-again", names: 1, claims: 2, unasked: true, left: [budgets]uint8{keeps: 1}},
	{name: "kept-restored", names: 1, claims: 1, unasked: true, left: [budgets]uint8{keeps: 1, restores: 1}},
	{name: "kept-watches", names: 1, claims: 1, unasked: true, left: [budgets]uint8{keeps: 2, breaks: 1}},
}
