package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/ownership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// listers are what the watches brought.
func (p *product) listers(self plan.Self, single bool) controllers.Listers {
	return controllers.Listers{Claims: claims{p, self, single}, Classes: few[*storagev1.StorageClass]{
		classNames[nodePool]: classObject(nodePool), classNames[sharedPool]: classObject(sharedPool), classNames[everyPool]: classObject(everyPool),
	}, Volumes: volumes{p}, Nodes: few[*corev1.Node]{self.Node: nodeObject(self.Node)}}
}

type claims struct {
	p      *product
	self   plan.Self
	single bool
}

// Get is part of controllers.Lister. What the product's filter refuses the informer does not hold.
func (l claims) Get(key string) (*corev1.PersistentVolumeClaim, bool) {
	for slot := range slots {
		if key != namespace+"/"+slotName(slot) {
			continue
		}
		a, _ := l.p.ask(op{kind: cachedClaim, at: slot})
		if !a.claim.exists {
			return nil, false
		}
		object := claimObject(slot, a.claim)
		if l.p.root.pods && plan.NodeOpen(object) {
			return object, true
		}
		common := a.claim.in != nodePool && !(a.claim.in == sharedPool && l.single)
		return object, l.self.KeepClaim(object) || common && l.self.KeepClaimOfAll(object) || l.self.KeepGrowing(object) || l.self.KeepGrowingOfAll(object, common)
	}
	return nil, false
}

// List is part of controllers.Lister. It decides only what is looked at next.
func (l claims) List() []*corev1.PersistentVolumeClaim { return nil }

// Watched is part of controllers.WatchedLister.
func (l claims) Watched() bool {
	a, _ := l.p.ask(op{kind: cachedWatched})
	return a.yes
}

type volumes struct{ p *product }

// Get is part of controllers.Lister.
func (l volumes) Get(name string) (*corev1.PersistentVolume, bool) {
	cell := numberOf(name)
	if cell < 0 {
		return nil, false
	}
	a, _ := l.p.ask(op{kind: cachedVolume, at: cell})
	if !a.volume.exists {
		return nil, false
	}
	return volumeObject(cell, a.volume), true
}

// List is part of controllers.Lister. Where claims are not those of pods it decides only what is
// looked at next.
func (l volumes) List() (all []*corev1.PersistentVolume) {
	for cell := range cells {
		if l.p.root.pods {
			if v, exists := l.Get(nameOf(cell)); exists {
				all = append(all, v)
			}
		}
	}
	return all
}

// few is a lister of objects that never change, by name.
type few[T any] map[string]T

func (f few[T]) Get(key string) (T, bool) { object, is := f[key]; return object, is }
func (f few[T]) List() []T                { return slices.Collect(maps.Values(f)) }
func (f few[T]) Watched() bool            { return true }

// server is the API. What no step of this world needs is not there.
type server struct {
	controllers.API
	p *product
}

// ask is product.ask, with the fault as an error.
func (s server) ask(o op) (response, error) {
	a, ok := s.p.ask(o)
	switch {
	case !ok:
		return a, errStopped
	case a.fault == conflict:
		return a, apierrors.NewConflict(corev1.Resource("persistentvolumes"), nameOf(o.at), errors.New("it was changed"))
	case a.fault == refused:
		return a, apierrors.NewUnauthorized("the token has ended")
	case a.fault == lost:
		return a, errors.New("no response")
	}
	return a, nil
}

func (s server) GetClaim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	for slot := range slots {
		if name == slotName(slot) {
			a, err := s.ask(op{kind: getClaim, at: slot})
			if err != nil || !a.claim.exists {
				return nil, err
			}
			return claimObject(slot, a.claim), nil
		}
	}
	return nil, fmt.Errorf("no claim %q in this world", name)
}

func (s server) GetVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return s.object(op{kind: getVolume, at: numberOf(name)})
}

