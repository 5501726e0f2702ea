package hostcheck

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/goldenfile"
)

// good is a pool below its mount point on which every rule keeps quiet.
func good() (Expect, Facts) {
	e := Expect{
		Pool: "fast", Path: "/srv/disk/pool", MountPoint: "/srv/disk", RequireMount: true, Immutable: ImmutableRequire,
		Filesystem: "ext4", Device: "/dev/sdb1", ReservePercent: 5, Remembered: "AAAA", SELinuxType: "container_file_t",
		Node: "node-a", Cluster: "11111111-aaaa",
	}
	f := Facts{
		Mounts: []mounts.Mount{
			{ID: 1, Parent: 0, Major: 8, Minor: 1, Root: "/", Point: "/", Options: "rw", FSType: "xfs", Source: "/dev/sda1", SuperOptions: "rw"},
			{ID: 2, Parent: 1, Major: 8, Minor: 17, Root: "/", Point: "/srv/disk", Options: "rw", FSType: "ext4", Source: "/dev/sdb1", SuperOptions: "rw"},
		},
		MountPoint: Entry{Kind: Directory, MountID: 2, Mode: 0o755, Identity: mounts.Identity{MountID: 1002, Unique: true, DevMajor: 8, DevMinor: 17, Inode: 2}},
		Path:       Entry{Kind: Directory, MountID: 2, Mode: 0o700, Identity: mounts.Identity{MountID: 1002, Unique: true, DevMajor: 8, DevMinor: 17, Inode: 12}},
		Device:     Device{Path: "/dev/sdb1", Expected: "8:17", Source: "8:17"},
		Under:      Under{Looked: true, Immutable: true, Identity: mounts.Identity{MountID: 1001, DevMajor: 8, DevMinor: 1, Inode: 77}},
		Space:      Space{Asked: true, Size: 1000 << 30, Available: 800 << 30, Inodes: 1 << 20, InodesFree: 1 << 19},
		Marker:     MarkerFact{Looked: true, Marker: Marker{Version: 1, Pool: "fast", ID: "AAAA", Node: "node-a", Cluster: "11111111-aaaa"}},
		Label:      LabelFact{Looked: true, Type: "hostpath_provisioner_pool_t", PoolKnown: true},
	}
	return e, f
}

// limits has the pool's volumes limited on a filesystem of this type.
func limits(e *Expect, f *Facts, fstype string, q QuotaFact) {
	e.Quota, f.Quota = true, q
	if i := slices.IndexFunc(f.Mounts, func(m mounts.Mount) bool { return m.Point == "/srv/disk" }); i >= 0 {
		f.Mounts = slices.Clone(f.Mounts)
		f.Mounts[i].FSType = fstype
	}
}

func reasons(r Report) []string {
	list := []string{}
	for _, f := range r.Findings {
		list = append(list, f.Reason)
	}
	return list
}

