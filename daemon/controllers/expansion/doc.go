// Package expansion makes a volume larger whose claim requests more than it has, while pods use it:
// in its record, in the limit of its directory if it has one, in the volume object and in the
// claim's status, in the order in which Kubernetes' own controllers do (KEP-1790,
// pkg/volume/util/operationexecutor, expandAndRecoverFunction). What was interrupted is finished by
// the next look at the claim, of any daemon: its request stays larger than what it has until the
// last step.
//
// Of scope every-node one node does so, and the others follow the volume object (package
// everynode).
//
// It will not make a volume smaller than its object or its claim says, and it will not decide
// (package plan does).
package expansion
