package hostcheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// attach makes a loop device of a file. It goes with the test.
func attach(t *testing.T, file string) string {
	t.Helper()
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	attached[device] = true
	t.Cleanup(func() { _ = detach(device) })
	return device
}

// attached are those that attach made. One that was detached may be another process's by now.
var attached = map[string]bool{}

func detach(device string) error {
	if !attached[device] {
		return nil
	}
	delete(attached, device)
	return exec.Command("losetup", "--detach", device).Run()
}

// A copy of a disk closes the pool while both are attached, whichever of them is mounted, and the
// pool opens when the copy goes. Its own second loop device is no copy.
func TestProbeCopyOfTheDisk(t *testing.T) {
	p := newPool(t)
	e := p.expect
	e.Device = "UUID=" + strings.ToUpper(p.image.UUID(t))
	prober := NewProber(e)
	must(t, attachedIs(prober, t, ""))
	again := attach(t, p.image.File)
	must(t, attachedIs(prober, t, ""))
	copied := filepath.Join(hosttest.Dir(t), "copy.img")
	if out, err := exec.Command("cp", "--sparse=always", p.image.File, copied).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	device := attach(t, copied)
	report := prober.Probe(t.Context())
	if f, closed := report.Closed(); !closed || f.Reason != ReasonDeviceNotUnique || !strings.Contains(f.Message, device) || !strings.Contains(f.Message, again) {
		t.Errorf("with the copy at %s: %+v", device, report.Findings)
	}
	must(t, detach(device))
	must(t, attachedIs(prober, t, ""))
}

func attachedIs(p *Prober, t *testing.T, want string) error {
	t.Helper()
	if got := strings.Join(reasons(p.Probe(t.Context())), " "); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	return nil
}

// What stands in the place of a disk's node is not read.
func TestNodesThatAreNotTheDisk(t *testing.T) {
	const major, minor = 1, 5 // a RAM disk, and as a character device /dev/zero
	dir := hosttest.Dir(t)
	for name, make := range map[string]func(node string) error{
		"a link":             func(node string) error { return os.Symlink("/dev/zero", node) },
		"a FIFO":             func(node string) error { return unix.Mknod(node, unix.S_IFIFO|0o600, 0) },
		"a character device": func(node string) error { return unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor))) },
	} {
		node := filepath.Join(dir, name)
		must(t, make(node))
		wantUnread(t, name, node, number(major, minor))
	}
	wantUnread(t, "another disk", attach(t, hosttest.Mkfs(t, "ext4", 16).File), number(major, minor))
}

func wantUnread(t *testing.T, name, node, number string) {
	t.Helper()
	d := disk{number: number, tags: map[string]string{}}
	if d.fromSuperblock(node) || len(d.tags) > 0 {
		t.Errorf("%s was read: %+v", name, d)
	}
}

// The superblocks of what pools usually have are understood as udev does.
func TestSuperblocks(t *testing.T) {
	for _, c := range []struct {
		kind string
		mib  int
		args []string
	}{{"ext4", 16, []string{"-L", "of a pool"}}, {"xfs", 320, []string{"-L", "of_a_pool"}}, {"btrfs", 128, []string{"-L", "of a pool"}}} {
		image := hosttest.Mkfs(t, c.kind, c.mib, c.args...)
		device := attach(t, image.File)
		d, told := (&scanner{sys: "/sys", udev: "/nonexistent", dev: "/dev"}).look(filepath.Base(device), "/sys/class/block/"+filepath.Base(device))
		if !told || d.tags["UUID"] != image.UUID(t) || d.tags["LABEL"] != udevName(c.args[1]) || (c.kind == "btrfs") != (d.member != "") {
			t.Errorf("%s: %+v, want %s and %q", c.kind, d, image.UUID(t), c.args[1])
		}
	}
}

// What is no copy, though it has the same UUID, and what is.
func TestTwins(t *testing.T) {
	tags := map[string]string{"UUID": "AB-1", "LABEL": `a\x20b`, "PARTUUID": "p-1"}
	other := map[string]string{"UUID": "ab-1", "LABEL": `a\x20b`, "PARTUUID": "p-2"}
	for name, c := range map[string]struct {
		disks []disk
		want  string
	}{
		"one":                          {[]disk{{name: "sda1", tags: tags}, {name: "sdb1"}}, ""},
		"a copy":                       {[]disk{{name: "sdb1", tags: other}, {name: "sda1", tags: tags}, {name: "sdc1"}}, "/dev/sda1 /dev/sdb1"},
		"a volume and its disk":        {[]disk{{name: "sda", tags: tags, lower: true}, {name: "dm-0", tags: tags}}, ""},
		"a mirror and its members":     {[]disk{{name: "sda", tags: tags, lower: true}, {name: "sdb", tags: tags, lower: true}, {name: "md0", tags: tags}}, ""},
		"a volume and its snapshot":    {[]disk{{name: "dm-1", tags: tags}, {name: "dm-2", tags: tags}, {name: "dm-0", tags: tags, lower: true}}, "/dev/dm-1 /dev/dm-2"},
		"members of one btrfs":         {[]disk{{name: "sda", tags: tags, member: "1"}, {name: "sdb", tags: tags, member: "2"}}, ""},
		"a copy of one of them":        {[]disk{{name: "sda", tags: tags, member: "1"}, {name: "sdb", tags: tags, member: "2"}, {name: "sdc", tags: tags, member: "2"}}, "/dev/sdb /dev/sdc"},
		"paths to one disk":            {[]disk{{name: "sda1", tags: tags, wwid: "naa.5"}, {name: "sdb1", tags: tags, wwid: "naa.5"}}, ""},
		"partitions of one disk":       {[]disk{{name: "sda1", tags: tags, wwid: "naa.5"}, {name: "sda2", tags: other, wwid: "naa.5"}}, "/dev/sda1 /dev/sda2"},
		"two loop devices of one file": {[]disk{{name: "loop0", tags: tags, file: "/a"}, {name: "loop1", tags: tags, file: "/a"}}, ""},
		"loop devices of two files":    {[]disk{{name: "loop0", tags: tags, file: "/a"}, {name: "loop1", tags: tags, file: "/b"}}, "/dev/loop0 /dev/loop1"},
		"a loop device of a disk":      {[]disk{{name: "sda", tags: tags}, {name: "loop1", tags: tags, file: "/dev/sda"}}, ""},
	} {
		for _, device := range []string{"UUID=aB-1", "LABEL=a b", "/dev/disk/by-uuid/ab-1", `/dev/disk/by-label/a\x20b`} {
			if got := strings.Join(twins(tagged(device), c.disks), " "); got != c.want {
				t.Errorf("%s, %s: %q, want %q", name, device, got, c.want)
			}
		}
		for _, device := range []string{"UUID=", "UUID=other", "LABEL=A B", "/dev/sda1", "/dev/disk/by-id/ab-1", "/dev/disk/by-path/ab-1", "files:/a=b", ""} {
			if got := twins(tagged(device), c.disks); got != nil {
				t.Errorf("%s, %q: %q", name, device, got)
			}
		}
	}
	if got := twins("PARTUUID=P-1", []disk{{name: "sda1", tags: tags}, {name: "sdb1", tags: other}, {name: "sdc1", tags: tags}}); !slices.Equal(got, []string{"/dev/sda1", "/dev/sdc1"}) {
		t.Errorf("of one PARTUUID: %q", got)
	}
}