// faults breaks a good pool in one way for each rule, in the order of the rules.
var faults = []struct {
	name   string
	breaks func(e *Expect, f *Facts)
}{
	{"table unreadable", func(e *Expect, f *Facts) {
		*f = Facts{MountError: "reading /proc/self/mountinfo: permission denied"}
	}},
	{"mount point missing", func(e *Expect, f *Facts) {
		f.Mounts = f.Mounts[:1]
		f.MountPoint, f.Path = Entry{Kind: Missing}, Entry{}
	}},
	{"mount point is a file", func(e *Expect, f *Facts) {
		f.Mounts = f.Mounts[:1]
		f.MountPoint, f.Path = Entry{Kind: NotDir}, Entry{}
	}},
	{"mount point behind a link", func(e *Expect, f *Facts) {
		f.Mounts = f.Mounts[:1]
		f.MountPoint, f.Path = Entry{Kind: Symlink}, Entry{}
	}},
	{"mount point fails", func(e *Expect, f *Facts) { f.MountPoint = Entry{Kind: Failing, Error: "stale file handle"} }},
	{"automounter fails", func(e *Expect, f *Facts) {
		f.Mounts = append(slices.Clone(f.Mounts[:1]), mounts.Mount{ID: 2, Parent: 1, Minor: 40, Root: "/", Point: "/srv/disk", Options: "rw", FSType: "autofs", Source: "systemd-1"})
		f.Automount = Automount{Error: "host is down"}
		f.MountPoint, f.Path, f.Space, f.Marker = Entry{}, Entry{}, Space{}, MarkerFact{}
	}},
	{"not mounted", func(e *Expect, f *Facts) {
		f.Mounts = f.Mounts[:1]
		f.MountPoint.MountID = 1
		f.Path, f.Space, f.Marker = Entry{}, Space{}, MarkerFact{}
	}},
	{"root again", func(e *Expect, f *Facts) {
		f.Mounts = slices.Clone(f.Mounts)
		f.Mounts[1].Minor, f.Mounts[1].FSType, f.Mounts[1].Source = 1, "xfs", "/dev/sda1"
		e.Filesystem, e.Device = "", ""
	}},
	{"mounted twice", func(e *Expect, f *Facts) {
		twice := f.Mounts[1]
		twice.ID, twice.Parent = 3, 2
		f.Mounts = append(slices.Clone(f.Mounts), twice)
		f.MountPoint.MountID, f.Path.MountID = 3, 3
	}},
	{"bound onto itself", func(e *Expect, f *Facts) { f.Under.Identity = f.MountPoint.Identity }},
	{"root is squashed", func(e *Expect, f *Facts) {
		f.Mounts = slices.Clone(f.Mounts)
		f.Mounts[1].FSType, f.Mounts[1].Source = "nfs4", "files:/"
		e.Filesystem, e.Device, e.SELinuxType = "nfs4", "files:/", ""
		f.Failed, f.Refused = "reading /srv/disk/pool/.hostpath-provisioner/pool.json: marker: permission denied", true
		f.Space, f.Marker, f.Label = Space{}, MarkerFact{}, LabelFact{}
	}},
	{"root may not look for the path", func(e *Expect, f *Facts) {
		f.Mounts = slices.Clone(f.Mounts)
		f.Mounts[1].FSType, f.Mounts[1].Source = "nfs4", "files:/"
		e.Filesystem, e.Device = "nfs4", "files:/"
		f.Path, f.Refused = Entry{Kind: Failing, Error: "permission denied"}, true
	}},
	{"path missing", func(e *Expect, f *Facts) { f.Path = Entry{Kind: Missing} }},
	{"path is a file", func(e *Expect, f *Facts) { f.Path = Entry{Kind: NotDir} }},
	{"path behind a link", func(e *Expect, f *Facts) { f.Path = Entry{Kind: Symlink} }},
	{"path fails", func(e *Expect, f *Facts) { f.Path = Entry{Kind: Failing, Error: "input/output error"} }},
	{"mount between", func(e *Expect, f *Facts) {
		f.Mounts = append(slices.Clone(f.Mounts), mounts.Mount{ID: 3, Parent: 2, Point: "/srv/disk/pool", Options: "rw", FSType: "tmpfs"})
		f.Path = Entry{Kind: OtherMount}
	}},
	{"mount between, gone again", func(e *Expect, f *Facts) { f.Path = Entry{Kind: OtherMount} }},
	{"mounts changing", func(e *Expect, f *Facts) { f.Path.MountID = 9 }},
	{"wrong filesystem", func(e *Expect, f *Facts) { e.Filesystem = "xfs" }},
	{"device missing", func(e *Expect, f *Facts) {
		e.Device = "UUID=1234"
		f.Device = Device{Path: "/dev/disk/by-uuid/1234", Source: "8:17"}
	}},
	{"a copy of the disk", func(e *Expect, f *Facts) {
		e.Device = "UUID=1234"
		f.Device = Device{Path: "/dev/disk/by-uuid/1234", Expected: "8:17", Source: "8:17", Twins: []string{"/dev/sdb1", "/dev/sdc1"}}
	}},
	{"wrong device", func(e *Expect, f *Facts) { e.Device, f.Device.Expected = "/dev/sdc1", "8:33" }},
	{"on the network", func(e *Expect, f *Facts) {
		f.Mounts = slices.Clone(f.Mounts)
		f.Mounts[1].FSType, f.Mounts[1].Source = "nfs4", "files:/export"
		e.Filesystem, e.Device, f.Device = "", "", Device{}
	}},
	{"read-only mount", func(e *Expect, f *Facts) { f.Space.ReadOnly = true }},
	{"not responding", func(e *Expect, f *Facts) {
		f.Unanswered, f.Waited = "statfs of /srv/disk/pool", 2034*time.Millisecond
		f.Space, f.Marker = Space{}, MarkerFact{}
	}},
	{"error", func(e *Expect, f *Facts) {
		f.Failed = "statfs of /srv/disk/pool: input/output error"
		f.Space, f.Marker = Space{}, MarkerFact{}
	}},
	{"not immutable", func(e *Expect, f *Facts) { f.Under.Immutable = false }},
	{"cannot tell", func(e *Expect, f *Facts) { f.Under = Under{Looked: true, Trouble: CannotTell} }},
	{"may not look", func(e *Expect, f *Facts) {
		f.Under = Under{Looked: true, Trouble: NotPermitted, Error: "open_tree: operation not permitted"}
	}},
	{"look failed", func(e *Expect, f *Facts) {
		f.Under = Under{Looked: true, Trouble: LookFailed, Error: "invalid argument"}
	}},
	{"never prepared", func(e *Expect, f *Facts) { e.Remembered, f.Marker.Marker = "", Marker{} }},
	{"marker missing", func(e *Expect, f *Facts) { f.Marker.Marker = Marker{} }},
	{"marker damaged", func(e *Expect, f *Facts) {
		f.Marker = MarkerFact{Looked: true, Error: "the marker cannot be understood: no pool"}
	}},
	{"marker changed", func(e *Expect, f *Facts) { f.Marker.Marker.ID = "BBBB" }},
	{"marker of another pool", func(e *Expect, f *Facts) { f.Marker.Marker.Pool = "slow" }},
	{"marker of another node", func(e *Expect, f *Facts) { f.Marker.Marker.Node = "localhost" }},
	{"marker of another cluster", func(e *Expect, f *Facts) { f.Marker.Marker.Cluster = "22222222-bbbb" }},
	{"writable by others", func(e *Expect, f *Facts) { f.Path.Mode = 0o1777 }},
	{"shown by a bind mount", func(e *Expect, f *Facts) {
		f.Mounts = append(slices.Clone(f.Mounts), mounts.Mount{ID: 7, Parent: 1, Major: 8, Minor: 17, Root: "/pool/volume", Point: "/srv/again", Options: "rw", FSType: "ext4"})
		e.Before = []Neighbour{{"apart", "/srv/apart"}, {"again", "/srv/again/deep"}}
	}},
	{"type that the policy has not", func(e *Expect, f *Facts) { f.Label.Unknown = true }},
	{"quota where there is none", func(e *Expect, f *Facts) {
		limits(e, f, "btrfs", QuotaFact{Looked: true})
		e.Filesystem = ""
	}},
	{"quota that cannot be asked for", func(e *Expect, f *Facts) {
		limits(e, f, "ext4", QuotaFact{Looked: true, Error: "operation not permitted"})
	}},
	{"quota that is off, ext4 without the feature", func(e *Expect, f *Facts) { limits(e, f, "ext4", QuotaFact{Looked: true}) }},
	{"quota that is off, ext4", func(e *Expect, f *Facts) {
		limits(e, f, "ext4", QuotaFact{Looked: true, State: quota.State{Counted: true}})
	}},
	{"quota that is off, xfs", func(e *Expect, f *Facts) {
		limits(e, f, "xfs", QuotaFact{Looked: true})
		e.Filesystem = ""
	}},
	{"project that is inherited", func(e *Expect, f *Facts) {
		limits(e, f, "ext4", QuotaFact{Looked: true, State: quota.State{Counted: true, Enforced: true}, Project: 42, Inherits: true})
	}},
	{"subvolumes where there are none", func(e *Expect, _ *Facts) { e.Subvolumes = true }},
	{"low space", func(e *Expect, f *Facts) { f.Space.Available = 40 << 30 }},
	{"low inodes", func(e *Expect, f *Facts) { f.Space.InodesFree = 999 }},
	{"open to others", func(e *Expect, f *Facts) { f.Path.Mode = 0o755 }},
	{"plain directory", func(e *Expect, f *Facts) { e.RequireMount = false }},
	{"wrong label", func(e *Expect, f *Facts) { f.Label.Type = "default_t" }},
	{"no label", func(e *Expect, f *Facts) { f.Label.Type = "" }},
	{"marker not looked for", func(e *Expect, f *Facts) { f.Marker = MarkerFact{} }},
}

