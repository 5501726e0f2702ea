package crash

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// options is what the command line says.
type options struct {
	points     int            // of each operation at most, 0: all
	records    int            // how often an operation is recorded
	tries      int            // of a point that does not come again
	kills      int            // at random, in the end
	only, at   *regexp.Regexp // names of operations, and of points
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
	var only, at string
	return harness.Trial{
		Name: name, Short: "points=2 records=1 tries=3 kills=30", Timeout: 45 * time.Second,
		Does: `Kills the daemon before each system call with which it changes something or talks to the API, in
every operation and every recovery, starts it again and compares the state.`,
		Flags: func(flags *flag.FlagSet) {
			flags.IntVar(&o.points, "points", 0, "kill at so many points of each operation at most, chosen by the seed; 0: at all")
			flags.IntVar(&o.records, "records", 2, "how often each operation is recorded; its points are the union")
			flags.IntVar(&o.tries, "tries", 10, "how often a point is tried that does not come again")
			flags.IntVar(&o.kills, "kills", 1000, "random kills in the end, while claims come and go")
			flags.StringVar(&only, "only", "", "only operations whose name has a match of this regular expression")
			flags.StringVar(&at, "at", "", "the same for the points of each operation")
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
		Check: func() (err error) {
			if o.only, err = regexp.Compile(only); err != nil {
				return fmt.Errorf("-only: %w", err)
			}
			if o.at, err = regexp.Compile(at); err != nil {
				return fmt.Errorf("-at: %w", err)
			}
			if o.subvolumes {
				o.fs = "btrfs"
			}
			if !slices.Contains([]string{"ext4", "xfs", "btrfs"}, o.fs) {
				return fmt.Errorf("-fs: %q is not ext4, xfs or btrfs", o.fs)
			}
			if o.points < 0 || o.records < 1 || o.tries < 1 || o.kills < 0 {
				return errors.New("-points and -kills cannot be negative, -records and -tries must be positive")
			}
			return nil
		},
		Play: func(ctx context.Context, p *harness.Program) {
			// Not one with the race detector: its runtime makes other calls.
			o.daemon, o.seed = cmp.Or(p.Binary, filepath.Join(rig.Root(), ".build", "hostpath-provisioner")), p.Seed
			play(ctx, p, o)
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
