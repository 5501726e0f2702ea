package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// poolMiB is the size of a pool: more than all claims of a case request, since the daemon refuses
// what it cannot promise. Its blocks exist when they are written.
const poolMiB = 2048

// fixture is what one contender gets for one run: a filesystem, a class and a namespace that no
// other used before. Its name is the provisioner's, the class's and the namespace's.
type fixture struct {
	contender  string
	name       string
	dir        string // its log, and the daemon's directories
	pool       string
	kubeconfig string
	daemon     *rig.Daemon
	image      string
}

func (b *bench) newFixture(ctx context.Context, a *environment, contender, purpose string, repeat int) (*fixture, error) {
	name := fmt.Sprintf("bench-%s-%s-%d", contender, purpose, repeat)
	f := &fixture{contender: contender, name: name, dir: filepath.Join(a.dir, name), kubeconfig: a.kubeconfig[contender]}
	if err := os.Mkdir(f.dir, 0o700); err != nil {
		return nil, err
	}
	image := b.mkfs(f.dir)
	f.image = image.File
	if isDaemon(contender) {
		if err := f.prepare(b, image); err != nil {
			return nil, err
		}
	} else {
		f.pool = hosttest.PoolMount(b, image)
	}
	class := cluster.StorageClass(name, name, storagev1.VolumeBindingWaitForFirstConsumer)
	if _, err := a.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	return f, a.namespace(ctx, name)
}

// mkfs makes an empty filesystem whose kernel threads have nothing left to initialize. ext4 are
// further arguments for that one.
func (b *bench) mkfs(dir string, ext4 ...string) hosttest.Image {
	var args []string
	if b.fs == "ext4" {
		args = append([]string{"-E", "lazy_itable_init=0,lazy_journal_init=0"}, ext4...)
	}
	if b.disk == "" {
		return hosttest.Mkfs(b, b.fs, poolMiB, args...)
	}
	file, err := os.CreateTemp(b.disk, "bench-*.img")
	if err == nil {
		err = errors.Join(file.Truncate(poolMiB<<20), file.Close())
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() error { return ignoreMissing(os.Remove(file.Name())) })
	if out, err := exec.Command("mkfs."+b.fs, append(args, "-q", file.Name())...).CombinedOutput(); err != nil {
		b.Fatalf("mkfs.%s %s: %v\n%s", b.fs, file.Name(), err, out)
	}
	return hosttest.Image{File: file.Name(), Type: b.fs}
}

// newDaemon is a daemon with the configuration's defaults, except that its metrics take no port.
func newDaemon(binary, dir, provisioner, node, kubeconfig, pool string) (*rig.Daemon, error) {
	return rig.New(rig.Options{Binary: binary, Dir: dir, Config: fmt.Sprintf(`provisioner = %q
node        = %q
kubeconfig  = %q
metrics     = ""

[pool.%s]
path        = %q
`, provisioner, node, kubeconfig, poolName, pool)})
}

// prepare makes the pool as the daemon's operator does.
func (f *fixture) prepare(b *bench, image hosttest.Image) (err error) {
	f.pool = filepath.Join(hosttest.Dir(b), poolName)
	binary := b.daemon
	if f.contender == nameAgainst {
		binary = b.against
	}
	f.daemon, err = newDaemon(binary, f.dir, f.name, nodeOf(f.contender), f.kubeconfig, f.pool)
	if err != nil {
		return err
	}
	for _, mounted := range []bool{false, true} {
		if mounted {
			image.Mount(b, f.pool)
		}
		if out, code := f.daemon.Call("prepare", poolName); code != 0 {
			return fmt.Errorf("hostpath-provisioner prepare %s: exit code %d: %s", poolName, code, out)
		}
	}
	return nil
}

// tearDown takes the fixture down. The objects are the environment's to remove.
func (f *fixture) tearDown(b *bench) error {
	if b.keepLogs != "" {
		if err := os.WriteFile(filepath.Join(b.keepLogs, f.name+".log"), []byte(readLog(filepath.Join(f.dir, "log"))), 0o600); err != nil {
			return err
		}
	}
	if f.pool != "" {
		hosttest.UnmountLazy(b, f.pool)
	}
	return errors.Join(ignoreMissing(os.Remove(f.image)), os.RemoveAll(f.dir))
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