// A link of udev by what a disk holds leads to the copy as well as to the disk.
func TestProbeCopyBehindALink(t *testing.T) {
	p := newPool(t)
	uuid := p.image.UUID(t)
	hosttest.Mount(t, "-t", "tmpfs", "none", "/run")
	defer hosttest.Unmount(t, "/run")
	link := filepath.Join(ShownDev, "disk", "by-uuid", uuid)
	must(t, os.MkdirAll(filepath.Dir(link), 0o755))
	must(t, os.Symlink(strings.TrimSpace(hosttest.Run(t, "findmnt", "-n", "-o", "SOURCE", p.dir)), link))
	p.expect.Device = "/dev/disk/by-uuid/" + uuid
	prober := NewProber(p.expect)
	must(t, attachedIs(prober, t, ""))
	copied := filepath.Join(hosttest.Dir(t), "copy.img")
	hosttest.Run(t, "cp", "--sparse=always", p.image.File, copied)
	device := attach(t, copied)
	must(t, attachedIs(prober, t, ReasonDeviceNotUnique))
	must(t, detach(device))
	must(t, attachedIs(prober, t, ""))
}

// In the service no disk can be opened, and udev's database says what it has.
func TestDisksByUdev(t *testing.T) {
	base := hosttest.Dir(t)
	put := func(name, text string) {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(base, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(base, name), []byte(text), 0o644))
	}
	for name, number := range map[string]string{"sda1": "8:1", "sdb1": "8:17", "dm-0": "253:0"} {
		put("sys/class/block/"+name+"/dev", number+"\n")
		put("sys/class/block/"+name+"/size", "2048\n")
		put("udev/b"+number, "S:disk/by-uuid/ab-1\nI:1\nE:ID_FS_UUID=ab-1\nE:ID_FS_LABEL_ENC=a\\x20b\nE:ID_FS_TYPE=ext4\n")
	}
	put("sys/class/block/sdb1/holders/dm-0", "")
	s := &scanner{sys: filepath.Join(base, "sys"), udev: filepath.Join(base, "udev"), dev: filepath.Join(base, "dev")}
	if got := twins("UUID=ab-1", s.latest(timeout)); !slices.Equal(got, []string{"/dev/dm-0", "/dev/sda1"}) {
		t.Errorf("%q", got)
	}
	must(t, os.Remove(filepath.Join(base, "sys/class/block/sda1/dev")))
	if got := twins("LABEL=a b", s.latest(timeout)); got != nil {
		t.Errorf("without the copy: %q", got)
	}
}

// A device that does not respond keeps no pool waiting.
func TestScanThatHangs(t *testing.T) {
	base := hosttest.Dir(t)
	must(t, os.MkdirAll(filepath.Join(base, "class/block/sda"), 0o755))
	must(t, unix.Mkfifo(filepath.Join(base, "class/block/sda/dev"), 0o600)) // opening it waits for a writer
	s := &scanner{sys: base, udev: base, dev: base}
	if got := s.latest(0); got != nil {
		t.Errorf("%+v", got)
	}
	writer, err := os.OpenFile(filepath.Join(base, "class/block/sda/dev"), os.O_WRONLY, 0)
	must(t, err)
	must(t, writer.Close())
}

// A process that gives up the right to read disks knows what it read before.
func TestDisksAfterConfinement(t *testing.T) {
	device := attach(t, hosttest.Mkfs(t, "ext4", 16).File)
	s := &scanner{sys: "/sys", udev: "/nonexistent", dev: "/dev"}
	uuid := func() (uuid string) {
		for _, d := range s.latest(timeout) {
			if "/dev/"+d.name == device {
				uuid = d.tags["UUID"]
			}
		}
		return uuid
	}
	before := uuid()
	for key, one := range s.known {
		one.at = time.Time{} // long ago
		s.known[key] = one
	}
	s.dev = "/nonexistent"
	if after := uuid(); before == "" || after != before {
		t.Errorf("%q before, %q after", before, after)
	}
}
