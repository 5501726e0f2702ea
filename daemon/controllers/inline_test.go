package controllers

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// pods are what a host has of inline volumes, and of pods.
type pods struct {
	mounted, pod       bool
	noTable, noKubelet error
}

func (p *pods) Mounted(string) (bool, error) { return p.mounted || p.noTable != nil, p.noTable }
func (p *pods) Pod(string) (bool, error)     { return p.pod || p.noKubelet != nil, p.noKubelet }

// inlinePool is a controller with one pool on a real disk, of which nothing reads the API.
type inlinePool struct {
	*testing.T
	*Controller
	w    *poolWorker
	path string
	host *pods
	bare []string // directories without a record
}

func newInlinePool(t *testing.T) *inlinePool {
	path := filepath.Join(t.TempDir(), "pool")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	p := &inlinePool{T: t, path: path, host: &pods{pod: true}}
	g := gate.New("fast")
	g.Set(hostcheck.Report{Pool: "fast", Path: path, Identity: pool.Identity(t, path), Size: 1 << 40, Available: 1 << 40, Free: 1 << 40}, time.Now())
	p.Controller = New(Options{
		Self: plan.Self{Node: "node-a", Provisioner: "p"}, Gate: g, Log: slog.New(slog.DiscardHandler), Metrics: deafToAll{}, Inline: p.host, Deadline: time.Minute,
		Pools: []PoolParts{{
			Pool:    plan.Pool{Name: "fast", Path: path, Scope: plan.ScopeNode, Source: plan.SourceCSI, Mode: 0o770, UID: 7, GID: 8, Inline: 10 << 20},
			Storage: volume.New(volume.Options{Name: "fast", Path: path}),
		}},
	})
	p.w = p.workers["fast"]
	marker, err := hostcheck.EncodeMarker(hostcheck.NewMarker("fast", time.Now()))
	p.must(err)
	p.must(p.w.Storage.(*volume.Pool).InitMarker(t.Context(), pool.Identity(t, path), marker))
	return p
}

func (p *inlinePool) must(errs ...error) {
	p.Helper()
	if err := errors.Join(errs...); err != nil {
		p.Fatal(err)
	}
}

var (
	firstInline  = "csi-" + strings.Repeat("1", 64)
	secondInline = "csi-" + strings.Repeat("2", 64)
)

func (p *inlinePool) make(handle, size string) error {
	return p.MakeInline(p.Context(), InlineVolume{Driver: "p", Handle: handle, Pool: "fast", Size: size, Namespace: "ns", Pod: "pod", UID: "u"})
}

func (p *inlinePool) sweep() { p.Helper(); p.must(p.sweepInline(p.Context(), p.w)) }

// has wants these inline volumes, with their directories, to be in the pool, and nothing of others.
func (p *inlinePool) has(what string, want ...string) {
	p.Helper()
	tree, err := pool.Tree(p.path)
	if !errors.Is(err, fs.ErrNotExist) {
		p.must(err)
	}
	if extra, missing := pool.Compare(tree, append(pool.Of(want...), p.bare...)); len(extra)+len(missing) > 0 {
		p.Errorf("%s: %q are left and %q are missing", what, extra, missing)
	}
}

// What a pod says of the size is the volume's limit where its pool has limits.
func TestInlineLimit(t *testing.T) {
	p := newInlinePool(t)
	for quota, want := range map[string]volume.Spec{plan.QuotaOff: {}, plan.QuotaCeph: {Quota: 6 << 20}, plan.QuotaProject: {Quota: 6 << 20, Project: true}} {
		p.w.Quota = quota
		if got := p.inlineSpec(p.w, InlineVolume{}, 6<<20); got.Quota != want.Quota || got.Project != want.Project {
			t.Errorf("%s: %d, %t", quota, got.Quota, got.Project)
		}
	}
}

// One is made as a claim's volume would be, with a record of its own kind, and promised. Making it
// again changes nothing.
func TestMakeInline(t *testing.T) {
	p := newInlinePool(t)
	p.must(p.make(firstInline, "6Mi"), p.make(firstInline, "6Mi"))
	info, err := os.Stat(filepath.Join(p.path, firstInline))
	p.must(err)
	h, _ := p.w.disk.Open(t.Context())
	rec, err := h.LookupInline(firstInline)
	p.must(err)
	if info.Mode().Perm() != 0o770 || rec == nil || rec.Kind != record.Inline || rec.ClaimUID != "u" || rec.Namespace != "ns" || rec.Claim != "pod" || rec.Node != "node-a" || rec.Requested != 6<<20 {
		t.Errorf("mode %s, record %+v", info.Mode(), rec)
	}
	if _, own, counted := p.w.disk.Room(); !counted || own != 6<<20 {
		t.Errorf("%d bytes are promised, %t", own, counted)
	}
	if err := p.make(secondInline, "5Mi"); err == nil || !strings.Contains(err.Error(), "of 10.0 MiB for all inline volumes (inline_volumes) 6.0 MiB are promised") {
		t.Error(err)
	}
	p.must(p.make(secondInline, "4Mi"))
	p.has("two are made", firstInline, secondInline)
	p.must(os.Mkdir(filepath.Join(p.path, "csi-"+strings.Repeat("3", 64)), 0o700))
	p.w.Inline = 1 << 30
	if err := p.make("csi-"+strings.Repeat("3", 64), "1Mi"); !errors.Is(err, volume.ErrForeign) {
		t.Errorf("a directory that is not the daemon's: %v", err)
	}
	p.Gate.Set(hostcheck.Report{Pool: "fast", Findings: []hostcheck.Finding{{Reason: "NotMounted", Severity: hostcheck.Close, Message: "/srv/fast is not mounted"}}}, time.Now())
	if err := p.make("csi-"+strings.Repeat("4", 64), "1Mi"); err == nil || err.Error() != "pool fast: /srv/fast is not mounted" {
		t.Error(err)
	}
}

