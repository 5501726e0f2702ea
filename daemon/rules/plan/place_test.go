package plan

import (
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// disks are pools a, b, ... with so many GiB; -1 is closed, -2 held by another daemon.
func disks(gib ...int) (all []Disk) {
	for i, n := range gib {
		d := Disk{Pool: testPool(string(rune('a' + i))), Room: capacity.Room{Free: uint64(max(n, 0)) << 30}}
		if n < 0 {
			d.Closed, d.Held = "/srv/"+d.Pool.Name+" is not mounted", n == -2
		}
		all = append(all, d)
	}
	return all
}

// A volume of 2 GiB among several pools.
func TestPlace(t *testing.T) {
	has := func(i int, all []Disk) []Disk { all[i].Has = true; return all }
	fill := func(all []Disk) []Disk {
		for i := range all {
			all[i].Pool.Fill = true
		}
		return all
	}
	for name, c := range map[string]struct {
		disks []Disk
		want  string
	}{
		"the only one":                   {disks(0), "a"},
		"most space":                     {disks(3, 9, 5), "b"},
		"the first of equals":            {disks(1, 5, 5), "b"},
		"closed ones do not count":       {disks(-1, 3, -1), "b"},
		"it fits in one alone":           {disks(1, 1, 2), "c"},
		"it fits nowhere, the largest":   {disks(0, 1, -1), "b"},
		"all are closed":                 {disks(-1, -1), "a"},
		"in use by another daemon":       {disks(-1, -2, -1), "b"},
		"in use, and another has room":   {disks(-2, 3), "b"},
		"begun there":                    {has(0, disks(2, 9, 9)), "a"},
		"begun there, and closed":        {has(0, disks(-1, 2)), "b"},
		"fill: the first that it fits":   {fill(disks(1, 3, 9)), "b"},
		"fill: begun in a later one":     {has(2, fill(disks(3, 3, 2))), "c"},
		"fill: it fits nowhere, largest": {fill(disks(0, 1)), "b"},
	} {
		f := ready()
		ask(f.Claim, "2Gi")
		f.Disks = c.disks
		i := f.Place()
		if f.Pool.Name != c.want || f.Disks[i].Pool.Name != c.want ||
			f.Room != f.Disks[i].Room || f.Closed != f.Disks[i].Closed || f.Held != f.Disks[i].Held {
			t.Errorf("%s: pool %s, want %s: %+v", name, f.Pool.Name, c.want, f.RequestFacts)
		}
	}
}

// A refusal says what each pool lacks, and is no longer than an event.
func TestEachDiskIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		disks  []Disk
		reason string
		want   string
	}{
		"full": {disks(1, 0, -1), ReasonNotEnoughSpace, "node node-a: the claim requests 2Gi for one volume in one of several pools: " +
			"a has 1.0 GiB, b has 0 B, c is closed (/srv/c is not mounted)"},
		"closed": {disks(-1, -1), ReasonPoolClosed, "a is closed (/srv/a is not mounted), b is closed (/srv/b is not mounted)"},
		"in use": {disks(-1, -2), ReasonPoolInUse, "pool b: /srv/b is not mounted"},
	} {
		f := ready()
		ask(f.Claim, "2Gi")
		f.Disks = c.disks
		f.Place()
		v := ForClaim(f)
		if v.Reason != c.reason || !strings.Contains(v.Message, c.want) {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// Which pools a class leads to: by their names, or by the name of several.
func TestCandidates(t *testing.T) {
	pools := []Pool{testPool("fast"), testPool("fast-b"), testPool("fast-c"), testPool("slow")}
	for i := range pools[:3] {
		pools[i].Set, pools[i].Default = "fast", true
	}
	common := testPool("common")
	common.Scope = ScopeShared
	pools = append(pools, common)
	for _, c := range []struct{ params, want string }{
		{"", "fast fast-b fast-c"},
		{"pool fast", "fast fast-b fast-c"},
		{"pool fast-b", "fast-b"},
		{"pools slow,fast-c", "fast-c slow"},
		{"pools fast,slow,gone", "fast fast-b fast-c slow"},
		{"pools gone", `UnknownPool this node has none of the pools "gone"`},
		{"pools slow,common", "BadParameter several pools are for volumes of one node, and pool common has scope shared"},
		{"pools slow pool slow", "BadParameter parameter pools excludes pool and pvDir"},
		{"pool fast placement fill", "fast fast-b fast-c filled"},
		{"pool fast placement spread", "fast fast-b fast-c"},
		{"pool fast placement best", `BadParameter placement: "best" is neither spread nor fill`},
	} {
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Provisioner: DefaultProvisioner}
		class.Parameters = map[string]string{}
		words := strings.Fields(c.params)
		for i := 0; i < len(words); i += 2 {
			class.Parameters[words[i]] = words[i+1]
		}
		all, refusal := self.Candidates(class, pools)
		var got []string
		for _, p := range all {
			got = append(got, p.Name)
		}
		if len(all) > 0 && all[0].Fill {
			got = append(got, "filled")
		}
		said := strings.Join(got, " ")
		if refusal != nil {
			said = refusal.Reason + strings.TrimPrefix(refusal.Message, "class c:")
		}
		if !strings.HasPrefix(said, c.want) || refusal == nil && said != c.want {
			t.Errorf("%q: %s, want %s", c.params, said, c.want)
		}
	}
	if pools[0].Fill {
		t.Error("a class changed the configured pools")
	}
}

// A copy is made beside its source, whatever the other pools have.
func TestDiskOfSource(t *testing.T) {
	f := ready()
	f.Disks = disks(1, 9)
	if _, is := f.DiskOfSource(); is {
		t.Error("of no copy")
	}
	f.From = &SourceFacts{Taken: &SnapshotFacts{Pool: "a"}}
	if of, is := f.DiskOfSource(); !is || of.Name != "a" {
		t.Errorf("%+v, %t", of, is)
	}
	f.From.Taken.Pool = "gone"
	if _, is := f.DiskOfSource(); is {
		t.Error("of a pool that the class does not lead to")
	}
}

// What was begun in one pool and made in another is undone; the object's label alone says nothing.
func TestBegunBeside(t *testing.T) {
	v := NewVolume(ready(), "pvc-u-1")
	r := record.Record{PV: v.Name, Claim: "data", ClaimUID: "u-1", Directory: v.Name, Place: record.InPool, Node: us}
	f := RecordFacts{Self: self, Scope: ScopeNode, Record: r, Volume: v}
	if got := ForRecord(f); got.Action != Keep {
		t.Errorf("its own object: %+v", got)
	}
	f.Beside = true
	if got := ForRecord(f); got.Action != Undo {
		t.Errorf("made in another pool: %+v", got)
	}
	f.Unsure = true
	if got := ForRecord(f); got.Action != Keep {
		t.Errorf("in another cluster: %+v", got)
	}
	for name, c := range map[string]struct {
		pool Pool
		want bool
	}{"its pool": {testPool("fast"), true}, "another": {testPool("slow"), false},
		"its pool at another path": {Pool{Name: "fast", Path: "/srv/new"}, false}} {
		if got := self.InPool(v, c.pool); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
