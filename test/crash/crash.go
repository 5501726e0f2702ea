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
// # A disk that goes to another node
//
// Of import, import --new-cluster --claims and forget-node --claims (move.go) the command itself is
// killed, before each call that changes something in the pool or in its state directory, or talks
// to the API. Two machines have a daemon each, and the disk is in one of them: its volumes are
// bound, on their way out, and have a snapshot. The node dies, its disk is in the other one, whose
// daemon runs meanwhile, and the command is called until it ends by itself, which is once more.
// Then the API's objects and the disk have to be what they are after a call that nothing killed:
// each claim bound to its one volume, for the node that has the disk, with its data; what was going
// is gone; the other machine has nothing. It is also played that etcd is restored, after the call or
// its death, to what it was before: the next call does the rest. What was forgotten has no object, and all of it is on the
// disk, also when the node is back. With the next case the disk goes back. Half a file in the state
// directory, which no program reads and the next write replaces, is removed by hand.
//
// With -points they are left out, unless there is -moves.
//
// With -moves three machines have a disk each, 20 claims and a StatefulSet of three (wander.go).
// Machines die, disks change places, also before the call for the place before has ended, and nodes
// are forgotten that come back; each call is killed at random, up to three times, before it may
// end, and so are daemons at their starts. After each round every claim has to be bound to one
// volume, whose object names the machine that has the disk, and every volume that ever was is on
// one disk, with its data.
//
// It will not judge what a power cut leaves: all that was written stays written here (TestPowerCut
// in daemon/disk/volume). The status file and the log are not compared: no daemon reads them.
package crash

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// Again is for a program that this trial starts again: as the daemon, which it becomes, or as the
// process that works on limits. It returns the exit code, or is false for any other call.
func Again() (code int, is bool) {
	if killer.Asked() {
		fmt.Fprintln(os.Stderr, "crash: becoming the daemon:", killer.Become(os.Args))
		return 1, true
	}
	if os.Getenv(limitsEnv) != "" {
		return operate(os.Args[1:]), true
	}
	return 0, false
}

// Kinds of findings.
const (
	notProven = "operations that were not proven"
	unknown   = "system calls that this program does not know"
)

// play is the whole program.
func play(e *prover) {
	if e.opt.limits != "" || e.opt.requests != "" || e.opt.speed {
		playLimits(e)
		return
	}
	all := provePublishing(e)
	if e.opt.csi {
		e.finish(all)
		return
	}
	plane := sync.OnceValue(func() *harness.Plane { return e.StartPlane(e.ctx, name, cluster.Options{}) })
	all = append(all, proveDaemon(e, plane)...)
	all = append(all, provePods(e, plane)...)
	if e.opt.points == 0 || e.opt.moves > 0 { // it takes minutes, and a control plane of its own
		own := func() *harness.Plane { return e.StartPlane(e.ctx, name+"-moves", cluster.Options{}) }
		all = append(all, proveMoves(e, own)...)
		all = append(all, proveWandering(e, own)...)
	}
	e.finish(all)
}

// proveDaemon kills the daemon in what it does alone, and then at random.
func proveDaemon(p *prover, plane func() *harness.Plane) report {
	e := sync.OnceValue(func() *environment { return build(p, plane()) })
	older := func() bool {
		before := harness.Need(plane().Cluster.Before(cluster.ResizeStates))
		return before(p, "asking for the version")
	}
	var all []trial
	for _, op := range operations {
		play := func(e *environment, point string) (string, []string, []fault) {
			return e.newCase(op).play(point)
		}
		switch chosen := p.opt.only.MatchString(op.name); {
		case op.clones && !p.opt.clones():
		case op.lowers && chosen && older():
			p.Say("%s: not on this version of Kubernetes", op.name)
		default:
			all = append(all, trial{op.name, "", p.opt.points, in(e, play)})
		}
	}
	rows := p.tryAll(all)
	if p.opt.kills > 0 && p.ctx.Err() == nil {
		rows = append(rows, e().killAtRandom())
	}
	if len(rows) > 0 {
		p.Say("%d volumes stayed whole in the trash, "+
			"killed between the removal of the object and the note of it", e().stayed)
		e().die()
	}
	return rows
}

// playLimits is the program with -limits, -requests and -speed, without a daemon and without a
// cluster.
func playLimits(e *prover) {
	if e.opt.speed {
		e.Say("%s", speed())
		return
	}
	if e.opt.requests != "" {
		e.Say("%s", requestCost(e, e.opt.requests))
		return
	}
	var all report
	for path := range strings.SplitSeq(e.opt.limits, ",") {
		all = append(all, proveLimits(e, path)...)
	}
	if e.opt.only.String() != "" && len(all) == 0 {
		return // only what limits cost was asked for
	}
	e.finish(all)
}

