package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/pause"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// casePublish is what a pod waits for its volume with source csi on the node, beside a bare bind
// mount on the same filesystem.
const casePublish = "publish"

// mountings are the times of one contender, and of the unmounts that follow.
type mountings struct{ mounts, unmounts []time.Duration }

// measurePublish mounts by turns, so that both have the same machine. Neither a cluster nor a
// daemon is there.
func (b *bench) measurePublish(ctx context.Context) {
	s, pool, _ := b.nodeService(ctx, b.mkfs(), false)
	var bare, service mountings
	of := csinode.Of(source, poolName, filepath.Join(pool, source))
	for range b.publishes {
		target := s.Target("bare", source)
		b.Must(os.MkdirAll(filepath.Dir(target), 0o750), "making a pod's directory")
		bare.add(b, func() error {
			return errors.Join(os.Mkdir(target, 0o750),
				unix.Mount(filepath.Join(pool, source), target, "", unix.MS_BIND, ""))
		}, func() error { return errors.Join(unix.Unmount(target, 0), os.Remove(target)) })
		service.add(b, func() error { return s.Publish(b.Soon(), "pod", of) },
			func() error { return s.Unpublish(b.Soon(), "pod", source) })
	}
	var first []time.Duration
	for range serviceRestarts {
		first = append(first, b.restart(s))
	}
	status := harness.Need(process.Status(s.PID()))(b, "reading the service's status")
	fmt.Fprintf(b.out, "\n%s: %d volumes mounted for pods and unmounted, by turns, on loop %s in %s\n\n", casePublish, b.publishes, b.fs, b.place())
	printMountings(b, "bind mount(2)", bare.mounts, service.mounts, "NodePublishVolume")
	printMountings(b, "umount(2)", bare.unmounts, service.unmounts, "NodeUnpublishVolume")
	slices.Sort(first)
	fmt.Fprintf(b.out, "restart of the service: p50 %s, longest %s until it responds to kubelet's registration, which its sockets outlive\n",
		quantile(first, 0.50).Round(time.Millisecond), first[len(first)-1].Round(time.Millisecond))
	fmt.Fprintf(b.out, "the service has %d MiB\n", status["VmRSS"]>>10)
}

// nodeService starts the node service, which may pause pods, for a new pool with a volume.
func (b *bench) nodeService(
	ctx context.Context, image hosttest.Image, pauses bool,
) (s *csinode.Service, pool, root string) {
	dir := hosttest.Dir(b)
	pool, root = filepath.Join(dir, poolName), filepath.Join(dir, "k")
	config := fmt.Sprintf("node = \"a\"\nkubelet_root = %q\n[pool.%s]\npath = %q\n"+
		"immutable = \"off\"\n", root, poolName, pool)
	if pauses {
		config += "source = \"csi\"\nsnapshots = \"paused\"\npause_limit = \"10s\"\n"
	}
	d := harness.Need(rig.New(rig.Options{Binary: b.daemon, Dir: dir, Config: config}))(b,
		"configuring the service")
	b.Must(os.Mkdir(pool, 0o700), "making the mount point")
	image.Mount(b, pool)
	b.Must(csinode.MakePool(ctx, poolName, pool, source, 0o777), "making a volume")
	s = b.NodeService(csinode.Options{
		Root: root, Driver: plan.DefaultProvisioner, Command: d.Command,
		Log: filepath.Join(dir, "log"), Pauses: pauses,
	})
	b.Must(s.Start(), "starting the service")
	return s, pool, root
}

// serviceRestarts are how often the service is restarted. How long kubelet takes after its own
// restart, make test-nodes prints.
const serviceRestarts = 20

// restart returns how long the service takes from its start to its first response.
func (b *bench) restart(s *csinode.Service) time.Duration {
	b.Must(s.Stop(b.Soon()), "stopping the service")
	begin := time.Now()
	b.Must(s.Start(), "starting the service")
	name, _, err := s.Registered(b.Soon())
	if err == nil && name != plan.DefaultProvisioner {
		err = fmt.Errorf("the driver is %q", name)
	}
	b.Must(err, "asking for the driver")
	return time.Since(begin)
}

