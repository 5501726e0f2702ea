package controllers

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// library is a pool whose marker names no node, and whose records take longer to read than a check
// may.
type library struct {
	mount
	took  time.Duration
	reads atomic.Int32
	mark  atomic.Pointer[hostcheck.Marker]
}

func (l *library) List(context.Context, mounts.Identity) (volume.Inventory, error) {
	l.reads.Add(1)
	time.Sleep(l.took)
	return volume.Inventory{}, nil
}

func (l *library) Probe(ctx context.Context) hostcheck.Report {
	r := l.mount.Probe(ctx)
	r.Mark = *l.mark.Load()
	return r
}

func (l *library) Remark(_ context.Context, _ mounts.Identity, m hostcheck.Marker) error {
	l.mark.Store(&m)
	return nil
}

// The census of a pool goes on while the pool is closed for it, and opens the pool when it ends.
// One whose mount goes meanwhile is taken again.
func TestPoolOpensAfterALongCensus(t *testing.T) {
	for name, c := range map[string]struct {
		away  bool  // the mount goes during the census
		reads int32 // the one that ends with the gate that closes for it, the census, and the comparison of the open pool
	}{
		"a slow disk":                 {false, 3},
		"a mount that goes and comes": {true, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, changes := &library{took: 7 * time.Second}, make(chan struct{}, 1)
			l.mark.Store(&hostcheck.Marker{})
			o := flappingOptions(&l.mount, &audience{}, changes, "c", storagev1.VolumeBindingImmediate, many{})
			o.Pools[0].Storage, o.Pools[0].Probe, o.Pools[0].Scope = l, l, "node"
			ctl := New(o)
			ctx, cancel := context.WithCancel(t.Context())
			checked, started, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
			go func() { ctl.Run(ctx, checked, started); close(ended) }()
			<-checked
			go func() { ctl.Identify(ctx); close(started) }()
			time.Sleep(5500 * time.Millisecond) // between two checks, each of which waits a second for the census
			if c.away {
				l.set("/srv/fast is not a mount point")
				changes <- struct{}{}
				time.Sleep(2 * time.Second) // longer than a check
				l.set("")
				changes <- struct{}{}
			}
			if ctl.Gate.State("fast").Open() {
				t.Errorf("%s: the pool is open before its census ended", name)
			}
			time.Sleep(12 * time.Second)
			reads := l.reads.Load()
			if s := ctl.Gate.State("fast"); !s.Open() || reads != c.reads {
				t.Errorf("%s: open: %t, the records were read %d times; %v", name, s.Open(), reads, s.Report.Findings)
			}
			cancel()
			<-ended
			time.Sleep(time.Minute) // for the reads that were left behind
		})
	}
}
