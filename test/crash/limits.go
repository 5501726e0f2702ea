package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/mountpoint"
	volumerecord "github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// With -limits the daemon's calls on a disk are made by a process of this program, on a filesystem
// that enforces project quotas, which few hosts have: no API server is needed, and the machine of
// test/vm has none. That process is killed at the same points as a daemon.

// limitsEnv makes a copy of this program the process that is killed. Its arguments are "run", the
// operation, the pool's directory, and the volume.
const limitsEnv = "HOSTPATH_CRASH_LIMITS"

// Projects of the volumes, of which the directory's filesystem has no other files.
const (
	firstProject = 1213202432
	lastProject  = firstProject + 4095
)

// limitedPool is a pool whose volumes have limits, as one process has it.
type limitedPool struct {
	*volume.Pool
	path string
	id   mounts.Identity
}

func openLimited(path string) (*limitedPool, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	defer unix.Close(fd)
	p := &limitedPool{Pool: volume.New(volume.Options{Name: name, Path: path}), path: path}
	p.SetQuotas(projectQuotas(mountpoint.QuotasOf(path)))
	p.id, err = mounts.IdentityOf(fd)
	return p, err
}

func projectQuotas(kernel volume.QuotaKernel) *volume.ProjectQuotas {
	return &volume.ProjectQuotas{Kernel: kernel, First: firstProject, Last: lastProject, InodesPerGiB: 1 << 20, Begun: &volume.BegunProjects{}}
}

// act is something that is done to a volume.
type act func(ctx context.Context, p *limitedPool, pv string) error

// all does one thing after the other.
func all(acts ...act) act {
	return func(ctx context.Context, p *limitedPool, pv string) error {
		for _, do := range acts {
			if err := do(ctx, p, pv); err != nil {
				return err
			}
		}
		return nil
	}
}

func made(mib int64, limited bool) act {
	return func(ctx context.Context, p *limitedPool, pv string) error {
		s := volume.Spec{Record: volumerecord.Record{PV: pv, Directory: pv, ClaimUID: pv, Namespace: name, Claim: pv, Requested: mib << 20}, Mode: 0o700}
		if limited {
			s.Quota, s.Project = s.Requested, true
		}
		_, err := p.Create(ctx, p.id, s)
		return err
	}
}

func resized(mib int64) act {
	return func(ctx context.Context, p *limitedPool, pv string) error { return p.Resize(ctx, p.id, pv, mib<<20) }
}

func undone(ctx context.Context, p *limitedPool, pv string) error { return p.Undo(ctx, p.id, pv) }