func (m *mountings) add(b *bench, mount, unmount func() error) {
	begin := time.Now()
	b.Must(mount(), "mounting")
	m.mounts = append(m.mounts, time.Since(begin))
	begin = time.Now()
	b.Must(unmount(), "unmounting")
	m.unmounts = append(m.unmounts, time.Since(begin))
}

func printMountings(b *bench, bareName string, bare, service []time.Duration, serviceName string) {
	slices.Sort(bare)
	slices.Sort(service)
	for _, q := range []float64{0.50, 0.99} {
		mine, theirs := quantile(service, q), quantile(bare, q)
		fmt.Fprintf(b.out, "p%.0f: %-20s %9s   %-14s %9s   ratio %.1f\n", 100*q, serviceName, mine.Round(time.Microsecond), bareName, theirs.Round(time.Microsecond), float64(mine)/float64(theirs))
	}
}

// caseSnapshot is a snapshot of a volume while a pod writes to it, beside cp -a --reflink=always.
// Neither a cluster nor a daemon is there: the copies are made by the daemon's packages in this
// process, the pause by the node service.
const caseSnapshot = "snapshot"

// The ways of a copy.
const (
	wayCp     = "cp -a --reflink=always, syncfs"
	wayLive   = "snapshot, live"
	wayPaused = "snapshot, paused"
)

// source is the volume, and writerPod the UID of the pod that writes to it.
const (
	source    = "pvc-00000000-0000-4000-8000-000000000001"
	writerPod = "00000000-0000-4000-8000-000000000002"
)

// snapshots is a pool with a volume that a pod writes to.
type snapshots struct {
	*bench
	path   string // of the pool
	pool   *volume.Pool
	id     mounts.Identity
	client pause.Client
	writer *writer
}

// copied are the times of one way.
type copied struct{ took, stall, pause []time.Duration }

// measureSnapshot measures each filesystem that can share blocks between files.
func (b *bench) measureSnapshot(ctx context.Context) {
	fmt.Fprintf(b.out, "\n%s, %s: a volume of %d files of 4 KiB on a loop device in memory, while a pod writes 4 KiB each %s to %d of them in turn; medians of %d, by turns\n",
		harness.Machine(), caseSnapshot, b.snapshotFiles, writerPace, writtenFiles, b.snapshotRepeats)
	for _, fstype := range []string{"xfs", "btrfs"} {
		b.newSnapshots(ctx, fstype).measure(ctx, fstype)
	}
}

func (b *bench) newSnapshots(ctx context.Context, fstype string) *snapshots {
	s := &snapshots{bench: b}
	node, path, root := b.nodeService(ctx, hosttest.Mkfs(b, fstype, poolMiB), true)
	s.path = path
	fillSource(filepath.Join(s.path, source), b.snapshotFiles)
	s.pool = volume.New(volume.Options{Name: poolName, Path: s.path})
	s.id = harness.Need(pool.IdentityOf(s.path))(b, "looking at the pool")
	b.Must(node.Publish(b.Soon(), writerPod, csinode.Of(source, poolName, filepath.Join(s.path, source))), "publishing")
	s.client = pause.Client{Socket: pause.SocketPath(root, plan.DefaultProvisioner)}
	cgroup, remove, err := hosttest.MakeCgroup(fmt.Sprintf("hostpath-bench-%d/kubepods/pod%s", os.Getpid(), writerPod))
	b.Cleanup(remove)
	b.Must(err, "making a cgroup")
	s.writer = startWriter(node.Target(writerPod, source), cgroup)
	b.Cleanup(s.writer.stop)
	return s
}

// perDirectory is how many files a directory has.
const perDirectory = 100

