// Command crash kills the daemon before each system call with which it changes something or talks to
// the API, in every operation and in every recovery at a start, starts it again, and compares the
// whole world: the real daemon, a real API server, a real ext4. Then it kills it at random while
// claims come and go. What is left, lost or made twice is printed, and the exit code is 1.
//
// # What covers all
//
// A seccomp filter with a listener (seccomp_unotify(2)). A copy of this program puts the filter over
// itself and becomes the daemon's own binary, unchanged. Each call of each of its threads, other than
// those that can change nothing, then waits until the killer has answered, before the kernel begins
// with it. The killer names it by what it does to which file, counts it, and lets it go on or kills
// the process in its place. An operation is recorded first, twice by default: the points that came are
// those at which it is killed, each with a claim of its own. They cover all states that a kill can
// leave, because dying at a call that changes nothing is the same as dying at the next one that does,
// and because a process that is killed leaves nothing but what its calls have done. Crash points in the
// source would cover what their author thought of, and ptrace would stop the daemon at every call, also
// at those of the runtime's scheduler, and take its children and signals over.
//
// What is not harmless and not known (a new call of Go's, io_uring) is noticed, and makes the program
// fail. What the filter does not see: calls that the kernel has begun already (a rename is atomic, a
// record is one write), memory that is mapped (the daemon maps no file), the order of two threads at
// the moment of the kill, and what is behind the encryption: calls on the connection to the API are
// told apart by their number only. An answer that arrived and was not read is a point of its own: there
// the server knows something that the daemon does not. Where the number of such calls differs from run
// to run, a point may not come again; it is tried three times and then told as missed.
//
// It will not judge what a power cut leaves: all that was written stays written here (TestPowerCut in
// daemon/volume). The status file and the log are not compared: no daemon reads them.
package main
