package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/prober"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// A pool's life as its operator sees it, from the first prepare to another disk in its place.
func TestPoolStory(t *testing.T) {
	h := newHost(t, minimal)
	defer hosttest.SetImmutable(t, h.path("pool"), false)
	s := &story{h: h}
	s.call("check")
	s.call("prepare", "fast")
	s.call("check", "fast")
	s.says("mount")
	image := hosttest.Mkfs(t, "ext4", 64)
	image.Mount(t, h.path("pool"))
	s.call("check")
	s.call("prepare", "fast")
	s.call("prepare", "fast")
	s.call("check")
	s.says("chmod 0755")
	h.must(os.Chmod(h.path("pool"), 0o755))
	s.call("check")
	s.says("umount; mount another")
	hosttest.Unmount(t, h.path("pool"))
	hosttest.Mkfs(t, "ext4", 64).Mount(t, h.path("pool"))
	s.call("check")
	s.call("prepare", "fast")
	s.call("prepare", "fast", "--replace")
	s.says("a damaged memory")
	h.write("state/pools/fast.json", "{")
	s.call("check")
	s.call("prepare", "fast")
	golden(t, "pool-story", s.b.String())
}

// Of several pools, each is judged alone, and one that is not good decides the exit code.
func TestSeveralPools(t *testing.T) {
	h := newHost(t, "node = 'node-a'\n[pool.plain]\npath = 'BASE/plain'\nrequire_mount = false\n[pool.missing]\npath = 'BASE/missing'\n"+
		"[pool.unfit]\npath = 'BASE/unfit'\nfilesystem = 'xfs'\n")
	h.must(os.Mkdir(h.path("unfit"), 0o700))
	hosttest.Mkfs(t, "ext4", 64).Mount(t, h.path("unfit"))
	s := &story{h: h}
	s.call("prepare", "plain")
	s.call("prepare", "unfit")
	defer func() {
		hosttest.Unmount(t, h.path("unfit"))
		hosttest.SetImmutable(t, h.path("unfit"), false)
	}()
	s.call("check")
	s.call("check", "plain")
	s.call("check", "missing", "--json")
	golden(t, "several-pools", s.b.String())
}

// A pool that is full is told from one whose storage is away, whatever is found first: kubelet
// waits for the second only.
func TestFullIsNotMissing(t *testing.T) {
	h := newHost(t, "node = 'node-a'\n[pool.full]\npath = 'BASE/full'\nrequire_mount = false\nreserve = '8000Pi'\n"+
		"[pool.missing]\npath = 'BASE/missing'\n")
	s := &story{h: h}
	h.call("prepare", "full")
	for _, c := range []struct {
		args []string
		exit string
	}{
		{[]string{"check", "full"}, "exit 3\n"},
		{[]string{"check", "full", "--json"}, "exit 3\n"},
		{[]string{"check"}, "exit 1\n"},
		{[]string{"check", "missing"}, "exit 1\n"},
	} {
		if got := h.call(c.args...); !strings.HasSuffix(got, c.exit) {
			t.Errorf("%q: %s", c.args, got)
		}
	}
	s.call("check", "full")
	golden(t, "full", s.b.String())
}

// The refusals of prepare, in the words that the operator reads.
func TestPrepareRefusals(t *testing.T) {
	for name, make := range map[string]func(h *host){
		"symlink":   func(h *host) { h.must(os.Symlink("/tmp", h.path("pool"))) },
		"file":      func(h *host) { h.write("pool", "") },
		"not-empty": func(h *host) { h.write("pool/data", "") },
		"no-parent": func(h *host) {
			h.write("config.toml", strings.ReplaceAll(minimal, "BASE/pool", h.base+"/no/pool"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, minimal)
			make(h)
			s := &story{h: h}
			s.call("prepare", "fast")
			golden(t, "prepare-"+name, s.b.String())
		})
	}
}

