// Command vm shows what only another kernel can: SELinux enforcing, project quotas, an NFS server
// that goes away, block devices that fail or hang, a reboot without a disk, and the power cut in
// the middle of work.
//
// It boots a Debian machine under qemu, without KVM, so that it runs wherever its packages do. The
// image is built once from Debian's packages (image/build.sh) and kept, with the state of the
// booted machine, outside the repository under a name that is a hash of the recipe. In each run
// dpkg installs the built package on it, with the package's own scripts, and that machine's state
// is kept for the run: each chapter starts from it in some seconds, gets a configuration, and talks
// to a real control plane on this host, which survives whatever happens to the machine: what the
// API acknowledged before a power cut is compared with what the disk has after it. All of it runs
// in a network namespace with nothing but loopback.
//
// Chapters (-only):
//
//	selinux   the package's policy module confines; labels at birth, check, relabel, restorecon; purge; the CSI
//	          driver: volumes and inline volumes of confined containers, and pauses of them
//	disabled  the same machine, booted without SELinux
//	nfs       the network to the server cut, the server stopped, the export withdrawn
//	shared    two nodes on one export: every way in which the leader loses it, and root_squash
//	devices   a suspended device, and one on which every request fails
//	quota     project quotas on ext4 and xfs: how they are turned on, whom they stop, kills in the
//	          middle, one before each system call (test/crash -limits); inline volumes
//	kubelet   pods of a real kubelet and containerd, on volumes with source csi and inline ones: whom the quotas
//	          stop, and what kubelet reports
//	cost      what such a limit adds to a creation, and how much slower than this host the machine is
//	boot      reboot with one of two pools missing
//	power     SIGKILL of the machine under a load of claims, -cuts times
//	log       dm-log-writes: the device rebuilt after each flush, on ext4 and xfs
//
// What detects a failing or hanging disk: a yanked disk can still be read from the page cache, so
// the marker is read past it (O_DIRECT) every few seconds; that read fails (Unreadable) or does not
// come back (NotAnswering).
//
// After a power cut the machine is not booted each time, which would take longer than everything
// else of a round. Everything that the daemon writes is on three disks of its own: two pools and
// its state directory; that there is nothing else is looked at first. The machine that is restored
// was saved with none of them mounted and before a daemon ever ran, and its kernel keeps nothing of
// a disk that is not open; so it finds what the cut left, and replays the journals, as one that
// boots does. What is spared is the start of a kernel and of Debian's services, which know nothing
// of the daemon; and the root disk is not cut. Each tenth round spares nothing: it boots from all
// disks, the root disk too, as they were cut.
//
// Seen red, with the product broken on purpose:
//
//	fsync that does nothing            log, on ext4 and xfs: an acknowledged volume is lost at
//	                                   the first point with an acknowledgement; power: at the first cut
//	the marker read through the cache  devices: neither a suspended nor a failing device is noticed
//	no setattr for volumes in policy   selinux: no claim is served (a mistake of the first policy)
//	no getattr of what is not ours     selinux: the pool's listing fails at an unlabelled lost+found
//	no mountpoint for the state's type power: the disk of the state directory is not mounted at boot (a
//	                                   mistake of the policy until this was tried)
//
// The package will not test what the host's own kernel can show (crashes, hostile tenants), has
// no opinion on how fast anything is in an emulated machine, and loads no policy into this host.
package main
