package controllers

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// walked is a pool's storage that notes which volumes are read, and may hang in that.
type walked struct {
	disk.Storage
	mu   sync.Mutex
	read []string
	hang chan struct{} // nil: it does not
}

func (s *walked) Measure(ctx context.Context, id mounts.Identity, pv string) (
	usage.Measured, error) {
	s.mu.Lock()
	s.read = append(s.read, pv)
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return s.Storage.Measure(ctx, id, pv)
}

func (s *walked) reads() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.read, " ")
}

// directories is a controller with three pools of two volumes: "fast" and "other", and "limited",
// which has quotas.
type directories struct {
	*testing.T
	*Controller
	gate    *gate.Gate
	storage map[string]*walked
	told    map[string]usage.Pool
}

// hearer is the metrics.
type hearer struct {
	deafToAll
	told map[string]usage.Pool
}

func (h hearer) Usage(pool string, takes usage.Pool) { h.told[pool] = takes }

func measuring(t *testing.T) *directories {
	d := &directories{T: t, gate: gate.New("fast", "other", "limited"),
		storage: map[string]*walked{}, told: map[string]usage.Pool{}}
	o := Options{
		Self: plan.Self{Node: "node-a"}, Gate: d.gate, Log: slog.New(slog.DiscardHandler),
		Metrics: hearer{told: d.told}, Deadline: time.Minute, Measure: true,
	}
	for _, name := range []string{"fast", "other", "limited"} {
		path := filepath.Join(t.TempDir(), name)
		d.must(os.Mkdir(path, 0o700))
		d.storage[name] = &walked{Storage: d.store(name, path)}
		p := PoolParts{Pool: plan.Pool{Name: name, Path: path}, Storage: d.storage[name]}
		if name == "limited" {
			p.Quota = plan.QuotaProject
		}
		o.Pools = append(o.Pools, p)
	}
	d.Controller = New(o)
	t.Cleanup(func() {
		for _, w := range d.workers {
			w.claims.ShutDown()
			w.volumes.ShutDown()
			w.purges.ShutDown()
		}
	})
	for _, p := range o.Pools {
		d.set(p.Name, 0)
		inventory, err := p.Storage.List(t.Context(), pool.Identity(t, p.Path))
		d.must(err)
		d.workers[p.Name].Figures.Expect(inventory.Volumes)
	}
	return d
}

// store is a pool's directory with two volumes, of which the second has 1 MiB more.
func (d *directories) store(name, path string) *volume.Pool {
	d.Helper()
	s := volume.New(volume.Options{Name: name, Path: path})
	marker, err := hostcheck.EncodeMarker(hostcheck.NewMarker(name, time.Now()))
	d.must(err)
	id := pool.Identity(d.T, path)
	d.must(s.InitMarker(d.Context(), id, marker))
	for _, pv := range []string{name + "-1", name + "-2"} {
		r := record.Record{PV: pv, Namespace: "ns", Claim: "c", ClaimUID: "u", Directory: pv}
		_, err := s.Create(d.Context(), id, volume.Spec{Record: r, Mode: 0o700})
		d.must(err)
	}
	file := filepath.Join(path, name+"-2", "file")
	d.must(os.WriteFile(file, []byte(strings.Repeat("data", 1<<18)), 0o600))
	return s
}

func (d *directories) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// set has a pool looked at, which takes that long, and finds it closed if there is a reason.
func (d *directories) set(name string, took time.Duration, reasons ...string) {
	d.Helper()
	r := hostcheck.Report{Pool: name, Size: 1 << 40, Available: 1 << 40, Took: took}
	r.Identity = pool.Identity(d.T, d.workers[name].Path)
	for _, reason := range reasons {
		f := hostcheck.Finding{Reason: reason, Severity: hostcheck.Close}
		r.Findings = append(r.Findings, f)
	}
	if _, after := d.gate.Set(r, time.Now()); !after.Removable() {
		d.workers[name].disk.Close()
	}
}

// after waits, and compares what was read of "fast" since the start.
func (d *directories) after(wait time.Duration, want string) {
	d.Helper()
	time.Sleep(wait)
	synctest.Wait()
	if got := d.storage["fast"].reads(); got != want {
		d.Errorf("read were %q, want %q", got, want)
	}
}

func (d *directories) run() (stop func()) {
	ctx, cancel := context.WithCancel(d.Context())
	ended := make(chan struct{})
	go func() { d.measureDirectories(ctx); close(ended) }()
	return func() { cancel(); <-ended }
}

