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
//	kernel    what check finds that the kernel lacks, and what the product does without
//	selinux   the package's policy module confines; labels at birth, check, relabel, restorecon; purge; the CSI
//	          driver: volumes and inline volumes of confined containers, and pauses of them
//	disabled  the same machine, booted without SELinux
//	nfs       the network to the server cut, the server stopped, the export withdrawn
//	shared    two nodes on one export: every way in which the leader loses it, and root_squash
//	devices   a suspended device, and one on which every request fails
//	quota     project quotas on ext4 and xfs: how they are turned on, whom they stop, kills in the
//	          middle, one before each system call (test/crash -limits); inline volumes
//	alerts    what is served in the states of alerts that take quotas or a clock of the machine's own
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

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	o, err := parseOptions(args, os.Stderr)
	if err != nil {
		return 2
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1e6) + 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if os.Getenv(inside) == "" {
		// Here, where Debian's archive can be reached.
		if _, err := findImage(ctx, o.cache, saying(time.Now())); err != nil {
			fmt.Fprintln(os.Stderr, "vm:", err)
			return 1
		}
	}
	return isolate(ctx, func() int { return perform(ctx, o) })
}

// chapter is a part that can be run alone with -only. It begins with a machine of its own.
type chapter struct {
	name string
	play func(*play)
}

var chapters = []chapter{
	{"kernel", (*play).kernel},
	{"selinux", (*play).selinux},
	{"disabled", (*play).disabled},
	{"nfs", (*play).nfs},
	{"shared", (*play).shared},
	{"devices", (*play).devices},
	{"quota", (*play).quota},
	{"alerts", (*play).alerts},
	{"kubelet", (*play).kubelet},
	{"cost", (*play).cost},
	{"boot", (*play).bootWithoutAPool},
	{"power", (*play).power},
	{"log", (*play).logWrites},
}

func perform(ctx context.Context, o options) int {
	p, err := newPlay(ctx, o)
	if o.update && err == nil {
		err = flag.Set("update", "true") // goldenfile's
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		return 1
	}
	defer p.end()
	known := []string{}
	for _, c := range chapters {
		known = append(known, c.name)
		if o.only == "" || slices.Contains(strings.Split(o.only, ","), c.name) {
			p.chapter(c)
		}
	}
	if len(p.verdicts) == 0 {
		fmt.Fprintf(os.Stderr, "vm: -only %q names none of %s\n", o.only, strings.Join(known, ", "))
		return 2
	}
	return p.report()
}

// saying prints lines with the time since begin.
func saying(begin time.Time) func(string, ...any) {
	return func(format string, args ...any) {
		fmt.Printf("[%6.1fs] %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
}

// options is what the command line says.
type options struct {
	cuts   int    // power cuts
	claims int    // at once, in the load that is cut
	only   string // a comma-separated list of chapters
	seed   uint64
	cache  string // where images are kept between runs
	shell  bool   // leave the machine running at the end
	update bool   // write what is recorded of the daemon's metrics
}

const usage = `Usage: vm [flags]

Boots a Debian machine with SELinux enforcing under qemu (emulated: no KVM is needed), runs the built
daemon in it against a control plane on this host, and prints each step with its verdict. Exit code 1
if one failed. Wants root, Debian's archive for the first run, and what make builds in .build.

`

func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("vm", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() { fmt.Fprint(out, usage); flags.PrintDefaults() }
	flags.IntVar(&o.cuts, "cuts", 3, "how often the machine's power is cut under a load of claims")
	flags.IntVar(&o.claims, "claims", 12, "how many claims the load keeps")
	flags.StringVar(&o.only, "only", "", "the chapters to run, with commas between; default: all of them")
	flags.Uint64Var(&o.seed, "seed", 0, "of the random choices; 0: another one each time")
	flags.StringVar(&o.cache, "cache", defaultCache(), "directory for images, which are kept")
	flags.BoolVar(&o.shell, "wait", false, "after each chapter, run lines from standard input in its machine")
	flags.BoolVar(&o.update, "update", false, "write what the chapter alerts records anew")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, nil
}

func defaultCache() string {
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		base = "/var/cache"
	}
	return filepath.Join(base, "hostpath-provisioner-test")
}

// inside says that this process is the one in the network namespace.
const inside = "HOSTPATH_VM_INSIDE"

// isolate runs this program again in a network namespace in which there is nothing but loopback:
// the machine can reach the control plane and nothing else.
func isolate(ctx context.Context, body func() int) int {
	if os.Getenv(inside) != "" {
		err := hosttest.LoopbackUp()
		if err == nil { // what is mounted from here on stays in this mount namespace
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "vm:", err)
			return 1
		}
		return body()
	}
	cmd := process.Self(inside + "=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	child, err := process.Start(cmd)
	if err == nil {
		passOn := context.AfterFunc(ctx, func() { child.Signal(syscall.SIGTERM) })
		err = child.Wait()
		passOn()
	}
	return process.ExitCode("vm", err)
}