// object asks for something that a volume object, or none, is the response to.
func (s server) object(o op) (*corev1.PersistentVolume, error) {
	a, err := s.ask(o)
	if err != nil || !a.volume.exists {
		return nil, err
	}
	return volumeObject(o.at, a.volume), nil
}

// ReadLease is part of leadership.Leases. It is asked by Fence alone.
func (s server) ReadLease(context.Context, string) (*leadership.Lease, error) {
	a, err := s.ask(op{kind: readLease})
	if err != nil || !a.yes {
		return nil, err
	}
	return fenced(s.p.self), nil
}

func (s server) EachVolume(_ context.Context, visit func(*corev1.PersistentVolume)) error {
	a, err := s.ask(op{kind: eachVolume})
	if err != nil {
		return err
	}
	s.p.visitMade(a.etcd, visit)
	s.visitKept(a.etcd, visit)
	return nil
}

// visitMade visits the volumes that were made for claims.
func (p *product) visitMade(id uint32, visit func(*corev1.PersistentVolume)) {
	for cell, v := range p.tree.etcds.value(id).volumes {
		if v.exists {
			visit(volumeObject(cell, v))
		}
	}
}

func (s server) CreateVolume(_ context.Context, pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	return s.object(op{kind: createVolume, at: numberOf(pv.Name), with: volumeOf(pv)})
}

func (s server) ReleaseFinalizer(_ context.Context, pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	return s.object(op{kind: releaseVolume, at: numberOf(pv.Name), with: volumeOf(pv)})
}

func (s server) HoldVolume(
	_ context.Context, pv *corev1.PersistentVolume,
) (*corev1.PersistentVolume, error) {
	return s.object(op{kind: holdVolume, at: numberOf(pv.Name), with: volumeOf(pv)})
}

func (s server) DeleteVolume(_ context.Context, pv *corev1.PersistentVolume) error {
	_, err := s.ask(op{kind: deleteVolume, at: numberOf(pv.Name), with: volumeOf(pv)})
	return err
}

// ClusterID is part of controllers.API.
func (s server) ClusterID(context.Context) (string, error) {
	if s.p.begins {
		return clusterOf(s.p.elsewhere), nil
	}
	a, err := s.ask(op{kind: cachedCluster})
	if err != nil {
		return "", err
	}
	s.p.elsewhere = a.yes
	return clusterOf(a.yes), nil
}

// NodeCount: a claim of a pod can be given back to another node.
func (s server) NodeCount(context.Context) (int, error) {
	if s.p.root.pods {
		return 2, nil
	}
	return 1, nil
}

// What never changes in this world.
func (server) NodeExists(context.Context, string) (bool, error) { return true, nil }
func (server) ClassProvisioner(context.Context, string) (string, error) {
	return plan.DefaultProvisioner, nil
}
func (server) EventLastWritten(context.Context, corev1.ObjectReference, string, string, string) (time.Time, string, error) {
	return time.Time{}, "", nil
}

// mute hears what the product says.
type mute struct{ controllers.Metrics }

func (mute) Event(corev1.ObjectReference, string, string, string) {}
func (mute) Claim(string, string, time.Duration)                  {}
func (mute) Volume(string, string)                                {}
func (mute) Part(string, string)                                  {}
func (mute) Expansion(string, string)                             {}
func (mute) Snapshot(string)                                      {}
func (mute) Pool(gate.State)                                      {}
func (mute) Usage(string, usage.Pool)                             {}

// probe finds a pool in order, for the controllers' beginning. The model sets the gate itself.
type probe struct {
	p       *product
	pool    int
	setting setting
}

func (of probe) Probe(context.Context) hostcheck.Report {
	r := report(of.pool, true, 0, 0)
	r.Mark.Cluster = clusterOf(of.p.elsewhere) // else it is asked for in the background
	r.Mark = ownership.Completed(r.Mark, of.setting.configured(of.pool), nodeName(int(of.setting.node)), "")
	return r
}

func opened(hostcheck.Marker) error { return nil }