func TestGoodPool(t *testing.T) {
	e, f := good()
	r := Check(e, f)
	want := Report{
		Pool: "fast", Path: "/srv/disk/pool", Findings: []Finding{}, Identity: f.Path.Identity, Marker: "AAAA", Mark: f.Marker.Marker,
		Device: "8:17", Size: 1000 << 30, Available: 800 << 30, Reserve: 50 << 30, Free: 750 << 30, Inodes: 1 << 20, InodesFree: 1 << 19, Labelled: true,
	}
	if fmt.Sprintf("%+v", r) != fmt.Sprintf("%+v", want) || !r.Open() || !r.Removable() {
		t.Fatalf("got  %+v\nwant %+v", r, want)
	}
}

// Every fault is found, in the words of the golden file, and not one word more is said.
func TestFaults(t *testing.T) {
	var all strings.Builder
	for _, fault := range faults {
		e, f := good()
		fault.breaks(&e, &f)
		fmt.Fprintf(&all, "%s\n", fault.name)
		for _, found := range Check(e, f).Findings {
			fmt.Fprintf(&all, "\t%-5s %s: %s\n", found.Severity, found.Reason, found.Message)
		}
	}
	goldenfile.Compare(t, "testdata/faults.golden", all.String())
}

var quotaFaults = []string{
	"quota that cannot be asked for", "quota that is off, ext4 without the feature", "quota that is off, ext4", "quota that is off, xfs", "project that is inherited",
}

