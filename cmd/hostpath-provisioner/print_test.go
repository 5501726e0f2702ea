package main

import (
	"bytes"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestAge(t *testing.T) {
	for name, c := range map[string]struct {
		ago  time.Duration
		want string
	}{
		"now": {0, "0s"}, "from a clock ahead": {-time.Hour, "0s"}, "less than a second": {999 * time.Millisecond, "0s"},
		"the last of the seconds": {2*time.Minute - 1, "119s"}, "the first of the minutes": {2 * time.Minute, "2m"},
		"the last of the minutes": {2*time.Hour - 1, "119m"}, "the first of the hours": {2 * time.Hour, "2h"},
		"the last of the hours": {48*time.Hour - 1, "47h"}, "the first of the days": {48 * time.Hour, "2d"},
		"as long as there is": {math.MaxInt64, "106751d"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := age(noon, noon.Add(c.ago)); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	if got := age(time.Time{}, noon); got != "" {
		t.Errorf("never: %q", got)
	}
}

// A name that others chose is one word of the table, and commands no terminal.
func TestPrintableNames(t *testing.T) {
	long := strings.Repeat("n", 300)
	for name, c := range map[string]struct{ given, want string }{
		"plain":           {"shop/data-0", "shop/data-0"},
		"a space":         {"lost and found", `"lost and found"`},
		"a quote":         {`a"b`, `"a\"b"`},
		"an escape":       {"\x1b[2J", `"\x1b[2J"`},
		"a line":          {"a\nb", `"a\nb"`},
		"no UTF-8":        {"a\xffb", `"a\xffb"`},
		"another script":  {"büro", "büro"},
		"right to left":   {"a\u202eb", `"a\u202eb"`},
		"nothing":         {"", ""},
		"as long as such": {strings.Repeat("n", 253) + "/" + strings.Repeat("c", 253), strings.Repeat("n", 253) + "/" + strings.Repeat("c", 253)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := printable(c.given); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	if got := printable(long + long); len(got) > 300 || !strings.HasPrefix(got, "nnn") {
		t.Errorf("a name of 600 bytes: %s", got)
	}
}

func TestStatusOfAPool(t *testing.T) {
	for name, c := range map[string]struct {
		pool daemon.PoolStatus
		want string
	}{
		"open":                  {daemon.PoolStatus{Open: true, Scope: plan.ScopeNode}, "open"},
		"closed":                {daemon.PoolStatus{Reason: "NotMounted", Scope: plan.ScopeNode}, "closed: NotMounted"},
		"full":                  {daemon.PoolStatus{Full: true, Reason: "LowSpace"}, "full: LowSpace"},
		"every node":            {daemon.PoolStatus{Open: true, Scope: plan.ScopeEveryNode}, "open"},
		"shared":                {daemon.PoolStatus{Open: true, Scope: plan.ScopeShared, Worker: "node-b"}, "open; leader node-b"},
		"shared, without one":   {daemon.PoolStatus{Open: true, Scope: plan.ScopeShared}, "open; no leader"},
		"shared, closed":        {daemon.PoolStatus{Reason: "NotMounted", Scope: plan.ScopeShared, Worker: "node-b"}, "closed: NotMounted; leader node-b"},
		"shared, closed, alone": {daemon.PoolStatus{Reason: "NotMounted", Scope: plan.ScopeShared}, "closed: NotMounted; no leader"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := verdictOf(c.pool); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// The last line of prepare is the operator's next step.
func TestNextStep(t *testing.T) {
	for name, c := range map[string]struct {
		pool    config.Pool
		mounted bool
		want    string
	}{
		"mounted":        {config.Pool{Name: "fast", MountPoint: "/srv/fast", Device: "UUID=0a"}, true, "run: hostpath-provisioner check fast"},
		"a known device": {config.Pool{Name: "fast", MountPoint: "/srv/fast", Device: "UUID=0a"}, false, "mount UUID=0a at /srv/fast, now and at each boot (/etc/fstab or a mount unit), then run: hostpath-provisioner prepare fast"},
		"an unknown one": {config.Pool{Name: "fast", MountPoint: "/srv/fast"}, false, "mount the pool's storage at /srv/fast, now and at each boot (/etc/fstab or a mount unit), then run: hostpath-provisioner prepare fast"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := next(c.pool, c.mounted); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// What is no volume stands behind the volumes, and the directory that mkfs makes is left out.
func TestRowsOfNoVolume(t *testing.T) {
	d := disk{pool: "fast", inventory: volume.Inventory{
		Volumes: []record.Record{{PV: "pvc-b", Place: record.InPool}, {PV: "pvc-a", Place: record.InPool},
			{PV: "snapshot-a", Kind: record.Snapshot, Place: record.InPool}, {PV: "snapshot-b", Kind: record.Snapshot, Place: record.InPool, Unpublished: true}},
		Archived:  []record.Record{{PV: "pvc-0", Place: record.InArchive}},
		Damaged:   []volume.Damaged{{File: "pvc-1.json"}},
		Leftovers: []volume.Leftover{{Name: "x", Place: record.InTrash}},
		Foreign:   []string{"lost+found", "notes"},
	}}
	var got []string
	for _, r := range rows(d, objects{}) {
		got = append(got, r.Volume+" "+r.State+" "+r.Directory)
	}
	want := "pvc-a orphaned |pvc-b orphaned |snapshot-a snapshot |snapshot-b copying |pvc-0 archive |pvc-1.json damaged |x leftover trash/x|notes foreign notes"
	if text := strings.Join(got, "|"); text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
}

// Only a filesystem of the pool's own can have mount options of its own.
func TestLaxMount(t *testing.T) {
	const text = " is mounted without %, so that set-uid files and devices in volumes count on this host"
	for name, c := range map[string]struct {
		options string
		mount   bool
		report  hostcheck.Report
		lacks   string
	}{
		"both":              {"nosuid,nodev", true, hostcheck.Report{}, ""},
		"neither":           {"suid,dev", true, hostcheck.Report{}, "nosuid,nodev"},
		"devices count":     {"nosuid,dev", true, hostcheck.Report{}, "nodev"},
		"set-uid counts":    {"suid,nodev", true, hostcheck.Report{}, "nosuid"},
		"a plain directory": {"suid,dev", false, hostcheck.Report{}, ""},
		"a closed pool":     {"suid,dev", true, hostcheck.Report{Findings: []hostcheck.Finding{{Severity: hostcheck.Close}}}, ""},
		"a full pool":       {"suid,dev", true, hostcheck.Report{Findings: []hostcheck.Finding{{Severity: hostcheck.Full}}}, "nosuid,nodev"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := hosttest.Dir(t)
			hosttest.Mount(t, "-t", "tmpfs", "-o", c.options, "none", dir)
			f, found := laxMount(config.Pool{Path: dir, RequireMount: c.mount}, c.report)
			if found != (c.lacks != "") || found && (f.Message != dir+strings.Replace(text, "%", c.lacks, 1) || f.Severity != hostcheck.Warn) {
				t.Errorf("%t, %+v", found, f)
			}
		})
	}
}

// A list of mount points that cannot be read names none, and tells why.
func TestKeptMountPoints(t *testing.T) {
	for name, c := range map[string]struct {
		text, want, err string
	}{
		"two":              {`["/srv/a","/srv/b"]`, "/srv/a /srv/b", ""},
		"none":             {"null", "", ""},
		"written in part":  {`["/srv/a"`, "", "unexpected end of JSON input"},
		"another document": {`{"a": 1}`, "", "cannot unmarshal object"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, minimal)
			h.write(kept+"/"+mountPointsFile, c.text)
			points, err := keptList[string](&program{host: h.base}, mountPointsFile)
			if strings.Join(points, " ") != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q, %v", points, err)
			}
		})
	}
	if points, err := keptList[string](&program{host: t.TempDir()}, mountPointsFile); points != nil || err != nil {
		t.Errorf("before the first: %q, %v", points, err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/"+kept+"/"+mountPointsFile, 0o700); err != nil {
		t.Fatal(err)
	}
	if points, err := keptList[string](&program{host: dir}, mountPointsFile); points != nil || err == nil {
		t.Errorf("a directory: %q, %v", points, err)
	}
}

// The first failure counts, and what a caller has written is told as it is for any writer.
func TestTerminalRemembersTheFailure(t *testing.T) {
	var b bytes.Buffer
	good := &terminal{to: &b}
	if n, err := good.Write([]byte("a\tb\x00c\n")); n != 6 || err != nil || b.String() != "a\tb\\x00c\n" || good.failed != nil {
		t.Errorf("%d, %v, %q, %v", n, err, b.String(), good.failed)
	}
	first, second := errors.New("first"), errors.New("second")
	out := &terminal{to: failing{&first}}
	out.Write([]byte("a"))
	first = second
	if n, err := out.Write([]byte("b")); n != 0 || err != second || out.failed == second || out.failed == nil {
		t.Errorf("%d, %v, %v", n, err, out.failed)
	}
}

// failing fails each write with the error of the moment.
type failing struct{ err *error }

func (f failing) Write([]byte) (int, error) { return 0, *f.err }