// Each volume without a quota is read once an hour, whose pool is open and responds. What it takes
// is told with its time, and not while the pool is closed.
func TestMeasureDirectories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := measuring(t)
		defer d.run()()
		d.after(time.Minute, "fast-1 fast-2")
		first := d.told["fast"]
		if first.Oldest.IsZero() || first.Estimate || first.Used < 1<<20 || first.Used > 2<<20 ||
			len(first.Volumes) != 2 || first.Measured["fast-2"].Bytes < 1<<20 {
			t.Errorf("told was %+v", first)
		}
		if age := time.Since(first.Oldest); age < 0 || age > time.Minute {
			t.Errorf("it is %s old", age)
		}
		if got := d.storage["limited"].reads(); got != "" {
			t.Errorf("with quotas: %q", got)
		}
		d.after(58*time.Minute, "fast-1 fast-2")
		d.after(2*time.Minute, "fast-1 fast-2 fast-1 fast-2")
		d.set("fast", d.Options.Deadline/4)
		d.after(5*time.Hour, "fast-1 fast-2 fast-1 fast-2")
		if got := strings.Fields(d.storage["other"].reads()); len(got) < 10 {
			t.Errorf("beside a slow pool: %q", got)
		}
		d.set("fast", d.Options.Deadline/4-1)
		d.after(time.Minute, "fast-1 fast-2 fast-1 fast-2 fast-1 fast-2")
		d.set("fast", 0, "NotMounted")
		d.after(5*time.Hour, "fast-1 fast-2 fast-1 fast-2 fast-1 fast-2")
		if told := d.told["fast"]; told.Measured != nil || d.Takes("fast").Used != 0 {
			t.Errorf("of a closed pool: %+v", told)
		}
		d.set("fast", 0)
		d.after(time.Minute, "fast-1 fast-2 fast-1 fast-2 fast-1 fast-2 fast-1 fast-2")
		if told := d.told["fast"]; told.Used < 1<<20 {
			t.Errorf("once it is open: %+v", told)
		}
	})
}

// What a volume took is told no more once the pool's records are read without it.
func TestMeasuredVolumeGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := measuring(t)
		defer d.run()()
		d.after(time.Minute, "fast-1 fast-2")
		left, err := d.storage["fast"].List(t.Context(), d.gate.State("fast").Identity())
		d.must(err)
		d.expectDirectories(d.workers["fast"], left.Volumes[:1])
		if told := d.told["fast"]; len(told.Volumes) != 1 || told.Used >= 1<<20 {
			t.Errorf("told is %+v", told)
		}
	})
}

// A call that hangs keeps neither the other pools waiting, once its pool is closed, nor the end.
// The volume has its next turn an hour later, and not with the pool's opening: it may hang again.
func TestMeasureHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := measuring(t)
		hang := make(chan struct{})
		defer close(hang)
		d.storage["fast"].hang = hang
		stop := d.run()
		d.after(time.Minute, "fast-1")
		d.set("fast", 0, "NotAnswering")
		d.after(time.Minute, "fast-1")
		if got := d.storage["other"].reads(); got != "other-1 other-2" {
			t.Errorf("of the other pool: %q", got)
		}
		d.set("fast", 0)
		d.after(time.Minute, "fast-1 fast-2")
		d.after(time.Hour, "fast-1 fast-2 fast-1 fast-2")
		if got := d.storage["other"].reads(); got != "other-1 other-2 other-1 other-2" {
			t.Errorf("an hour later, of the other pool: %q", got)
		}
		stop()
	})
}

// A call that gets no response while its pool stays open is left behind, too.
func TestMeasureHangsInAnOpenPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := measuring(t)
		hang := make(chan struct{})
		defer close(hang)
		d.storage["fast"].hang = hang
		defer d.run()()
		d.after(5*time.Minute, "fast-1 fast-2")
		if got := d.storage["other"].reads(); got != "other-1 other-2" {
			t.Errorf("of the other pool: %q", got)
		}
	})
}

// The end waits for no call, and for no pause.
func TestMeasureEnds(t *testing.T) {
	for name, hangs := range map[string]bool{"in a call": true, "in a pause": false} {
		synctest.Test(t, func(t *testing.T) {
			d := measuring(t)
			d.set("other", 0, "NotMounted")
			hang := make(chan struct{})
			defer close(hang)
			if hangs {
				d.storage["fast"].hang = hang
			}
			stop := d.run()
			d.after(time.Millisecond, "fast-1")
			began := time.Now()
			if stop(); time.Since(began) > 0 {
				t.Errorf("%s: the end took %s", name, time.Since(began))
			}
			if told := d.told["fast"]; told.Measured != nil {
				t.Errorf("%s: after the end: %+v", name, told)
			}
		})
	}
}

// While another call of the pool takes long, nothing is read.
func TestMeasureBesideASlowCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := measuring(t)
		hang := make(chan struct{})
		d.storage["fast"].hang = hang
		h, _ := d.workers["fast"].disk.Open(t.Context())
		go h.Measure("another")
		d.after(time.Minute, "another")
		d.storage["fast"].hang = nil
		defer d.run()()
		d.after(time.Minute, "another")
		close(hang)
		d.after(time.Minute, "another fast-1 fast-2")
	})
}
