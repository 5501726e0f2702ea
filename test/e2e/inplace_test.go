package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// nodeService starts the node service of a daemon's configuration, as a driver.
func (w *environment) nodeService(d *rig.Daemon, driver string) *csinode.Service {
	w.Helper()
	return w.startNodeService(csinode.Options{Root: w.kubeletRoot(), Driver: driver, Command: d.Command, Log: d.Path("csi.log")})
}

// kubeletRoot is a new directory. The path of a socket has 107 bytes at most.
func (w *environment) kubeletRoot() string {
	w.Helper()
	return need(os.MkdirTemp("", "k"))(w)
}

func (w *environment) startNodeService(o csinode.Options) *csinode.Service {
	w.Helper()
	s := need(csinode.New(o))(w)
	w.Must(s.Start())
	w.Cleanup(func() { // a pool that is mounted there is not looked into
		w.Must(s.Close())
		if left, err := s.Mounted(); err == nil && len(left) == 0 {
			w.Must(os.RemoveAll(o.Root))
		}
	})
	return s
}

// reads wants a pod to have the volume's data.
func (h *host) reads(s *csinode.Service, pod string, pv *corev1.PersistentVolume) {
	h.w.Helper()
	h.wantData(s.Target(pod, pv.Name), pv.Spec.ClaimRef.Name)
}

// A volume of kubevirt's CSI driver with its own object, which a pod uses all the time: adopted as
// it is, published for another pod, removed with its claim by the daemon; and given back.
func TestInPlaceOfKubevirt(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a").aliased(csiDriver).configureFirst(fmt.Sprintf("csi_drivers = [%q]", csiDriver)).run()
	s := w.nodeService(h.Daemon, csiDriver)
	one, two := h.madeByCSI(csiDriver, "one"), h.madeByCSI(csiDriver, "two")
	inode := h.inode(one.Name)
	w.Must(os.MkdirAll(s.Target("running", one.Name), 0o750)) // as the driver left it
	w.Must(unix.Mount(filepath.Join(h.mount, one.Name), s.Target("running", one.Name), "", unix.MS_BIND, ""))
	theirs := csinode.Volume{PV: one.Name, Attributes: one.Spec.CSI.VolumeAttributes}
	if err := s.Publish(w.Soon(), "new", theirs); err == nil || !strings.Contains(err.Error(), "it has to be adopted first") {
		t.Errorf("before it is adopted: %v", err)
	}
	h.adopts()
	now := getIn(w, w.pvs(), one.Name)
	if !reflect.DeepEqual(now.Spec, one.Spec) || now.UID != one.UID {
		t.Errorf("the object became\n%s\nwas\n%s", now, one)
	}
	w.Must(s.Publish(w.Soon(), "new", theirs))
	h.reads(s, "running", one)
	h.reads(s, "new", one)
	w.Removes("two", two.Name)
	h.wantTree(one.Name, "ours/volumes/"+one.Name+".json")

	h.adopts("--undo")
	w.asBefore(one)
	h.keepsData(one, inode)
	h.wantTree(one.Name)
	if err := s.Publish(w.Soon(), "late", theirs); err == nil || !strings.Contains(err.Error(), "it has to be adopted first") {
		t.Errorf("once it is given back: %v", err)
	}
	h.reads(s, "running", one)
	for _, pod := range []string{"running", "new"} {
		w.Must(s.Unpublish(w.Soon(), pod, one.Name))
	}
	if left, err := s.Mounted(); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// A volume that was made meanwhile for a class of kubevirt's is of this daemon's own driver, and
// stays when the others are given back: pods get it, also once the alias is gone.
func TestOwnVolumeStays(t *testing.T) {
	w := withDriver(t)
	h := w.newHost("a", `source = "csi"`).aliased(csiDriver).configureFirst(fmt.Sprintf("csi_drivers = [%q]", csiDriver)).run()
	s := w.nodeService(h.Daemon, w.Provisioner)
	theirs := h.madeByCSI(csiDriver, "theirs")
	class := w.ClassOf(csiDriver, "k", immediate, fixture.Parameters("storagePool", "fast"))
	// Other tests' daemons serve the driver, too.
	ours := w.bound("ours", class, "10Mi", annotate(provisionOnNode, h.node))
	h.adopts()
	h.adopts("--undo")
	w.asBefore(theirs)
	w.asBefore(ours)
	w.Must(s.Publish(w.Soon(), "p", asKubelet(ours)))
	w.Must(s.Unpublish(w.Soon(), "p", ours.Name))
	w.DeleteClaim("ours")
	h.wantTree(theirs.Name)
}
