// Package forget takes out of the API what is left of a node that does not come back: its volume
// objects, the contents of its snapshots, what the scheduler was told of it, its place in leases,
// and, where the administrator asks for that, the claims whose data went with it.
//
// The rules in rules.go decide, from objects alone; each step of the rest can be repeated, and a
// call that was cut off is finished by the next one. What finds the claims of volumes that are gone
// is an annotation, which is written before the volume's object goes.
//
// The package looks at no disk and does not delete the Node. It leaves alone what is another
// node's, what nodes share, and what has a provisioner that was not named. A node that comes back
// all the same finds records without objects, whose data its daemon keeps (plan.ForRecord).
package forget
