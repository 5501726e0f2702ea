package controllers

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// lingering is an API server and the watch of it, with a volume object that was let go and that
// pv-protection holds.
type lingering struct {
	api
	mu sync.Mutex
	pv *corev1.PersistentVolume // nil: it is gone

	watched *corev1.PersistentVolume // what a watch has that is late; nil: it is not
}

func (l *lingering) GetVolume(context.Context, string) (*corev1.PersistentVolume, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pv, nil
}

func (l *lingering) Get(string) (*corev1.PersistentVolume, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watched != nil {
		return l.watched, true
	}
	return l.pv, l.pv != nil
}

func (l *lingering) List() []*corev1.PersistentVolume {
	if pv, is := l.Get(""); is {
		return []*corev1.PersistentVolume{pv}
	}
	return nil
}

func (*lingering) Watched() bool { return true }

// gone has the object gone, and brings a controller what its watch has of that. A watch that was
// late begins anew, with a list of what there is.
func (l *lingering) gone(c *Controller) {
	l.mu.Lock()
	late, last := l.watched, l.pv
	l.watched = nil
	l.mu.Unlock()
	if late != nil {
		c.VolumeChanged(late, last)
	}
	l.mu.Lock()
	l.pv = nil
	l.mu.Unlock()
	c.VolumeChanged(last, nil)
}

// trashed is a mount with one record, whose files go.
type trashed struct {
	mount
	mu     sync.Mutex
	purged []string
}

func (d *trashed) Purge(_ context.Context, _ mounts.Identity, pv string) (volume.Purged, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.records[0].Place == record.InTrash {
		return volume.Purged{}, volume.ErrPlace
	}
	d.purged = append(d.purged, pv)
	return volume.Purged{Forgotten: true}, nil
}

func (d *trashed) Discard(context.Context, mounts.Identity, string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records = []record.Record{{PV: d.records[0].PV, ClaimUID: d.records[0].ClaimUID, Place: record.Emptying}}
	return nil
}

func (d *trashed) emptied() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.purged, "pvc-a")
}

func leavingVolume() *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-a", DeletionTimestamp: &metav1.Time{}, Finalizers: []string{"kubernetes.io/pv-protection"},
		Labels:      map[string]string{plan.NodeLabel: "node-a", plan.PoolLabel: "fast"},
		Annotations: map[string]string{plan.ProvisionedBy: plan.DefaultProvisioner}}}
	pv.Spec.PersistentVolumeReclaimPolicy, pv.Status.Phase = corev1.PersistentVolumeReclaimDelete, corev1.VolumeReleased
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "c", UID: "a"}
	return pv
}

// A pool goes away at any moment after the daemon let a volume object go, and is back before
// pv-protection has let go of it, too: the comparison of records that follows passes over the
// object, and nothing is told when it is gone. The files go within the minute all the same. They
// stayed for ten.
func TestPoolGoesAwayWhileTheObjectLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		place record.Place
		queue func(*poolWorker) queue // that has the volume when the pool goes away; nil: another process let the object go
		letGo bool
		late  bool
	}{
		"before the trash is told":             {record.InTrash, volumesOf, true, false},
		"before the files go":                  {record.Emptying, purgesOf, false, false},
		"the same, and the watch is late":      {record.Emptying, purgesOf, false, true},
		"and the daemon ends":                  {record.Emptying, nil, false, false},
		"half archived":                        {record.InArchive, purgesOf, false, false},
		"half archived, and the daemon ends":   {record.InArchive, nil, false, false},
		"half archived, and the watch is late": {record.InArchive, purgesOf, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, disk, changes := &lingering{pv: leavingVolume()}, &trashed{}, make(chan struct{}, 1)
				disk.records = []record.Record{{PV: "pvc-a", ClaimUID: "a", Directory: "pvc-a", Place: c.place}}
				disk.missing = "/srv/fast is not a mount point"
				o := flappingOptions(&disk.mount, &audience{}, changes, "c", "", many{})
				o.Pools[0].Storage, o.API, o.Listers.Volumes = disk, server, server
				ctl := New(o)
				w := ctl.workers["fast"]
				if c.late {
					server.watched = server.pv.DeepCopy()
					server.watched.Finalizers, server.watched.DeletionTimestamp = append(server.pv.Finalizers, plan.Finalizer), nil
					server.watched.Status.Phase = corev1.VolumePending // one that is further on is looked at when the pool opens
				}
				if c.letGo {
					ctl.begun.Begin(letGoKey("pvc-a"))
				}
				if c.queue != nil {
					c.queue(w).Add(item{name: "pvc-a"})
				}
				ctx, end := context.WithCancel(t.Context())
				started, ended := make(chan struct{}), make(chan struct{})
				close(started)
				go func() { ctl.Run(ctx, make(chan struct{}), started); close(ended) }()
				synctest.Wait()
				disk.set("")
				changes <- struct{}{}
				synctest.Wait()
				server.gone(ctl)
				time.Sleep(time.Minute)
				if !disk.emptied() {
					t.Error("the files are there after a minute")
				}
				end()
				<-ended
			})
		})
	}
}

func volumesOf(w *poolWorker) queue { return w.volumes }
func purgesOf(w *poolWorker) queue  { return w.purges }

// An object that is kept after all has nothing of its volume purged, and one that still has the
// daemon's finalizer neither.
func TestOnlyWhatLeavesIsPurged(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolume){
		"retained": func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		},
		"bound again":           func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound },
		"not deleted":           func(v *corev1.PersistentVolume) { v.DeletionTimestamp = nil },
		"with its finalizer":    func(v *corev1.PersistentVolume) { v.Finalizers = append(v.Finalizers, plan.Finalizer) },
		"of another claim":      func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "b" },
		"which is to be purged": func(*corev1.PersistentVolume) {},
	} {
		server := &lingering{pv: leavingVolume()}
		change(server.pv)
		c, w := stand(&api{}, &shelf{records: []record.Record{{PV: "pvc-a", ClaimUID: "a", Place: record.Emptying}}})
		c.API, c.Listers.Volumes = server, server
		if err := c.recheck(t.Context(), w); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, want := w.purges.Len() > 0, name == "which is to be purged"; got != want {
			t.Errorf("%s: purged: %t", name, got)
		}
	}
}

// A shared pool goes away from the daemon that let an object go, before the trash is told, and
// another one works in it when it is back. That one cannot know who let the object go, and keeps
// the directory: this one tells the trash.
func TestLetGoInASharedPoolThatWasAway(t *testing.T) {
	c, w, api, drawer := fenced()
	api.volume, drawer.record.Place = nil, record.InTrash
	c.begun.Begin(letGoKey("pvc-u"))
	open := c.Gate.State("fast").Report
	c.Gate.Set(hostcheck.Report{Pool: "fast", Findings: []hostcheck.Finding{{Reason: hostcheck.ReasonNotMounted, Severity: hostcheck.Close}}}, time.Now())
	if after, err := c.volume(t.Context(), w, "pvc-u"); err != nil || after <= 0 || after > time.Minute {
		t.Errorf("while the pool is closed: again after %s, %v", after, err)
	}
	lost["it was asleep for longer than it trusts"](api)
	c.Gate.Set(open, time.Now())
	if err := c.recheck(t.Context(), w); err != nil || drawer.record.Place != record.InTrash {
		t.Errorf("all records: %v, the directory is %s", err, drawer.record.Place)
	}
	if _, err := c.volume(t.Context(), w, "pvc-u"); err != nil || drawer.record.Place != record.Emptying {
		t.Errorf("%v, the directory is %s", err, drawer.record.Place)
	}
}
