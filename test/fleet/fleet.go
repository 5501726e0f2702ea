package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

const (
	provisioner = "fleet"
	nodeLabel   = "hostpath-provisioner/node"

	immediate = storagev1.VolumeBindingImmediate
	wait      = storagev1.VolumeBindingWaitForFirstConsumer
)

// fleet is the daemons and the environment that they run in.
type fleet struct {
	*harness.Plane
	program *harness.Program
	opt     options
	audit   *harness.AuditLog
	members []*member
}

// member is one daemon and its node.
type member struct {
	*rig.Daemon
	node string
}

// build starts the control plane and prepares the daemons, which do not run yet.
func (f *fleet) build(ctx context.Context) {
	audit, args, err := harness.NewAuditLog(hosttest.Dir(f.program), harness.AuditOfDaemons)
	f.program.Must(err, "writing the audit policy")
	f.audit = audit
	f.Plane = f.program.StartPlane(ctx, "fleet", cluster.Options{ExtraArgs: args})
	for _, mode := range []storagev1.VolumeBindingMode{immediate, wait} {
		f.AddClass(ctx, className(mode), provisioner, func(c *storagev1.StorageClass) { c.VolumeBindingMode = &mode })
	}
	f.Say("preparing %d daemons", f.opt.daemons)
	for i := range f.opt.daemons {
		f.members = append(f.members, f.member(fmt.Sprintf("fleet-%03d", i), fmt.Sprintf("%dm", 32+16*f.opt.claims/f.opt.daemons)))
	}
	f.ApplyManifests(ctx, f.members[0].Daemon)
	f.each(f.members, func(m *member) error {
		if err := f.Cluster.AddHost(ctx, m.node, nil); err != nil {
			return err
		}
		return f.WriteKubeconfig(ctx, m.node, m.Path("kubeconfig"))
	})
}

func className(mode storagev1.VolumeBindingMode) string {
	return map[storagev1.VolumeBindingMode]string{immediate: "now", wait: "later"}[mode]
}

// member makes a node's pool, of a size as mount takes it, and configures its daemon.
func (f *fleet) member(node, size string) *member {
	dir := hosttest.Dir(f)
	pool := filepath.Join(dir, "pool")
	f.Must(os.Mkdir(pool, 0o700), "making a mount point")
	hosttest.SetImmutable(f, pool, true)
	hosttest.Mount(f, "-t", "tmpfs", "-o", "mode=0700,size="+size, "pool", pool)
	config := fmt.Sprintf("provisioner = %q\nnode = %q\nkubeconfig = %q\nmetrics = \"\"\n[pool.fast]\npath = %q\n",
		provisioner, node, filepath.Join(dir, "kubeconfig"), pool)
	// One daemon has a machine of its own in earnest.
	daemon, err := rig.New(rig.Options{Dir: dir, Config: config, Env: []string{"GOMAXPROCS=1"}})
	f.Must(err, "configuring a daemon")
	if out, code := daemon.Call("prepare", "fast"); code != 0 {
		f.Fatalf("prepare on %s: %s", node, out)
	}
	return &member{daemon, node}
}

// each does something for many at once, eight at a time.
func (f *fleet) each(members []*member, do func(*member) error) {
	var all sync.WaitGroup
	errs, slots := make(chan error, len(members)), make(chan struct{}, 8)
	for _, m := range members {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := do(m); err != nil {
				errs <- fmt.Errorf("%s: %w", m.node, err)
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		f.Fatal(err)
	}
}

// soon is a context for one wait of many.
func soon(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 4*time.Minute)
}
