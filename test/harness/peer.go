package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// AddPeer makes another node, with a daemon that runs whenever the first does, and the same pool:
// the same storage, or, where own is given, that filesystem at the same path. The second daemon has
// a mount namespace of its own, because two daemons of one host do not share a pool.
func (e *Environment) AddPeer(ctx context.Context, p Pool, own *hosttest.Image) (err error) {
	dir, node := filepath.Join(e.opt.Dir, "peer"), e.Node+"-peer"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := e.Cluster.AddHost(ctx, node, nil); err != nil {
		return err
	}
	mounts := "mkdir -p /run/hostpath-provisioner; mount -t tmpfs node /run/hostpath-provisioner"
	if own != nil {
		e.peerPool = hosttest.PoolMount(e, *own)
		// The first node's filesystem goes: a mount on top of it would hide its mount point.
		mounts += fmt.Sprintf("; umount %[1]s; mount --bind %[2]s %[1]s; umount %[2]s", p.Path, e.peerPool)
	}
	e.peer, err = rig.New(rig.Options{Binary: e.opt.Binary, Dir: dir, Config: e.config(node, ""), Wrap: []string{
		"unshare", "--mount", "--propagation", "slave", "sh", "-ec", mounts + `; exec "$@"`, "sh",
	}})
	if err != nil {
		return err
	}
	if out, code := e.peer.Call("prepare", p.Name); code != 0 {
		return errors.New(out)
	}
	return nil
}

// NodeService makes the CSI node service, which does not run yet. Its sockets are closed with the
// trial.
func (p *Program) NodeService(o csinode.Options) *csinode.Service {
	s, err := csinode.New(o)
	p.Must(err, "making the sockets of the node service")
	p.Cleanup(s.Close)
	return s
}

// Redirect makes the daemon's kubeconfig point to another server, whose certificate ca has signed.
func (e *Environment) Redirect(server string, ca []byte) error {
	config, err := clientcmd.LoadFromFile(e.Kubeconfig)
	if err != nil {
		return err
	}
	for _, c := range config.Clusters {
		c.Server, c.CertificateAuthorityData = server, ca
	}
	return clientcmd.WriteToFile(*config, e.Kubeconfig)
}

// Storage is a filesystem that holds a pool. With a peer that has its own each node has one; else
// there is one.
type Storage struct {
	pool    string        // where this program sees it
	daemons []*rig.Daemon // of the nodes that have it
}

// Storages are all that hold the pool, the first node's first.
func (e *Environment) Storages(p Pool) []Storage {
	if e.peerPool == "" {
		return []Storage{{p.Path, e.daemons()}}
	}
	return []Storage{{p.Path, []*rig.Daemon{e.Daemon}}, {e.peerPool, []*rig.Daemon{e.peer}}}
}

// StorageAt is a filesystem that this program sees at a path.
func (e *Environment) StorageAt(path string) Storage { return Storage{path, e.daemons()} }

// Log is what the daemons that have this storage wrote.
func (s Storage) Log() string { return logs(s.daemons) }

// Path is a path in the pool.
func (s Storage) Path(elem ...string) string {
	return filepath.Join(append([]string{s.pool}, elem...)...)
}

// Trash is the path of a volume that was moved to the trash whole.
func (s Storage) Trash(volume string) string { return s.Path(hostcheck.PrivateDir, "trash", volume) }

// Tree is the names of everything in the pool (pool.Tree).
func (s Storage) Tree() ([]string, error) { return pool.Tree(s.pool) }
