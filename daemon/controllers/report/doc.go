// Package report decides how often a message about an object is written: a message that was written
// lately is not written again (Dedup), and the warnings about one namespace's objects are bounded
// (Limiter). It also makes the references that events are written about.
//
// It does not write anything: the log and the events belong to its callers. It does not choose
// reasons or words.
package report