// What was unpublished goes at once, with its files and its promise, while kubelet still has the
// pod; and nothing that is mounted.
func TestEndInline(t *testing.T) {
	p := newInlinePool(t)
	p.must(p.make(firstInline, "1Mi"), p.make(secondInline, "1Mi"))
	p.must(os.WriteFile(filepath.Join(p.path, firstInline, "file"), []byte("x"), 0o600))
	p.host.mounted = true
	p.must(p.EndInline(t.Context(), firstInline))
	p.has("still mounted", firstInline, secondInline)
	p.host.mounted = false
	p.must(p.EndInline(t.Context(), firstInline), p.EndInline(t.Context(), firstInline), p.EndInline(t.Context(), "csi-"+strings.Repeat("5", 64)))
	p.sweep()
	p.has("ended", secondInline)
	if _, own, _ := p.w.disk.Room(); own != 1<<20 {
		t.Errorf("%d bytes are promised", own)
	}
}

// What no pod has is swept, without the API, and nothing that a pod has or may have; nor anything
// without such a record.
func TestSweepInline(t *testing.T) {
	p := newInlinePool(t)
	p.must(p.make(firstInline, "1Mi"))
	p.must(os.WriteFile(filepath.Join(p.path, firstInline, "file"), []byte("x"), 0o600))
	h, _ := p.w.disk.Open(t.Context())
	claims := volume.Spec{Mode: 0o700, Record: record.Record{PV: "csi-like", Directory: "csi-like", Namespace: "ns", Claim: "c", ClaimUID: "u", Node: "node-a", Requested: 1}}
	p.must(h.Create(claims))
	p.bare = []string{secondInline} // of kubevirt's driver
	p.must(os.Mkdir(filepath.Join(p.path, secondInline), 0o700))
	keeps := func(what string) {
		t.Helper()
		p.has(what, firstInline, "csi-like")
	}
	p.sweep()
	keeps("its pod starts")
	*p.host = pods{mounted: true}
	p.sweep()
	keeps("mounted")
	for _, wrong := range []*pods{{noTable: errors.New("no table")}, {noKubelet: errors.New("no kubelet")}} {
		*p.host = *wrong
		if err := p.sweepInline(t.Context(), p.w); err == nil {
			t.Error("a host that cannot be looked at is no error")
		}
		keeps("not known")
	}
	*p.host = pods{}
	p.sweep()
	p.has("its pod is gone", "csi-like")
	p.sweep()
}

// What a crash left at each step is removed by the next pass.
func TestSweepInlineGoesOn(t *testing.T) {
	for name, step := range map[string]func(context.Context, *inlinePool) error{
		"trashed": func(ctx context.Context, p *inlinePool) error {
			h, _ := p.w.disk.Open(ctx)
			return h.Trash(firstInline)
		},
		"discarded": func(ctx context.Context, p *inlinePool) error {
			h, _ := p.w.disk.Open(ctx)
			return errors.Join(h.Trash(firstInline), h.Discard(firstInline))
		},
		"its directory was removed": func(_ context.Context, p *inlinePool) error { return os.RemoveAll(filepath.Join(p.path, firstInline)) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newInlinePool(t)
			p.must(p.make(firstInline, "1Mi"), step(t.Context(), p))
			*p.host = pods{}
			p.sweep()
			p.has(name)
		})
	}
}

// A volume whose removal was begun is put back for its pod, which was started again, as long as it
// is whole.
func TestMakeInlineAgain(t *testing.T) {
	p := newInlinePool(t)
	p.must(p.make(firstInline, "1Mi"), os.WriteFile(filepath.Join(p.path, firstInline, "file"), []byte("x"), 0o600))
	h, _ := p.w.disk.Open(t.Context())
	p.must(h.Trash(firstInline), p.make(firstInline, "1Mi"))
	p.sweep()
	p.has("put back", firstInline)
	p.must(h.Trash(firstInline), h.Discard(firstInline))
	if err := p.make(firstInline, "1Mi"); !errors.Is(err, volume.ErrPlace) {
		t.Errorf("while it is emptied: %v", err)
	}
	p.sweep()
	p.must(p.make(firstInline, "1Mi"))
	p.has("made anew", firstInline)
}