// Where a directory above the mount point is a link, as /srv is to /var/srv on systems that are
// images, check and prepare say the path without it, and follow no second link.
func TestRealPath(t *testing.T) {
	for target, want := range map[string]string{
		"var/srv": "/var/srv/fast", "/var/srv": "/var/srv/fast",
		"../srv": "/srv/fast", "again": "/again/fast",
	} {
		h := newHost(t, strings.ReplaceAll(minimal, "BASE/pool", "BASE/srv/fast"))
		h.must(os.Symlink("nowhere", h.path("again")))
		if rest, absolute := strings.CutPrefix(target, "/"); absolute {
			target = h.path(rest)
		}
		if strings.HasPrefix(target, "..") {
			want = filepath.Join(filepath.Dir(h.base), want)
		}
		h.must(os.Symlink(target, h.path("srv")))
		for _, command := range []string{"check", "prepare"} {
			said := h.call(command, "fast")
			if !strings.Contains(said, "[pool.fast]: "+want+"\n") {
				t.Errorf("srv to %s, %s:\n%s", target, command, said)
			}
		}
	}
}

// fill makes what a pool can hold: volumes in each place, and what is not ours.
func fill(t *testing.T, h *host) {
	t.Helper()
	ctx, pool := context.Background(), config.DefaultPool("fast")
	pool.Path, pool.MountPoint, pool.RequireMount = h.path("pool"), h.path("pool"), false
	remembered, err := state.Remembered(h.path("state"), "fast")
	h.must(err)
	id := hostcheck.NewProber(prober.Expect("", pool, remembered)).Probe(ctx).Identity
	store := volume.New(volume.Options{Name: "fast", Path: pool.Path})
	for _, pv := range []string{"pvc-pool", "pvc-kept", "pvc-trash", "pvc-archive"} {
		_, err := store.Create(ctx, id, volume.Spec{Record: record.Record{
			PV: pv, Namespace: "shop", Claim: "data-" + pv[4:], ClaimUID: "uid-" + pv, Directory: pv, Requested: 5 << 30,
		}, Mode: 0o777})
		h.must(err)
	}
	h.must(store.Retain(ctx, id, "pvc-kept"))
	h.must(store.Trash(ctx, id, "pvc-trash"))
	h.must(store.Archive(ctx, id, "pvc-archive"))
	h.must(os.Mkdir(h.path("pool/lost and found"), 0o700))
	h.must(os.Mkdir(h.path("pool/lost+found"), 0o700))
	h.write("pool/\x1b[2J", "")
	h.write("pool/.hostpath-provisioner/volumes/pvc-broken.json", "{")
	h.must(os.Mkdir(h.path("pool/.hostpath-provisioner/trash/nobody"), 0o700))
}

func TestVolumes(t *testing.T) {
	h := newHost(t, "kubeconfig = 'BASE/kubeconfig'\n"+minimal+"require_mount = false\n[pool.gone]\npath = 'BASE/gone'\n")
	s := &story{h: h}
	s.call("prepare", "fast")
	fill(t, h)
	s.call("volumes")
	s.call("volumes", "fast", "--json")
	s.says("with a kubeconfig of a server that is not there")
	h.write("kubeconfig", `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`)
	s.call("volumes", "fast")
	golden(t, "volumes", s.b.String())
}

