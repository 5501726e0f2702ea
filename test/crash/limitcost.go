package crash

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/mountpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// How many volumes cost makes and removes.
const (
	costPairs   = 100
	costVolumes = 1000
	costAtOnce  = 8
)

// timedQuotas counts what the calls for the limits of projects take.
type timedQuotas struct {
	volume.QuotaKernel
	took time.Duration
}

// Get is part of volume.QuotaKernel.
func (q *timedQuotas) Get(root int, id uint32) (quota.Usage, error) {
	began := time.Now()
	defer func() { q.took += time.Since(began) }()
	return q.QuotaKernel.Get(root, id)
}

// Set is part of volume.QuotaKernel.
func (q *timedQuotas) Set(root int, id uint32, l quota.Limit) error {
	began := time.Now()
	defer func() { q.took += time.Since(began) }()
	return q.QuotaKernel.Set(root, id, l)
}

// cost measures what a limit adds to a creation, and how long it takes to read what 1,000 volumes
// take. Both are beside what this machine takes for a system call.
func (c *limitCases) cost() string {
	p, kernel := c.open(), &timedQuotas{QuotaKernel: mountpoint.QuotasOf(c.path)}
	p.SetQuotas(projectQuotas(kernel))
	var with, without, more, calls []time.Duration
	var all []string
	for range costPairs {
		pv, limited := c.volume(), c.volume()
		kernel.took = 0
		without = append(without, c.timed(func() error { return made(1, false)(c.ctx, p, pv) }))
		with = append(with, c.timed(func() error { return made(1, true)(c.ctx, p, limited) }))
		more = append(more, with[len(with)-1]-without[len(without)-1])
		calls = append(calls, kernel.took)
		c.Must(p.Undo(c.ctx, p.id, pv), "removing a volume")
		all = append(all, limited)
	}
	for len(all) < costVolumes {
		all = append(all, c.volume())
	}
	c.eachAtOnce(all[costPairs:], func(pv string) error { return made(1, true)(c.ctx, p, pv) })
	var reads []time.Duration
	for range 9 {
		reads = append(reads, c.timed(func() error { _, err := p.Usage(c.ctx, p.id); return err }))
	}
	c.eachAtOnce(all, func(pv string) error { return p.Undo(c.ctx, p.id, pv) })
	return fmt.Sprintf("a volume takes %v without a limit and %v with one, %v more in a pair, of which the calls for the limit take %v and that for the project %v; what %d volumes take is read in %v (medians); %s",
		median(without), median(with), median(more), median(calls), median(c.projectSet()), costVolumes, median(reads), speed())
}

// projectSet measures the call that gives a directory a project which nothing has.
func (c *limitCases) projectSet() (took []time.Duration) {
	for i := range costPairs {
		dir := filepath.Join(c.path, fmt.Sprint("project", i))
		c.Must(os.Mkdir(dir, 0o700), "making a directory")
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		c.Must(err, "opening a directory")
		took = append(took, c.timed(func() error {
			return quota.SetProject(fd, quota.Project{ID: lastProject + 1 + uint32(i), Inherits: true})
		}))
		c.Must(unix.Close(fd), "closing a directory")
		c.Must(os.Remove(dir), "removing a directory")
	}
	return took
}

// speed measures this machine: a system call that does next to nothing, and a computation.
func speed() string {
	const rounds, calls = 50, 20000
	var call, sum []time.Duration
	data := make([]byte, 1<<20)
	for range rounds {
		began := time.Now()
		for range calls {
			unix.Getppid()
		}
		call = append(call, time.Since(began))
		began = time.Now()
		fnv.New64a().Write(data)
		sum = append(sum, time.Since(began))
	}
	return fmt.Sprintf("here a system call takes %d ns, a checksum of 1 MiB %d us", lowest(call).Nanoseconds()/calls, lowest(sum).Microseconds())
}

func lowest(all []time.Duration) time.Duration { return slices.Min(all) }

func (c *limitCases) timed(do func() error) time.Duration {
	began := time.Now()
	c.Must(do(), "making or reading volumes")
	return time.Since(began)
}

func (c *limitCases) eachAtOnce(pvs []string, do func(pv string) error) {
	var wait sync.WaitGroup
	errs := make([]error, costAtOnce)
	for n := range costAtOnce {
		wait.Go(func() {
			for i := n; i < len(pvs) && errs[n] == nil; i += costAtOnce {
				errs[n] = do(pvs[i])
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		c.Must(err, "making or removing volumes")
	}
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2].Round(10 * time.Microsecond)
}

// requestCost measures a request to the service that may set limits, as a daemon without
// CAP_SYS_ADMIN makes it. A creation makes three.
func requestCost(e *prover, path string) string {
	root := harness.Need(unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))(e, "opening "+path)
	defer unix.Close(root)
	runtime.LockOSThread()
	e.Must(dropSysAdmin(), "dropping a capability")
	var took []time.Duration
	q := mountpoint.QuotasOf(path)
	for range 300 {
		began := time.Now()
		_, err := q.Get(root, firstProject)
		e.Must(err, "asking for projects")
		took = append(took, time.Since(began))
	}
	return fmt.Sprintf("%s: a request about a project takes %v (median)", path, median(took))
}

// dropSysAdmin takes CAP_SYS_ADMIN from this thread, for good.
func dropSysAdmin() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	sets[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
	sets[0].Permitted &^= 1 << unix.CAP_SYS_ADMIN
	return unix.Capset(&header, &sets[0])
}