// exclusive are faults that cannot be at the same time: the second is written over the first.
var exclusive = map[string][]string{
	"root again":             {"mounted twice"},
	"not immutable":          {"cannot tell", "may not look", "look failed"},
	"never prepared":         {"marker damaged", "marker not looked for"},
	"marker missing":         {"marker damaged", "marker not looked for"},
	"marker damaged":         {"marker not looked for"},
	"marker changed":         {"marker not looked for"},
	"marker of another pool": {"marker not looked for"},

	"wrong filesystem":                            {"quota where there is none", "quota that is off, xfs"},
	"quota where there is none":                   append([]string{"subvolumes where there are none"}, quotaFaults...),
	"quota that cannot be asked for":              quotaFaults,
	"quota that is off, ext4 without the feature": quotaFaults,
	"quota that is off, ext4":                     quotaFaults,
	"quota that is off, xfs":                      quotaFaults,

	"marker of another node":    {"marker not looked for"},
	"marker of another cluster": {"marker not looked for"},
}

// Of two faults at once the one whose rule comes first is the first that is reported.
func TestPrecedence(t *testing.T) {
	first := func(i int) string {
		e, f := good()
		faults[i].breaks(&e, &f)
		return Check(e, f).Findings[0].Reason
	}
	for i := range faults {
		for j := i + 1; j < len(faults); j++ {
			e, f := good()
			faults[j].breaks(&e, &f)
			faults[i].breaks(&e, &f)
			found := reasons(Check(e, f))
			a, b := slices.Index(found, first(i)), slices.Index(found, first(j))
			if !e.RequireMount || slices.Contains(exclusive[faults[i].name], faults[j].name) {
				continue // a plain directory has no mount rules
			}
			if a < 0 || b >= 0 && b < a {
				t.Errorf("%q and %q: %v", faults[i].name, faults[j].name, found)
			}
		}
	}
}

// Every rule is reached by a fault, and its sentence fits its condition's nouns.
func TestEveryRuleIsTested(t *testing.T) {
	reached := make([]bool, len(rules))
	for _, fault := range faults {
		e, f := good()
		fault.breaks(&e, &f)
		for i, rule := range rules {
			finding, found := rule.find(newView(e, f))
			reached[i] = reached[i] || found
			if strings.Contains(finding.Message, "%!") {
				t.Errorf("%s: %s", fault.name, finding.Message)
			}
		}
	}
	for i, rule := range rules {
		if !reached[i] {
			t.Errorf("no fault leads to %q", rule.sentence)
		}
	}
}

