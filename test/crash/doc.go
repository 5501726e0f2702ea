// Command crash kills the daemon before each system call with which it changes something or talks
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
// program fail.
//
// # What it caught
//
// Breakages of the product that made it red, each in about a minute, and at which kill first:
//
//   - the record written after the directory is in its place: claims stay Pending for ever beside a
//     directory without a record, killed at "create volumes/PV.json.new"
//   - the object created before the directory: killed at "read what the API sent", the object was
//     there and its directory not, and stayed so
//   - owner and mode set after the directory is visible: a directory that no pod can use, killed at "chown"
//   - the object removed before the directory is in the trash: killed at "write to the API", the data was
//     left with a record and without an object
//   - the record removed before the trash is empty: trash without a record, killed at "remove"
//   - the finalizer taken off a retained volume before its record says that it is: killed at "write to the API"
//   - no undo, at a start, of a directory whose claim went: directory and record left, without a further kill
//   - no purge, at a start, of what is in the trash: the same
//   - no sweep at a start: the file of a record that was made and not yet written is left when its claim
//     went, without a further kill ("start: torn record, undo")
//
// It found, with -scope every-node, that a directory which was never published stayed for ever if
// the daemon died before the object and the claim went meanwhile: eight in 50 random kills. Its
// record says so since.
//
// One breakage left it green: an archived directory whose record was not moved is finished by the
// purge, when Archive leaves it.
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
// and after the recovery each has a project and a limit of its own, and nothing else has one. Seen
// red: no limit set (at the first volume), the limit of a removed volume or of what was in staging
// not cleared, and a volume that gets another project when quota --apply is made again. It also
// prints what a limit costs.
//
// # The service that mounts volumes for kubelet
//
// It needs neither a daemon nor a cluster, and has none here (-csi tries it alone): the daemon's
// binary on a real ext4, called as kubelet calls it. It is killed at 18 points of seven operations.
// At the death a volume may be mounted for the pod that asked, and if so in the way that the pod
// has it. A new process serves the same sockets, kubelet asks again or gives up, and then the
// volume is mounted where it has to be and nowhere else, with its data, and no other target is
// left. Seen red: a target whose directory is there already refused (12 losses), and the directory
// of a target that is not mounted left (32 leaks).
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
// It found that a daemon which was started refused inline volumes until it had looked at its pools.
// Seen red: the list of the cgroups that are frozen written after they were (killed at "create
// run/paused.json.new", the pod stood still for ever), and files in the trash of which the next
// sweep does not go on with the removal.
//
// It will not judge what a power cut leaves: all that was written stays written here (TestPowerCut
// in daemon/disk/volume). The status file and the log are not compared: no daemon reads them.
package main