// fillSource makes the volume's files.
func fillSource(top string, files int) {
	data := make([]byte, 4096)
	for i := range files {
		dir := filepath.Join(top, strconv.Itoa(i/perDirectory))
		if i%perDirectory == 0 {
			harness.Check(os.Mkdir(dir, 0o755))
		}
		harness.Check(os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), data, 0o644))
	}
	unix.Sync()
}

// measure copies by turns, and prints what it took.
func (s *snapshots) measure(ctx context.Context, fstype string) {
	ways := []string{wayCp, wayLive, wayPaused}
	all := map[string]*copied{wayCp: {}, wayLive: {}, wayPaused: {}}
	var idle []time.Duration
	for repeat := range s.snapshotRepeats {
		s.stall()
		time.Sleep(time.Second) // what the writer does beside nothing
		idle = append(idle, s.stall())
		for i := range ways {
			way := ways[(i+repeat)%len(ways)]
			name := fmt.Sprintf("snapshot-%d-%d", repeat, i)
			s.stall()
			began := time.Now()
			s.Must(s.copy(ctx, way, name, all[way]), way)
			all[way].took = append(all[way].took, time.Since(began))
			all[way].stall = append(all[way].stall, s.stall())
			s.Must(s.remove(ctx, way, name), "removing "+name)
		}
	}
	fmt.Fprintf(s.out, "\n%-32s %9s %9s %22s %22s\n", fstype, "whole", "each file", "writer's longest gap", "pause")
	for _, way := range ways {
		c := all[way]
		whole := middle(c.took)
		fmt.Fprintf(s.out, "%-32s %9s %9s %22s %22s\n", way, seconds(whole), (whole / time.Duration(s.snapshotFiles)).Round(100*time.Nanosecond), middleAndMost(c.stall), middleAndMost(c.pause))
	}
	fmt.Fprintf(s.out, "%-32s %9s %9s %22s\n", "nothing, for a second", "", "", middleAndMost(idle))
}

// middleAndMost is the median, and the longest.
func middleAndMost(all []time.Duration) string {
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("%s (at most %s)", ms(middle(all)), ms(slices.Max(all)))
}

// stall is the longest time between two writes since the last call.
func (s *snapshots) stall() time.Duration {
	return harness.Need(s.writer.longest())(s, "asking the writer")
}

// copy copies the volume in a way. Each ends with the copy on stable storage.
func (s *snapshots) copy(ctx context.Context, way, name string, c *copied) error {
	if way == wayCp {
		to := filepath.Join(s.path, name)
		return errors.Join(quietly(exec.CommandContext(ctx, "cp", "-a", "--reflink=always", filepath.Join(s.path, source), to)), quietly(exec.CommandContext(ctx, "sync", "-f", to)))
	}
	spec := volume.Spec{Mode: 0o700, Record: record.Record{
		Kind: record.Snapshot, PV: name, Directory: name, ClaimUID: "u-" + name, Namespace: "bench", Claim: name, Unpublished: true,
		Requested: 1 << 20, Origin: record.Origin{Name: source, UID: source},
	}}
	if way == wayPaused {
		spec.Pause = func(ctx context.Context) (context.Context, func() error, error) {
			ctx, one, err := s.client.Begin(ctx, poolName, source)
			return ctx, func() error {
				if one.Pods != 1 {
					return fmt.Errorf("%d pods stood still", one.Pods)
				}
				took, err := one.End()
				c.pause = append(c.pause, took)
				return err
			}, err
		}
	}
	_, err := s.pool.Create(ctx, s.id, spec)
	return err
}

func quietly(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return err
}

// remove removes a copy, which is not measured.
func (s *snapshots) remove(ctx context.Context, way, name string) error {
	if way == wayCp {
		return os.RemoveAll(filepath.Join(s.path, name))
	}
	harness.Check(s.pool.Undo(ctx, s.id, name))
	_, err := s.pool.Purge(ctx, s.id, name)
	return err
}
