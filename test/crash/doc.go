// Package crash stops a process before a chosen system call that changes something, so that what a
// SIGKILL leaves behind can be seen for each of them.
//
// It is a seccomp filter with a listener (seccomp_unotify(2)). A copy of the calling program puts the
// filter over itself and becomes another binary, unchanged. Each watched call of each of its threads
// then waits until the killer has answered, before the kernel begins with it; the killer names it by
// what it does to which file, counts it, and lets it go on or kills the process in its place. Dying at
// a call that changes nothing is the same as dying at the next one that does, so these are all states
// that a kill can leave on the disk. An answer of the API that arrived and was not read is a point of
// its own: there the server knows something that the client does not.
//
// It knows no daemon and compares nothing: so far its own test is all that uses it, and nothing is
// proven by it about the product.
package crash
