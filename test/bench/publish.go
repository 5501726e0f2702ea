package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
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
	dir := hosttest.Dir(b)
	pool, root := filepath.Join(dir, poolName), filepath.Join(dir, "k")
	d, err := rig.New(rig.Options{Binary: b.daemon, Dir: dir, Config: fmt.Sprintf("node = \"a\"\n[pool.%s]\npath = %q\nimmutable = \"off\"\n", poolName, pool)})
	b.Must(err, "configuring the service")
	b.Must(os.Mkdir(pool, 0o700), "making the mount point")
	b.mkfs(pool).Mount(b, pool)
	const pv = "pvc-00000000-0000-4000-8000-000000000001"
	b.Must(csinode.MakePool(ctx, poolName, pool, pv, 0o777), "making a volume")
	s := b.NodeService(csinode.Options{Root: root, Driver: plan.DefaultProvisioner, Command: d.Command, Log: filepath.Join(dir, "log")})
	b.Must(s.Start(), "starting the service")
	var bare, service mountings
	of := csinode.Of(pv, poolName, filepath.Join(pool, pv))
	for range b.publishes {
		target := s.Target("bare", pv)
		b.Must(os.MkdirAll(filepath.Dir(target), 0o750), "making a pod's directory")
		bare.add(b, func() error {
			return errors.Join(os.Mkdir(target, 0o750), unix.Mount(filepath.Join(pool, pv), target, "", unix.MS_BIND, ""))
		}, func() error { return errors.Join(unix.Unmount(target, 0), os.Remove(target)) })
		service.add(b, func() error { return s.Publish(b.Soon(), "pod", of) }, func() error { return s.Unpublish(b.Soon(), "pod", pv) })
	}
	var first []time.Duration
	for range serviceRestarts {
		first = append(first, b.restart(s))
	}
	status, err := process.Status(s.PID())
	b.Must(err, "reading the service's status")
	fmt.Fprintf(b.out, "\n%s: %d volumes mounted for pods and unmounted, by turns, on loop %s in %s\n\n", casePublish, b.publishes, b.fs, b.place())
	printMountings(b, "bind mount(2)", bare.mounts, service.mounts, "NodePublishVolume")
	printMountings(b, "umount(2)", bare.unmounts, service.unmounts, "NodeUnpublishVolume")
	slices.Sort(first)
	fmt.Fprintf(b.out, "restart of the service: p50 %s, longest %s until it responds to kubelet's registration, which its sockets outlive\n",
		quantile(first, 0.50).Round(time.Millisecond), first[len(first)-1].Round(time.Millisecond))
	fmt.Fprintf(b.out, "the service has %d MiB\n", status["VmRSS"]>>10)
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