// A volume's state follows from where its directory is and what its object says.
func TestStates(t *testing.T) {
	object := func(name string, phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{}
		pv.Name, pv.Labels = name, map[string]string{plan.PoolLabel: "fast"}
		pv.Spec.PersistentVolumeReclaimPolicy, pv.Status.Phase = policy, phase
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data"}
		return pv
	}
	const remove, retain = corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain
	in := func(pv string, place record.Place) record.Record {
		return record.Record{PV: pv, Namespace: "shop", Claim: "data", Directory: pv, Place: place}
	}
	kept := in("9-kept", record.InPool)
	kept.Retained = true
	half, held := in("5b-half", record.InPool), in("5c-held", record.InPool)
	half.Replaced, held.Replaced, kept.Replaced = "{}", "{}", "{}"
	heldObject := object("5c-held", corev1.VolumeBound, retain)
	heldObject.Annotations = map[string]string{plan.HeldAnnotation: "Delete"}
	disks := []disk{{pool: "fast", inventory: volume.Inventory{Volumes: []record.Record{
		in("1-bound", record.InPool), in("2-released", record.InPool), in("3-retained", record.InPool), in("4-new", record.InPool),
		in("5-nobody's", record.InPool), in("5a-of-another-scope", record.InPool), half, held, in("6-trash", record.InTrash), in("6a-forced", record.InTrash), in("6b-going", record.Emptying), in("7-lost", record.Nowhere), in("8-unmade", record.Nowhere), kept,
	}}}, {pool: "gone", err: errors.New("not mounted")}}
	rebound := object("1-bound", corev1.VolumeBound, remove)
	rebound.Spec.ClaimRef.Name = "wanted"
	back, stripped := in("9a-back", record.InPool), in("9b-stripped", record.InPool)
	theirs := in("9c-theirs", record.InPool)
	unasked, old := in("9d-unasked", record.InPool), in("9e-csi", record.InPool)
	back.Retained, stripped.ClaimUID, old.Replaced, old.ClaimUID = true, "u-1", "{}", "u-2"
	all := &disks[0].inventory.Volumes
	*all = append(*all, back, stripped, theirs, unasked, old)
	at := func(pv *corev1.PersistentVolume, path, uid string) named {
		pv.Labels = map[string]string{plan.NodeLabel: "another"}
		pv.Spec.ClaimRef.UID = types.UID(uid)
		pv.Spec.HostPath = &corev1.HostPathVolumeSource{Path: path}
		return named{volume: pv}
	}
	byName := map[string]named{
		"9a-back":     at(object("9a-back", corev1.VolumeBound, retain), "/elsewhere/9a-back", ""),
		"9b-stripped": at(object("9b-stripped", corev1.VolumeReleased, remove), "/moved", "u-1"),
		"9c-theirs":   at(object("9c-theirs", corev1.VolumeBound, remove), "/other/thing", "u-9"),
		"9d-unasked":  {err: errors.New("refused")},
		"9e-csi":      at(object("9e-csi", corev1.VolumeBound, remove), "/of/the/driver", "u-2"),
	}
	elsewhere := object("other", corev1.VolumeBound, remove)
	elsewhere.Labels[plan.PoolLabel] = "gone"
	api := objects{volumes: []*corev1.PersistentVolume{
		rebound, object("2-released", corev1.VolumeReleased, remove), object("3-retained", corev1.VolumeReleased, retain),
		object("4-new", "", remove), object("6-trash", corev1.VolumeReleased, remove), object("7-lost", corev1.VolumeBound, remove),
		object("0-only", corev1.VolumeBound, remove), elsewhere, heldObject,
	}, named: byName, others: []*corev1.PersistentVolume{object("5a-of-another-scope", corev1.VolumeBound, remove), object("of-another-disk", corev1.VolumeBound, remove)}}
	show := func(all listed) string {
		var b strings.Builder
		for _, v := range all.Volumes {
			fmt.Fprintf(&b, "%s %s %s", v.Pool, v.Volume, v.state())
			if v.claim() != "shop/data" {
				b.WriteString(" of " + v.claim())
			}
			b.WriteString("\n")
		}
		return b.String()
	}
	want := `fast 0-only missing
fast 1-bound bound of shop/wanted (made for shop/data)
fast 2-released released
fast 3-retained retained
fast 4-new pending
fast 5-nobody's orphaned
fast 5a-of-another-scope bound
fast 5b-half half adopted
fast 5c-held half adopted
fast 6-trash trash
fast 6a-forced orphaned
fast 6b-going emptying
fast 7-lost missing
fast 8-unmade nowhere
fast 9-kept retained
fast 9a-back bound (of node another)
fast 9b-stripped released (of node another)
fast 9c-theirs orphaned
fast 9d-unasked unknown
fast 9e-csi half adopted
gone other bound
`
	if got := show(join(disks, api)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// Nothing is called orphaned as long as the API was not asked.
	silent := show(join(disks, objects{err: errors.New("refused")}))
	if strings.Contains(silent, stateOrphaned) || !strings.Contains(silent, "fast 1-bound unknown\n") || !strings.Contains(silent, "fast 9-kept retained\n") {
		t.Errorf("without the API:\n%s", silent)
	}
}

// Who is root already is not told to become it.
func TestRefusedToRoot(t *testing.T) {
	err := &fs.PathError{Op: "chmod", Path: "/pool", Err: syscall.EPERM}
	if got := hintFor(err); !strings.Contains(got, "no_root_squash") { // tests run as root
		t.Errorf("hint %q", got)
	}
	if got := permissionHint(1000); got != "run it as root" {
		t.Errorf("hint %q", got)
	}
}

// Each reason that closes a pool or warns has a hint, and each hint belongs to a reason.
func TestEveryReasonHasAHint(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "hostcheck", "reasons.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]bool{
		plan.ReasonStateUnreadable: true, plan.ReasonLaxMount: true, plan.ReasonInMemory: true,
		plan.ReasonNotServed: true, plan.ReasonScopeChanged: true, plan.ReasonPathChanged: true,
		plan.ReasonOtherHost: true, plan.ReasonRestartNeeded: true,
		plan.ReasonUnitOutdated: true, plan.ReasonQuotaEscaped: true,
		plan.ReasonFewProjects: true, plan.ReasonPromised: true, plan.ReasonCordoned: true, plan.ReasonNotInForce: true,
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if value, ok := n.(*ast.BasicLit); ok && value.Kind == token.STRING {
			reason, err := strconv.Unquote(value.Value)
			if err != nil {
				t.Fatal(err)
			}
			reasons[reason] = true
		}
		return true
	})
	for reason := range reasons {
		if reasonHints[reason] == "" {
			t.Errorf("%s has no hint", reason)
		}
	}
	for reason, hint := range reasonHints {
		if !reasons[reason] {
			t.Errorf("hint for %s, which hostcheck does not know", reason)
		}
		if hint[0] >= 'A' && hint[0] <= 'Z' || strings.HasSuffix(hint, ".") {
			t.Errorf("hint for %s: %q", reason, hint)
		}
	}
	if len(reasons) < 25 {
		t.Errorf("only %d reasons were found", len(reasons))
	}
}

