// Command vm shows what only another kernel can: SELinux enforcing, an NFS server that goes away, block
// devices that fail or hang, a reboot without a disk, and the power cut in the middle of work.
//
// It boots a Debian machine under qemu, without KVM, so that it runs wherever its packages do. The
// image is built once from Debian's packages (image/build.sh) and kept, with the state of the booted
// machine, outside the repository under a name that is a hash of the recipe. Each chapter starts from that
// state in some seconds, copies the daemon in, and talks to a real control plane on this host, which
// survives whatever happens to the machine: what the API was told before a power cut is compared with
// what the disk has after it. All of it runs in a network namespace with nothing but loopback.
//
// Chapters (-only):
//
//	selinux   the policy module compiles, loads and confines; labels at birth, check, relabel, restorecon
//	disabled  the same machine without SELinux
//	nfs       the network to the server cut, the server stopped, the export withdrawn
//	devices   a suspended device, and one on which every request fails
//	boot      reboot with one of two pools missing
//	power     SIGKILL of the machine under a churn of claims, -cuts times
//	log       dm-log-writes: the device rebuilt after each flush, on ext4 and xfs
//
// What detects a failing or hanging disk: a yanked disk still answers from the page cache, so the marker
// is read past it (O_DIRECT) every few seconds; that read fails (Unreadable) or does not come back
// (NotAnswering).
//
// Seen red, with the product broken on purpose:
//
//	fsync that does nothing            log, on ext4 and xfs: a volume that was told to exist is lost at
//	                                   the first point at which anything was told; power: at the first cut
//	the marker read through the cache  devices: neither a suspended nor a failing device is noticed
//	no setattr for volumes in policy   selinux: no claim is served (a mistake of the first policy)
//	no getattr of what is not ours     selinux: the pool's listing fails at an unlabelled lost+found
//
// The package will not test what the host's own kernel can show (crashes, quotas, hostile tenants), has
// no opinion on how fast anything is in an emulated machine, and loads no policy into this host.
package main
