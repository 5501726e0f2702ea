package model

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// adopts has the product adopt, or give up, with these responses, up to the step that has none.
func (p *product) adopts(r root, responses []response) *place {
	p.running, p.self = p.controller(r.setting), selfOf(int(r.node))
	p.plays(standing)
	p.responses, p.at, p.stopped, p.asks = responses, 0, false, op{}
	p.played++
	o := adopt.Options{
		Pool: r.configured(nodePool), Store: storage{p: p, pool: nodePool, host: r.node}, Self: r.self(), API: adoptAPI{p: p},
		Identity: mounts.Identity{Inode: firstInode},
	}
	work := adopt.Run
	if r.adoption == givesUp {
		work = adopt.Undo
	}
	_, _ = work(context.Background(), o) // what it prints is not looked at
	return &place{root: r, responses: responses, asks: p.asks}
}

// adoptAPI is the API that adopt has. What a volume that is no CSI driver's does not need is not
// there.
type adoptAPI struct {
	adopt.API
	p *product
}

// EachVolume is part of adopt.API.
func (a adoptAPI) EachVolume(_ context.Context, visit func(*corev1.PersistentVolume)) error {
	r, err := server{p: a.p}.ask(op{kind: listVolumes})
	if err == nil {
		a.p.visitMade(r.etcd, visit)
	}
	return err
}

// GetVolume is part of adopt.API.
func (a adoptAPI) GetVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return server{p: a.p}.GetVolume(ctx, name)
}

// GetClaim is part of adopt.API.
func (a adoptAPI) GetClaim(
	ctx context.Context, ns, name string,
) (*corev1.PersistentVolumeClaim, error) {
	return server{p: a.p}.GetClaim(ctx, ns, name)
}

// PatchVolume is part of adopt.API.
func (a adoptAPI) PatchVolume(_ context.Context, pv *corev1.PersistentVolume, m plan.MetadataPatch) (*corev1.PersistentVolume, error) {
	to := pv.DeepCopy()
	to.Labels, to.Annotations = patchedKeys(to.Labels, m.Labels), patchedKeys(to.Annotations, m.Annotations)
	to.Finalizers = m.Finalizers
	return server{p: a.p}.object(op{kind: markVolume, at: numberOf(pv.Name), with: volumeOf(to)})
}

func patchedKeys(all map[string]string, change map[string]*string) map[string]string {
	if all == nil {
		all = map[string]string{}
	}
	for key, value := range change {
		if value == nil {
			delete(all, key)
		} else {
			all[key] = *value
		}
	}
	return all
}

// What never changes in this world: no program of the other provisioner runs while adopt does.
func (adoptAPI) EachPod(context.Context, string, string, func(*corev1.Pod)) error    { return nil }
func (adoptAPI) EachLock(context.Context, string, func(*coordinationv1.Lease)) error { return nil }
func (adoptAPI) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	return nodeObject(name), nil
}

// Usable is part of adopt.Store.
func (s storage) Usable(_ context.Context, id mounts.Identity, directory string) error {
	return s.ask(id, "Usable", directory).err
}

// Adopt is part of adopt.Store.
func (s storage) Adopt(_ context.Context, id mounts.Identity, r record.Record) error {
	r.Created = time.Unix(0, 0).UTC() // else it is another one in each run
	return s.askFor(id, call{name: "Adopt", cell: numberOf(r.PV), spec: s.p.tree.disks.spec(volume.Spec{Record: r})}).err
}

// Forget is part of adopt.Store.
func (s storage) Forget(_ context.Context, id mounts.Identity, pv string) error {
	return s.ask(id, "Forget", pv).err
}