func written(_ context.Context, p *limitedPool, pv string) error {
	sub := filepath.Join(p.path, pv, "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(sub, dataFile), []byte(pv), 0o600)
}

func discarded(ctx context.Context, p *limitedPool, pv string) error {
	return errors.Join(p.Trash(ctx, p.id, pv), p.Discard(ctx, p.id, pv))
}

func purged(ctx context.Context, p *limitedPool, pv string) error {
	_, err := p.Purge(ctx, p.id, pv)
	return err
}

func applied(ctx context.Context, p *limitedPool, pv string) error {
	done, err := p.Apply(ctx, p.id, pv, nil)
	return errors.Join(err, done.Err())
}

var removed = all(discarded, purged)

// limitOperation is done to a volume, dies, and is done again, or something else is.
type limitOperation struct {
	name                string
	before, dies, after act
	mib                 int64 // that the volume is limited to then; 0: it is gone
	unlimited           bool  // it may be seen without a limit before
}

var limitOperations = []limitOperation{
	{name: "limit: create", before: all(), dies: made(1, true), after: made(1, true), mib: 1},
	{name: "limit: create, given up", before: all(), dies: made(1, true), after: undone},
	{name: "limit: undo", before: made(1, true), dies: undone, after: undone},
	{name: "limit: remove", before: all(made(1, true), written), dies: removed, after: removed},
	{name: "limit: expand", before: made(1, true), dies: resized(2), after: resized(2), mib: 2},
	{name: "limit: expand, lowered again", before: made(1, true), dies: resized(3), after: resized(2), mib: 2},
	{name: "limit: lower what was not promised", before: made(3, true), dies: resized(2), after: resized(2), mib: 2},
	{name: "limit: apply", before: all(made(1, false), written), dies: applied, after: applied, mib: 1, unlimited: true},
	{name: "limit: apply, removed", before: all(made(1, false), written), dies: applied, after: removed, unlimited: true},
}

// operate is the whole life of the process that is killed. It returns the exit code.
func operate(args []string) int {
	p, err := openLimited(args[2])
	for _, op := range limitOperations {
		if err == nil && op.name == args[1] {
			err = op.dies(context.Background(), p, args[3])
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "crash: %s: %v\n", args[1], err)
		return 1
	}
	return 0
}

// limitCases are the operations in one pool.
type limitCases struct {
	*prover
	path   string
	killer *killer.Killer
	serial int
}

// proveLimits kills in a pool that it makes in a directory.
func proveLimits(e *prover, path string) report {
	socket := filepath.Join(os.TempDir(), fmt.Sprintf("crash-%d-%s", os.Getpid(), filepath.Base(path)))
	c := &limitCases{prover: e, path: path, killer: e.watch(socket, killer.Scope{Pool: path})}
	c.Must(c.open().InitMarker(c.ctx, c.open().id, []byte("{}\n")), "making a pool in "+path)
	c.Say("%s: %s", path, c.cost())
	var all []trial
	for _, op := range limitOperations {
		all = append(all, trial{op.name, "", e.opt.points, in(func() *limitCases { return c }, op.play)})
	}
	return e.tryAll(all)
}

// open is the pool as another process has it.
func (c *limitCases) open() *limitedPool {
	p := harness.Need(openLimited(c.path))(c, "opening the pool")
	return p
}

func (c *limitCases) volume() string {
	c.serial++
	return fmt.Sprintf("pvc-00000000-0000-4000-8000-%012d", c.serial)
}

// play is a case: the process dies at the point, and another one makes a volume, sweeps and
// finishes. In the end both are removed.
func (op limitOperation) play(c *limitCases, point string) (hit string, points []string, faults []fault) {
	pv, other := c.volume(), c.volume()
	c.Must(op.before(c.ctx, c.open(), pv), op.name+": before")
	hit, points = c.run(op, pv, point)
	p := c.open()
	if !op.unlimited {
		faults = c.visible(p)
	}
	do := func(doing string, do act, pv string) {
		if err := do(c.ctx, p, pv); err != nil {
			faults = append(faults, fault{loss, doing + ": " + err.Error()})
		}
	}
	do("another volume", made(1, true), other)
	do("sweeping", func(ctx context.Context, p *limitedPool, _ string) error { _, err := p.Sweep(ctx, p.id); return err }, "")
	do("finishing", op.after, pv)
	want := map[string]int64{other: 1 << 20}
	if op.mib > 0 {
		want[pv] = op.mib << 20
	}
	faults = append(faults, c.compare(p, want)...)
	for pv := range want {
		do("removing", removed, pv)
	}
	faults = append(faults, c.compare(p, nil)...)
	return hit, points, faults
}

// run has a process do the operation, and returns where it was killed and the points that came.
func (c *limitCases) run(op limitOperation, pv, point string) (hit string, points []string) {
	died := c.killer.Arm(point, 0)
	cmd := exec.CommandContext(c.ctx, "/proc/self/exe", "run", op.name, c.path, pv)
	cmd.Env = append(append(os.Environ(), c.killer.Env("/proc/self/exe")...), limitsEnv+"=1")
	out, err := cmd.CombinedOutput()
	points = c.killer.Disarm()
	select {
	case hit = <-died:
	default:
		c.Must(err, fmt.Sprintf("%s, which nothing killed: %s", op.name, out))
	}
	return hit, points
}

// limitsOf are the records of a pool, and what its filesystem says of their projects.
func (c *limitCases) limitsOf(p *limitedPool) (volume.Inventory, map[uint32]quota.Limit) {
	inventory := harness.Need(p.List(c.ctx, p.id))(c, "reading the records")
	projects := harness.Need(p.Projects(c.ctx, p.id))(c, "reading the limits")
	limits := map[uint32]quota.Limit{}
	for _, u := range projects {
		if u.Limit != (quota.Limit{}) {
			limits[u.ID] = u.Limit
		}
	}
	return inventory, limits
}

// visible returns which volumes can be seen without a limit, or with one above what is kept for
// them.
func (c *limitCases) visible(p *limitedPool) (faults []fault) {
	inventory, limits := c.limitsOf(p)
	for _, v := range inventory.Volumes {
		if l := limits[v.ProjectID]; v.Place == volumerecord.InPool && (v.ProjectID == 0 || l.Bytes == 0 || l.Bytes > uint64(v.Requested)) {
			faults = append(faults, fault{loss, fmt.Sprintf("a volume of %d bytes could be seen with project %d and limit %v", v.Requested, v.ProjectID, l)})
		}
	}
	return faults
}

// compare returns what is not so: there are these volumes and no others, each has a project of its
// own with a limit of this size, and nothing else has a limit.
func (c *limitCases) compare(p *limitedPool, want map[string]int64) (faults []fault) {
	add := func(k kind, format string, args ...any) {
		faults = append(faults, fault{k, fmt.Sprintf(format, args...)})
	}
	inventory, limits := c.limitsOf(p)
	owners := map[uint32]string{}
	for _, v := range inventory.Volumes {
		bytes, wanted := want[v.PV]
		switch l, dir := limits[v.ProjectID], c.projectAt(filepath.Join(p.path, v.Directory)); {
		case !wanted:
			add(leak, "a record of %s, with project %d", v.PV, v.ProjectID)
		case owners[v.ProjectID] != "":
			add(double, "project %d of %s and %s", v.ProjectID, owners[v.ProjectID], v.PV)
		case v.ProjectID == 0 || l.Bytes != uint64(bytes) || l.Inodes == 0 || v.Requested != bytes:
			add(loss, "%s of %d bytes has project %d and limit %v, in place of %d", v.PV, v.Requested, v.ProjectID, l, bytes)
		case dir != quota.Project{ID: v.ProjectID, Inherits: true}:
			add(loss, "the directory of %s has %+v, and its record %d", v.PV, dir, v.ProjectID)
		}
		owners[v.ProjectID] = v.PV
	}
	if len(inventory.Volumes) < len(want) {
		add(loss, "%d of %d volumes", len(inventory.Volumes), len(want))
	}
	for id, l := range limits {
		if owners[id] == "" {
			add(leak, "limit %v of project %d", l, id)
		}
	}
	for _, left := range inventory.Leftovers {
		add(leak, "%s in %s", left.Name, left.Place)
	}
	return faults
}

func (c *limitCases) projectAt(path string) quota.Project {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return quota.Project{}
	}
	defer unix.Close(fd)
	return quota.ProjectOf(fd)
}
