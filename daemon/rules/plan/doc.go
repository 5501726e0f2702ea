// Package plan decides what to do with a claim, a volume and a record, and builds the
// PersistentVolume object. Each decision is an ordered list of pure rules: the first that applies
// gives the verdict, its reason and its message.
//
// It will not read a disk, a clock or the API, it will not log, and it keeps no state: the
// caller gathers the facts first.
package plan
