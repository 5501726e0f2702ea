// Package crash kills the daemon before each system call with which it changes something or talks
// to the API, in every operation and in every recovery at a start, starts it again, and compares
// the whole state: the real daemon, a real API server, a real ext4 (or xfs or btrfs, with -fs,
// where clones and snapshots share blocks). Then it kills it at random while claims come and go.
// What is left, lost or made twice is printed, and the exit code is 1.
//
// # What covers all
//
// A seccomp filter with a listener (seccomp_unotify(2)). A copy of this program puts the filter
// over itself and becomes the daemon's own binary, unchanged. Each call of each of its threads,
// other than those that can change nothing, then waits until the killer has responded, before the
// kernel begins with it. The killer names it by what it does to which file, counts it, and lets it
// go on or kills the process in its place. An operation is recorded first, twice by default: the
// points that came are those at which it is killed, each with a claim of its own. They cover all
// states that a kill can leave, because dying at a call that changes nothing is the same as dying
// at the next one that does, and because a process that is killed leaves nothing but what its calls
// have done. Crash points in the source would cover what their author thought of, and ptrace would
// stop the daemon at every call, also at those of the runtime's scheduler, and take its children
// and signals over.
//
// What is not harmless and not known (a new call of Go's, io_uring) is noticed, and makes the
// program fail. What the filter does not see: calls that the kernel has begun already (a rename is
// atomic, a record is one write), memory that is mapped (the daemon maps no file), the order of two
// threads at the moment of the kill, and what is behind the encryption: calls on the connection to
// the API are told apart by their number only. A response that arrived and was not read is a point
// of its own: there the server knows something that the daemon does not.
//
// Into how many pieces the two sides cut the same requests and responses differs from run to run,
// so that the last of many pieces may not come again. It is tried ten times and then told as
// missed. No state is untried for that: ten runs in a row had fewer pieces, and the pieces of such
// a run are all points that were tried. Nor does a call on the disk come again that the daemon made
// because two of its workers met. More than one missed point in ten of an operation make the
// trial fail.
//
// What a kill between the removal of an object and the note of it leaves is accepted: the directory
// whole in the trash, with its record and nothing else, and only of a daemon that died while it
// talked to the API or was about to write that note. It is then dropped as the documents say,
// nothing may be left, and the end tells how many there were. The daemon cannot know there that the
// object did not go by force.
//
// # Limits of volumes
//
// With -limits it kills a process that makes, removes, expands and limits volumes on a filesystem
// that enforces project quotas, without a daemon and a cluster: the same calls of daemon/disk/volume at
// the same points, 89 of them. The kernels of few hosts do that, so test/vm runs it, on ext4 and
// xfs. At the death no volume may be seen without its limit or with one above what is kept for it,
// and after the recovery each has a project and a limit of its own, and nothing else has one. It
// also prints what a limit costs.
//
// # The service that mounts volumes for kubelet
//
// It needs neither a daemon nor a cluster, and has none here (-csi tries it alone): the daemon's
// binary on a real ext4, called as kubelet calls it. It is killed at 18 points of seven operations.
// At the death a volume may be mounted for the pod that asked, and if so in the way that the pod
// has it. A new process serves the same sockets, kubelet asks again or gives up, and then the
// volume is mounted where it has to be and nowhere else, with its data, and no other target is
// left.
//
// # Daemon and node service together
//
// Inline volumes and snapshots for which pods are paused are made by both (pods.go), on xfs or
// btrfs: either is killed, with the other one alive, before each call that changes something in the
// pool, in the directories of both, in kubelet's or in the pod's cgroup, and before each message to
// the other. Requests to the API are no points here: what the daemon does with them is killed
// above. After a death kubelet's next call has to succeed, the one that was under way is not
// refused, and what is mounted is whole. Only where the pool has no room until the files of the
// volume before are gone does kubelet ask again. What a pod has written is kept as long as kubelet
// has its directory. In the end nothing is left: no directory, no record, nothing promised. An
// inline volume of whose end the daemon was not told goes with its next start here, and within five
// minutes elsewhere; how many that were is printed. After a death within a pause the pod's cgroup
// is thawed: at once when the daemon died, and by csi-node --thaw, which systemd runs
// (ExecStopPost=), or the next start when it was the service. The snapshot is then made, and of two
// files that the pod writes one after the other it never has the second without the first. The
// daemon is started again for that: it makes the next try after five minutes.
//
// How often the time of the copy's directory is set before pods stand still depends on when the
// clock of change times ticks (daemon/disk/treecopy, watch), and the last of these calls may not
// come again. Each of them leaves what the first leaves.
//
// With -points so many inline operations are tried, chosen by the seed, and one with a pause, at
// one point each.
//
// It will not judge what a power cut leaves: all that was written stays written here (TestPowerCut
// in daemon/disk/volume). The status file and the log are not compared: no daemon reads them.
package crash
