package kube

import (
	"context"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// Followed has the objects of an overview from watches, until its context ends. What is not watched,
// or may not be, is listed at each call.
type Followed struct {
	leases   *followed[*coordinationv1.Lease]
	nodes    *followed[*corev1.Node]
	volumes  *followed[*corev1.PersistentVolume]
	contents *followed[*snapshotapi.Content]
}

// Follow begins to watch what is read, once it is read. changed is called at each change.
func (c *Client) Follow(ctx context.Context, changed func()) *Followed {
	ours := selection{namespace: c.options.Namespace}
	return &Followed{
		leases:   follow(ctx, leaseKind.source(c, ours), c.EachLease, changed),
		nodes:    follow(ctx, nodeKind.source(c, selection{}), c.EachNode, changed),
		volumes:  follow(ctx, volumeKind.source(c, selection{}), c.EachVolume, changed),
		contents: follow(ctx, contentKind.source(c, selection{}), c.EachContent, changed),
	}
}

// followed is one resource of Followed.
type followed[T Object] struct {
	begin func() // to watch
	held  *Informer[T]
	list  func(context.Context, func(T)) error
}

func follow[T Object](ctx context.Context, from *source, list func(context.Context, func(T)) error,
	changed func()) *followed[T] {
	held := NewInformer(from, nil, func(_, _ T) { changed() })
	return &followed[T]{sync.OnceFunc(func() { go RunOptional(ctx, held) }), held, list}
}

func (f *followed[T]) each(ctx context.Context, visit func(T)) error {
	f.begin()
	if !f.held.Watched() {
		return f.list(ctx, visit)
	}
	for _, one := range f.held.List() {
		visit(one)
	}
	return nil
}

// EachLease visits the Leases in the daemons' namespace.
func (f *Followed) EachLease(ctx context.Context, visit func(*coordinationv1.Lease)) error {
	return f.leases.each(ctx, visit)
}

// EachNode visits all nodes.
func (f *Followed) EachNode(ctx context.Context, visit func(*corev1.Node)) error {
	return f.nodes.each(ctx, visit)
}

// EachVolume visits all volume objects of the cluster.
func (f *Followed) EachVolume(ctx context.Context,
	visit func(*corev1.PersistentVolume)) error {
	return f.volumes.each(ctx, visit)
}

// EachContent visits all VolumeSnapshotContents of the cluster.
func (f *Followed) EachContent(ctx context.Context, visit func(*snapshotapi.Content)) error {
	return f.contents.each(ctx, visit)
}