// Every reason of a pool is reached by a fault.
func TestEveryReasonIsTested(t *testing.T) {
	source, err := os.ReadFile("reasons.go")
	must(t, err)
	seen, err := os.ReadFile("testdata/faults.golden")
	must(t, err)
	constants := regexp.MustCompile(`Reason\w+\s+= "(\w+)"(.*)`).FindAllStringSubmatch(string(source), -1)
	if len(constants) < 30 {
		t.Fatalf("only %d reasons found", len(constants))
	}
	for _, c := range constants {
		if !strings.Contains(c[2], "CheckHost") && !strings.Contains(c[2], "CheckSELinux") && !strings.Contains(string(seen), " "+c[1]+": ") {
			t.Errorf("no fault leads to %s", c[1])
		}
	}
}

// Rules are total: on nothing at all, and on any one part of the facts alone, none panics, and a
// pool of which nothing is known is not open.
func TestNothingKnown(t *testing.T) {
	for _, e := range []Expect{{}, {Pool: "p", Path: "/p", MountPoint: "/p", RequireMount: true}} {
		if r := Check(e, Facts{MountError: "x"}); r.Open() {
			t.Errorf("%+v is open: %+v", e, r)
		}
	}
	if r := Check(Expect{Pool: "p", Path: "/p", MountPoint: "/p", RequireMount: true}, Facts{}); r.Open() {
		t.Errorf("open: %+v", r)
	}
}

// A question without a response must not pass for good, whichever it was.
func TestUnansweredIsClosed(t *testing.T) {
	e, f := good()
	for _, strip := range []func(){
		func() {}, func() { f.Marker = MarkerFact{} }, func() { f.Space = Space{} }, func() { f.Path = Entry{} },
		func() { f.MountPoint = Entry{} }, func() { f.Under = Under{} }, func() { f.Mounts = nil },
	} {
		strip()
		g := f
		g.Unanswered = "x"
		if r := Check(e, g); r.Open() || r.Removable() {
			t.Errorf("open: %+v", r)
		}
	}
}

func TestImmutability(t *testing.T) {
	for _, fault := range []Under{{Looked: true}, {Looked: true, Trouble: CannotTell}, {Looked: true, Trouble: NotPermitted}, {Looked: true, Trouble: LookFailed}} {
		for immutable, want := range map[Immutability]string{ImmutableRequire: "close", ImmutableWarn: "warn", ImmutableOff: "", "": "close", "typo": "close"} {
			e, f := good()
			e.Immutable, f.Under = immutable, fault
			got := ""
			for _, found := range Check(e, f).Findings {
				got += found.Severity.String()
			}
			if got != want {
				t.Errorf("%q, %+v: %q, want %q", immutable, fault, got, want)
			}
		}
	}
}

func TestDevice(t *testing.T) {
	for _, c := range []struct {
		name, want, source string
		device             Device
		reason             string
	}{
		{"same number", "/dev/mapper/vg-lv", "/dev/dm-1", Device{Path: "/dev/mapper/vg-lv", Expected: "8:17"}, ""},
		{"btrfs, by the node it names", "UUID=ab", "/dev/sdb1", Device{Path: "p", Expected: "8:99", Source: "8:99"}, ""},
		{"another node", "UUID=ab", "/dev/sdb1", Device{Path: "p", Expected: "8:99", Source: "8:17"}, ReasonWrongDevice},
		{"the filesystem's own UUID", "UUID=AB-1", "/dev/sdb1", Device{Path: "p", Expected: "8:99", UUID: "ab-1"}, ""},
		{"its own UUID without any link", "UUID=ab-1", "/dev/sdb1", Device{Path: "p", UUID: "ab-1"}, ""},
		{"another UUID, though the link fits", "UUID=ab-2", "/dev/sdb1", Device{Path: "p", Expected: "8:17", UUID: "ab-1"}, ReasonWrongDevice},
		{"no such link", "LABEL=x", "/dev/sdb1", Device{Path: "p"}, ReasonDeviceMissing},
		{"source", "server:/export", "server:/export", Device{}, ""},
		{"source with a slash more", "server:/export", "server:/export/", Device{}, ""},
		{"another source", "server:/export", "server:/exports", Device{}, ReasonWrongDevice},
		{"zfs", "tank/fast", "tank/fast", Device{}, ""},
		{"no source", "server:/export", "", Device{}, ReasonWrongDevice},
	} {
		e, f := good()
		e.Device, f.Device = c.want, c.device
		f.Mounts[1].Source = c.source
		if got := strings.Join(reasons(Check(e, f)), " "); got != c.reason {
			t.Errorf("%s: %q, want %q", c.name, got, c.reason)
		}
	}
}
