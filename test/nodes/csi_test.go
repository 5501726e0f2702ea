//go:build nodes

package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
)

// TestCSI is the story of volumes with source csi, on one node.
func TestCSI(t *testing.T) {
	c := &csiNode{driver: provisioner}
	tell(t, usual, []step{
		{"a real control plane", startCluster},
		{"a node with kubelet and containerd", c.oneNode},
		{"a claim waits for the CSIDriver, with an event", c.installWithoutDriver},
		{"kubelet registers the driver on the sockets that are there before the service", c.register},
		{"a pod writes to its claim by fsGroup, which the mode alone does not let it", c.write},
		{"the service is killed beneath a running pod: nothing changes, kubelet keeps the driver", c.killed},
		{"kubelet is restarted, and has the driver again; the service is, and responds", c.restarted},
		{"without the daemon pods go and come, and find the data", c.withoutDaemon},
		{"kubelet's statistics of the volume", c.statistics},
		{"the claim grows while its pod runs", c.grows},
		{"ReadWriteOncePod: a second pod on the node is refused", c.once},
		{"the pool is unmounted: a pod goes, and the next one waits with the gate's sentence", c.closed},
		{"the pool is mounted again: the pod runs, and finds the data", c.opened},
		{"kubevirt's driver is gone: its volume waits until it is adopted, keeps its object, and is removed with its claim", c.inPlaceOfKubevirt},
		{"pods with inline volumes of kubevirt's driver: refused while the pool has none, with an event, and then they start", c.inlineOfKubevirt},
		{"an inline volume that kubevirt's driver left: the pod goes on with it, and nothing removes it", c.inlineLeftByKubevirt},
		{"everything is deleted: the pool is empty, and nothing is mounted for a pod", c.empty},
	})
}

func (c *csiNode) oneNode(ctx context.Context, w *environment) {
	w.a = w.startNode(ctx, 1, "node-a", w.makeArchive())
	c.h = w.a
	var err error
	w.namespace, err = w.cluster.NewNamespace(ctx, "csi")
	w.must(err, "creating a namespace")
}

func (c *csiNode) installWithoutDriver(ctx context.Context, w *environment) {
	w.manifests(ctx)
	w.must(w.client.StorageV1().CSIDrivers().Delete(ctx, provisioner, metav1.DeleteOptions{}), "deleting the CSIDriver")
	w.install(ctx, w.a, 2048) // an inline volume of kubevirt's driver has no size, which is 1 GiB
	w.class(ctx, "csi", storagev1.VolumeBindingWaitForFirstConsumer, "source", "csi", "mode", "0770")
	claim := w.claim(ctx, "data", "csi")
	w.createPod(ctx, w.pod("first", "data", nil, fsGroup))
	const helps = "hostpath-provisioner manifests | kubectl apply -f -"
	w.told(ctx, claim, "CSIDriverNotReady", helps)
	w.manifests(ctx)
}

func (c *csiNode) write(ctx context.Context, w *environment) {
	w.ready(ctx, "first")
	pv := w.bound(ctx, "data")
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != provisioner || pv.Spec.CSI.VolumeHandle != pv.Name {
		w.Fatalf("the volume's source is %+v", pv.Spec.PersistentVolumeSource)
	}
	info, err := os.Lstat(w.a.path(poolDir, pv.Name))
	w.must(err, "looking for the volume")
	if gid := info.Sys().(*syscall.Stat_t).Gid; gid != volumeGroup || info.Mode() != fs.ModeDir|fs.ModeSetgid|0o770 {
		w.Fatalf("the directory is %s of group %d", info.Mode(), gid)
	}
	w.showf("claim data: csi %s, %s", pv.Spec.CSI.VolumeHandle, info.Mode())
}

func (c *csiNode) killed(ctx context.Context, w *environment) {
	before, err := w.client.StorageV1().CSINodes().Get(ctx, w.a.name, metav1.GetOptions{})
	w.must(err, "reading CSINode")
	container := containerOf(w.ready(ctx, "first"))
	w.must(c.service.Kill(), "killing the service")
	w.createPod(ctx, w.pod("second", "data", []string{"first"}, fsGroup)) // its call waits in the socket
	c.start(w)
	w.ready(ctx, "second")
	after, err := w.client.StorageV1().CSINodes().Get(ctx, w.a.name, metav1.GetOptions{})
	w.must(err, "reading CSINode")
	if after.ResourceVersion != before.ResourceVersion {
		w.Fatalf("CSINode was changed: %+v", after.Spec.Drivers)
	}
	w.keeps(ctx, "first", container)
}

