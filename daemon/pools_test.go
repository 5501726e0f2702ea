package daemon

import (
	"fmt"
	"io/fs"
	"reflect"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/mountpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
)

// poolOf is a pool with this quota, and a range of its own.
func poolOf(name, quota string, first, last uint32) config.Pool {
	p := config.DefaultPool(name)
	p.Path, p.MountPoint, p.Quota, p.QuotaFirst, p.QuotaLast, p.InodesPerGiB = "/srv/"+name, "/srv/"+name, quota, first, last, 65536
	return p
}

// Volumes have projects where the pool's quota is of projects alone, and the service with
// CAP_SYS_ADMIN may be asked about no other pool.
func TestWhichPoolsHaveProjects(t *testing.T) {
	off, ceph := poolOf("off", plan.QuotaOff, 1, 2), poolOf("ceph", plan.QuotaCeph, 3, 4)
	a, b := poolOf("a", plan.QuotaProject, 5, 6), poolOf("b", plan.QuotaProject, 7, 7)
	var begun volume.BegunProjects
	for _, p := range []config.Pool{off, ceph} {
		if q := ProjectQuotas(p, &begun); q != nil {
			t.Errorf("%s: %+v", p.Name, q)
		}
	}
	for _, p := range []config.Pool{a, b} {
		q := ProjectQuotas(p, &begun)
		if q == nil || q.First != p.QuotaFirst || q.Last != p.QuotaLast || q.InodesPerGiB != 65536 || q.Begun != &begun || q.Kernel == nil || q.Named == nil {
			t.Errorf("%s: %+v", p.Name, q)
		}
	}
	want := []mountpoint.QuotaPool{{Path: "/srv/a", First: 5, Last: 6}, {Path: "/srv/b", First: 7, Last: 7}}
	if got := QuotaPools(config.Config{Pools: []config.Pool{off, a, ceph, b}}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, p := range []config.Pool{off, ceph, a} {
		if UnitPool(p).Quota != (p.Name == "a") {
			t.Errorf("the unit of %s: %+v", p.Name, UnitPool(p))
		}
	}
}

// The rules see each key of a pool as it is configured. Directories are named by the configuration
// where it has another pattern than the default.
func TestPoolOfTheRules(t *testing.T) {
	p := poolOf("p", plan.QuotaProject, 1, 2)
	if PlanPool(p).Named {
		t.Error("the default pattern counts as one of the configuration")
	}
	p.Set, p.SourceSet = "fast", true
	p.Scope, p.Source, p.Mode, p.UID, p.GID = plan.ScopeEveryNode, plan.SourceLocal, 0o770|fs.ModeSetgid, 5, 6
	p.OnDelete, p.Default, p.ReclaimPolicy, p.InlineVolumes = plan.OnDeleteArchive, true, config.PolicyRetain, 7
	p.SnapshotSpace = 8
	var err error
	if p.Directory, err = config.ParsePattern("{{.Claim}}-{{.PV}}"); err != nil {
		t.Fatal(err)
	}
	got := PlanPool(p)
	name, err := got.Directory("pv-1", "ns", "data")
	if name != "data-pv-1" || err != nil || !got.Named {
		t.Errorf("directory %q, %v, named by the configuration: %t", name, err, got.Named)
	}
	got.Directory = nil
	if text, want := fmt.Sprintf("%+v", got), "{Name:p Set:fast Path:/srv/p Scope:every-node Source:local Sourced:true Mode:grwxrwx--- UID:5 GID:6 OnDelete:archive Default:true Fill:false Reclaim:Retain Named:true Quota:project Clones:off Snapshots:off SnapshotSpace:8 Inline:7 Directory:<nil>}"; text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// Only in a pool of scope shared do hosts have to be told apart, and there two nodes are.
func TestHostIDs(t *testing.T) {
	p := poolOf("p", plan.QuotaOff, 1, 2)
	for _, scope := range []string{plan.ScopeNode, plan.ScopeEveryNode} {
		if p.Scope = scope; hostID(p, "a") != "" {
			t.Errorf("%s: %q", scope, hostID(p, "a"))
		}
	}
	p.Scope = plan.ScopeShared
	if a, b := hostID(p, "a"), hostID(p, "b"); a == "" || a == b || a != hostID(p, "a") {
		t.Errorf("of a %q, of b %q", a, b)
	}
}

// A reload keeps the store and the account of a pool that stays where it is, and what a pool
// elsewhere has promised is not held against a new one of its name.
func TestWhatAReloadKeeps(t *testing.T) {
	d, _ := newDaemon(t)
	p, q := poolOf("p", plan.QuotaOff, 1, 2), poolOf("q", plan.QuotaOff, 1, 2)
	moved, limited := p, p
	moved.Path, limited.Quota = "/srv/p/deep", plan.QuotaProject
	store, account, other := d.storeOf(p, "a"), d.promises.Account(accountKey(p)), d.promises.Account(accountKey(q))
	d.keepAccounts(config.Config{Pools: []config.Pool{limited}})
	if d.storeOf(limited, "a") != store || d.promises.Account(accountKey(limited)) != account {
		t.Error("another quota makes another pool of it")
	}
	if d.storeOf(moved, "a") == store || accountKey(moved) == accountKey(p) {
		t.Error("another path is the same pool")
	}
	if d.promises.Account(accountKey(q)) == other {
		t.Error("the account of a pool that went is kept")
	}
}

// What is promised is absent from the status until it was counted, and what is free while the
// storage is away.
func TestPromiseInTheStatus(t *testing.T) {
	free := uint64(100)
	for name, c := range map[string]struct {
		free    *uint64
		counted bool
		want    string
	}{
		"not counted":        {&free, false, "promised false 0, free false 0"},
		"counted":            {&free, true, "promised true 30, free true 40"},
		"counted, then away": {nil, true, "promised true 30, free false 0"},
	} {
		p := PoolStatus{Free: c.free}
		p.promise(capacity.Room{Free: 40}, 30, c.counted)
		promised := uint64(0)
		if p.Promised != nil {
			promised = *p.Promised
		}
		if got := fmt.Sprintf("promised %t %d, free %t %d", p.Promised != nil, promised, p.Free != nil, freeBytes(p)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Without the Node object it is not known what to publish: what was published stays.
func TestCapacitiesWithoutTheNode(t *testing.T) {
	_, g := newDaemon(t)
	if all, known := g.capacities(g.cfg.Provisioner); known || len(all) > 0 {
		t.Errorf("%v, known: %t", all, known)
	}
}