// A pool in memory is told what a reboot does to it.
func TestInMemory(t *testing.T) {
	dir := hosttest.Dir(t)
	for _, kind := range []string{"tmpfs", "ramfs", "ext4"} {
		if kind == "ext4" {
			hosttest.Mkfs(t, kind, 16).Mount(t, dir)
		} else {
			hosttest.Mount(t, "-t", kind, "none", dir)
		}
		f, told := inMemory(config.Pool{Path: dir, RequireMount: true}, hostcheck.Report{})
		if told != (kind != "ext4") || told && (f.Reason != plan.ReasonInMemory || f.Severity != hostcheck.Warn || !strings.Contains(f.Message, dir+" is in memory ("+kind+")")) {
			t.Errorf("%s: %v, %+v", kind, told, f)
		}
		hosttest.Unmount(t, dir)
	}
	if _, told := inMemory(config.Pool{Path: "/", RequireMount: true}, hostcheck.Report{Findings: []hostcheck.Finding{{Severity: hostcheck.Close}}}); told {
		t.Error("of a closed pool its own reason is told")
	}
}

// The name of several disks is each of them.
func TestCordonSeveral(t *testing.T) {
	h := newHost(t, "[pool.fast]\npath = \"/srv/a\"\npaths = [\"/srv/b\"]\n")
	for _, verb := range []string{"cordon", "uncordon"} {
		want := fmt.Sprintf("pool fast %[1]sed; the daemon is not running\n"+
			"pool fast-b %[1]sed; the daemon is not running\nexit 0\n", verb)
		if got := h.call("pool", verb, "fast"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	if got := h.call("pool", "cordon", "fast-b"); !strings.HasPrefix(got, "pool fast-b cordoned;") {
		t.Error(got)
	}
}