// restarted prints how long kubelet is without the driver after its own restart, and without a
// response after the service's.
func (c *csiNode) restarted(ctx context.Context, w *environment) {
	container := containerOf(w.ready(ctx, "first"))
	before := c.registrations(w)
	w.must(w.a.kubelet.end(syscall.SIGTERM, 30*time.Second), "stopping kubelet")
	begin := time.Now()
	w.must(w.a.startKubelet(), "starting kubelet")
	c.registeredAgain(ctx, w, before)
	w.showf("kubelet registered the driver %s after kubelet's start", time.Since(begin).Round(time.Millisecond))

	registered := c.registrations(w)
	c.stop(w)
	begin = time.Now()
	c.start(w)
	s, err := csinode.Connect(w.a.path("/var/lib/kubelet"), c.driver)
	w.must(err, "connecting")
	defer s.Close()
	name, _, err := s.Registered(ctx)
	if err != nil || name != c.driver {
		w.Fatalf("the driver is %q, %v", name, err)
	}
	w.showf("the service responded %s after its start; kubelet registered it %d times more", time.Since(begin).Round(time.Millisecond), c.registrations(w)-registered)
	w.kubeletResponds(ctx, "first")
	w.keeps(ctx, "first", container)
}

func (c *csiNode) withoutDaemon(ctx context.Context, w *environment) {
	w.stop(ctx, w.a)
	w.deletePod(ctx, "first")
	w.deletePod(ctx, "second")
	c.unmounted(w)
	w.run(ctx, w.pod("third", "data", []string{"first", "second"}, fsGroup))
	w.must(w.a.daemon.Run(ctx), "starting the daemon again")
}

// statistics are gathered by kubelet once a minute.
func (c *csiNode) statistics(ctx context.Context, w *environment) {
	err := eventually(ctx, "kubelet's statistics", func() error {
		text, err := w.client.CoreV1().RESTClient().Get().Resource("nodes").Name(w.a.name).SubResource("proxy").Suffix("stats/summary").DoRaw(ctx)
		if err != nil {
			return err
		}
		var summary struct {
			Pods []struct {
				Volume []struct {
					PVCRef                                       *struct{ Name string }
					CapacityBytes, UsedBytes, Inodes, InodesUsed uint64
				}
			}
		}
		if err := json.Unmarshal(text, &summary); err != nil {
			return err
		}
		for _, pod := range summary.Pods {
			for _, v := range pod.Volume {
				if v.PVCRef != nil && v.PVCRef.Name == "data" && v.CapacityBytes > 0 && v.InodesUsed > 0 {
					w.showf("claim data: %d of %d bytes, %d of %d inodes", v.UsedBytes, v.CapacityBytes, v.InodesUsed, v.Inodes)
					return nil
				}
			}
		}
		return fmt.Errorf("none of claim data")
	})
	w.must(err, "waiting for kubelet")
}

func (c *csiNode) grows(ctx context.Context, w *environment) {
	before := containerOf(w.ready(ctx, "third"))
	for _, size := range []string{"9Mi", "12Mi"} {
		w.grow(ctx, "data", size)
	}
	w.keeps(ctx, "third", before)
	w.settledAt(ctx, "data", "12Mi")
}

func (c *csiNode) once(ctx context.Context, w *environment) {
	w.claimOnce(ctx, "once", "csi")
	w.run(ctx, w.pod("once-first", "once", nil, fsGroup))
	w.refusedBy(ctx, w.pod("once-placed", "once", nil, placed(w.a), fsGroup), "FailedMount")
	w.deleteClaim(ctx, "once", "once-first")
}

func (c *csiNode) closed(ctx context.Context, w *environment) {
	w.unmount(ctx, w.a)
	w.deletePod(ctx, "third")
	c.unmounted(w)
	pod := w.createPod(ctx, w.pod("fourth", "data", []string{"third"}, fsGroup))
	const sentence = `pool "fast" is closed: ` + poolDir + " is not a mount point"
	_, err := cluster.WaitFor(ctx, w.client.CoreV1().Pods(w.namespace), pod.Name, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	w.must(err, "waiting for the scheduler")
	w.told(ctx, pod, "FailedMount", sentence)
	w.bare(w.a)
}

func (c *csiNode) opened(ctx context.Context, w *environment) {
	w.mount(w.a)
	w.must(w.a.daemon.WaitStatus(ctx, "1 of 1 pool"), "waiting for the gate to open")
	w.ready(ctx, "fourth")
}

func (c *csiNode) empty(ctx context.Context, w *environment) {
	w.deleteClaim(ctx, "data", "fourth")
	w.purged(ctx, w.a)
	c.unmounted(w)
	c.stop(w)
	w.must(c.registered(ctx, w), "looking whether kubelet has the driver still")
}