// options is what the command line says.
type options struct {
	points     int           // of each operation at most, 0: all
	records    int           // how often an operation is recorded
	tries      int           // of a point that does not come again
	kills      int           // at random, in the end
	moves      int           // interruptions of moves, at random
	only, at   regexp.Regexp // names of operations, and of points
	daemon     string
	seed       uint64
	scope      string // of the pool
	fs         string // the pool's filesystem
	subvolumes bool   // volumes are those of a btrfs
	printAll   bool
	limits     string // directories of filesystems with project quotas: limits alone are tried there
	requests   string // a pool's directory: the time of a request about projects is measured
	speed      bool   // what a system call takes is measured
	csi        bool   // the service that mounts volumes for kubelet alone is tried
}

// Trial is the command line.
func Trial() harness.Trial {
	var o options
	all := regexp.MustCompile("")
	return harness.Trial{
		Name: name, Short: "points=1 records=1 tries=3 kills=15", Timeout: 45 * time.Second,
		Does: `Kills the daemon before each system call with which it changes something or talks to the API, in
every operation and every recovery, starts it again and compares the state.`,
		Flags: func(flags *flag.FlagSet) {
			flags.IntVar(&o.points, "points", 0, "kill at so many points of each operation at most, chosen by the seed; 0: at all")
			flags.IntVar(&o.records, "records", 2, "how often each operation is recorded; its points are the union")
			flags.IntVar(&o.tries, "tries", 10, "how often a point is tried that does not come again")
			flags.IntVar(&o.kills, "kills", 1000, "random kills in the end, while claims come and go")
			flags.IntVar(&o.moves, "moves", 0,
				"random interruptions of moves of three disks between three machines, in the end")
			flags.TextVar(&o.only, "only", all,
				"only operations whose name has a match of this regular expression")
			flags.TextVar(&o.at, "at", all, "the same for the points of each operation")
			flags.StringVar(&o.scope, "scope", "node", "of the pool; with every-node this is the only node")
			flags.StringVar(&o.fs, "fs", "ext4", "the pool's filesystem: ext4, which copies, or xfs or btrfs, which share blocks")
			flags.BoolVar(&o.subvolumes, "subvolumes", false, "the pool is a btrfs with snapshots = \"snapshot\"")
			flags.StringVar(&o.limits, "limits", "", "directories, with commas between, of filesystems that enforce project quotas and have nothing else: "+
				"volumes with limits are made there, without a daemon and a cluster")
			flags.StringVar(&o.requests, "requests", "", "directory of a pool with quota = \"project\": measure a request to the service that sets limits, and nothing else")
			flags.BoolVar(&o.speed, "speed", false, "measure what a system call takes on this machine, and nothing else")
			flags.BoolVar(&o.csi, "csi", false, "kill the service that mounts volumes for kubelet alone, without a daemon and a cluster")
			flags.BoolVar(&o.printAll, "v", false, "print each point")
		},
		Check: func() error {
			if o.subvolumes {
				o.fs = "btrfs"
			}
			if !slices.Contains([]string{"ext4", "xfs", "btrfs"}, o.fs) {
				return fmt.Errorf("-fs: %q is not ext4, xfs or btrfs", o.fs)
			}
			if o.points < 0 || o.records < 1 || o.tries < 1 || o.kills < 0 || o.moves < 0 {
				return errors.New("-points, -kills and -moves cannot be negative, -records and -tries must be positive")
			}
			return nil
		},
		Play: func(ctx context.Context, p *harness.Program) {
			// Not one with the race detector: its runtime makes other calls.
			o.daemon, o.seed = cmp.Or(p.Binary, filepath.Join(rig.Root(), ".build", "hostpath-provisioner")), p.Seed
			play(&prover{Program: p, ctx: ctx, opt: o})
		},
	}
}

// clones reports whether the pool makes clones.
func (o options) clones() bool { return o.scope == "node" }

// asSubvolumes are points that have another name where volumes are subvolumes.
var asSubvolumes = map[string]string{beforeStaging: "make a subvolume in staging #1", duringCopy: "make a snapshot in staging #1"}

// tried are those of the points that are.
func (o options) tried(points []string) []string {
	return slices.DeleteFunc(points, func(point string) bool { return !o.at.MatchString(point) })
}

// first is the point where a daemon is to die first.
func (o options) first(point string) string {
	if other, is := asSubvolumes[point]; is && o.subvolumes {
		return other
	}
	return point
}

// some are the indices of n out of so many, as far from each other as they can be; all for n = 0.
// Which ones, the seed says.
func some(all, n int, seed uint64) []int {
	if n == 0 || n >= all {
		n = all
	}
	var chosen []int
	for i := range n {
		step := all / n
		chosen = append(chosen, i*step+int(seed%uint64(step)))
	}
	return chosen
}
