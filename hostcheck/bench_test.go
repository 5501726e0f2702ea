package hostcheck

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// prepare writes a marker as `prepare` does.
func prepare(t testing.TB, dir, pool string) Marker {
	t.Helper()
	m := NewMarker(pool, time.Now())
	data, err := EncodeMarker(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, PrivateDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, MarkerPath), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

func expectPool(dir string) Expect {
	return Expect{Pool: "fast", Path: dir, MountPoint: dir, RequireMount: true, Immutable: ImmutableRequire}
}

func benchPool(b *testing.B) *Prober {
	dir := hosttest.PoolMount(b, hosttest.Mkfs(b, "ext4", 64))
	prepare(b, dir, "fast")
	p := NewProber(expectPool(dir))
	if r := p.Probe(context.Background()); !r.Open() {
		b.Fatalf("%+v", r)
	}
	return p
}

// BenchmarkProbe is what a look costs while nothing happens.
func BenchmarkProbe(b *testing.B) {
	p := benchPool(b)
	for b.Loop() {
		p.Probe(context.Background())
	}
}

// BenchmarkProbeExpensive is what a look costs that also looks under the mount and at the device.
func BenchmarkProbeExpensive(b *testing.B) {
	p := benchPool(b)
	for b.Loop() {
		p.look.expensive = expensiveFacts{}
		p.Probe(context.Background())
	}
}
