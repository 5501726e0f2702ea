// Package leadership elects the one daemon that works in a shared pool, with a Lease object for
// each pool. An Elector has one of three roles: the Leader makes and removes volumes, the Reporter
// tells claims why no daemon can, and all others stand by.
//
// It differs from client-go's leaderelection, which it is otherwise like, in three points. Only a
// daemon whose mount of the storage is usable becomes Leader, and the storage has to be the one
// that has the pool's volumes: a disk is asked, because a program that may write leases may write
// anything there. Time is measured by a clock that goes on while the host sleeps (CLOCK_BOOTTIME).
// And a term has a random token besides its number, so that a term that a restored API server gives
// back is not taken for the one that is held.
//
// It will not stop a Leader that was paused in the middle of a step: no lock can do that. The
// daemon wakes, and the step goes on beside the next Leader's. So no step relies on the lease
// alone. A new volume is named after a claim's UID, which never comes back, and is made by calls of
// which only one can succeed (link, mkdir). What is rolled back is empty (rmdir). What is destroyed
// was moved to the trash first, and before each such step the caller asks Fence and reads the
// object from the API. A step that comes too late finds its work done, or done and rolled back, and
// changes nothing; package volume names that at each of them.
package leadership
