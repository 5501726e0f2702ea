package hostcheck

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// pool is a good pool on a real ext4.
type pool struct {
	dir    string
	image  hosttest.Image
	expect Expect
	*Prober
}

func newPool(t *testing.T) *pool {
	t.Helper()
	image := hosttest.Mkfs(t, "ext4", 16)
	dir := hosttest.PoolMount(t, image)
	m := prepare(t, dir, "fast")
	p := &pool{dir: dir, image: image, expect: expectPool(dir)}
	p.expect.Remembered = m.ID
	p.Prober = NewProber(p.expect)
	return p
}

// sees probes and compares all the reasons found.
func (p *pool) sees(t *testing.T, when string, want ...string) Report {
	t.Helper()
	r := p.Probe(t.Context())
	if got := strings.Join(reasons(r), " "); got != strings.Join(want, " ") {
		t.Errorf("%s: %q, want %q\n%+v", when, got, want, r)
	}
	return r
}

// Whatever is done to the mount is seen by the next look, and so is its repair.
func TestProbeFollowsTheMount(t *testing.T) {
	p := newPool(t)
	r := p.sees(t, "at first")
	if !r.Open() || r.Marker != p.expect.Remembered || r.Size == 0 || r.Free == 0 || r.Inodes == 0 || r.Identity.Inode != 2 || r.Took <= 0 {
		t.Fatalf("%+v", r)
	}
	other := filepath.Join(hosttest.Dir(t), "other")
	must(t, os.Mkdir(other, 0o700))
	marked := filepath.Join(hosttest.Dir(t), "marked")
	must(t, os.Mkdir(marked, 0o700))
	prepare(t, marked, "slow")
	stranger := hosttest.Mkfs(t, "ext4", 16)
	for _, step := range []struct {
		name     string
		do, undo func()
		want     string
	}{
		{"unmounted", func() { hosttest.Unmount(t, p.dir) }, func() { p.image.Mount(t, p.dir) }, "NotMounted"},
		{"lazily unmounted", func() { hosttest.UnmountLazy(t, p.dir) }, func() { p.image.Mount(t, p.dir) }, "NotMounted"},
		{"filesystem read-only", func() { hosttest.Mount(t, "-o", "remount,ro", p.dir) }, func() { hosttest.Mount(t, "-o", "remount,rw", p.dir) }, "ReadOnly"},
		{"mount read-only", func() { hosttest.Mount(t, "-o", "remount,bind,ro", p.dir) }, func() { hosttest.Mount(t, "-o", "remount,bind,rw", p.dir) }, "ReadOnly"},
		{"a directory bound over it", func() { hosttest.Mount(t, "--bind", other, p.dir) }, func() { hosttest.Unmount(t, p.dir) }, "MarkerMissing"},
		{"another pool bound over it", func() { hosttest.Mount(t, "--bind", marked, p.dir) }, func() { hosttest.Unmount(t, p.dir) }, "MarkerChanged MarkerForeign"},
		{"bound over itself", func() { hosttest.Mount(t, "--bind", p.dir, p.dir) }, func() { hosttest.Unmount(t, p.dir) }, "MountedOnItself"},
		{"another filesystem in its place", func() {
			hosttest.Unmount(t, p.dir)
			stranger.Mount(t, p.dir)
			must(t, os.Chmod(p.dir, 0o700))
		}, func() {
			hosttest.Unmount(t, p.dir)
			p.image.Mount(t, p.dir)
		}, "MarkerMissing"},
		{"only the bare directory bound onto itself", func() {
			hosttest.Unmount(t, p.dir)
			hosttest.Mount(t, "--bind", p.dir, p.dir)
		}, func() {
			hosttest.Unmount(t, p.dir)
			p.image.Mount(t, p.dir)
		}, "MountedOnItself MarkerMissing"},
		{"the flag taken off while unmounted", func() {
			hosttest.Unmount(t, p.dir)
			hosttest.SetImmutable(t, p.dir, false)
			p.image.Mount(t, p.dir)
		}, func() {
			hosttest.Unmount(t, p.dir)
			hosttest.SetImmutable(t, p.dir, true)
			p.image.Mount(t, p.dir)
		}, "NotImmutable"},
		{"unmounted and mutable", func() {
			hosttest.Unmount(t, p.dir)
			hosttest.SetImmutable(t, p.dir, false)
		}, func() {
			hosttest.SetImmutable(t, p.dir, true)
			p.image.Mount(t, p.dir)
		}, "NotMounted NotImmutable"},
		{"open to others", func() { must(t, os.Chmod(p.dir, 0o755)) }, func() { must(t, os.Chmod(p.dir, 0o700)) }, "ModeTooOpen"},
		{"written by others", func() { must(t, os.Chmod(p.dir, 0o777)) }, func() { must(t, os.Chmod(p.dir, 0o700)) }, "WritableByOthers"},
		{"written by others, with the sticky bit", func() { must(t, unix.Chmod(p.dir, 0o1703)) }, func() { must(t, os.Chmod(p.dir, 0o700)) }, "WritableByOthers"},
		{"written by a group", func() { must(t, errors.Join(os.Chown(p.dir, 0, 4711), os.Chmod(p.dir, 0o720))) },
			func() { must(t, errors.Join(os.Chown(p.dir, 0, 0), os.Chmod(p.dir, 0o700))) }, "WritableByOthers"},
		{"written by a user of the access list", func() { must(t, unix.Setxattr(p.dir, accessList, letIn(4711), 0)) },
			func() { must(t, errors.Join(unix.Removexattr(p.dir, accessList), os.Chmod(p.dir, 0o700))) }, "WritableByOthers"},
	} {
		step.do()
		r := p.sees(t, step.name, strings.Fields(step.want)...)
		if r.Open() != (step.want == "ModeTooOpen") {
			t.Errorf("%s: open %v", step.name, r.Open())
		}
		if step.name == "unmounted" && (r.Size != 0 || r.Identity != mounts.Identity{}) {
			t.Errorf("the report of an unmounted pool carries the host's own disk: %+v", r)
		}
		step.undo()
		p.sees(t, "after "+step.name)
	}
}

const accessList = "system.posix_acl_access"

// letIn is an access list that gives one user everything (linux/posix_acl_xattr.h): its mask is
// what stat(2) shows as the group's bits.
func letIn(user uint32) []byte {
	list := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, bits uint16
		id        uint32
	}{{0x01, 7, ^uint32(0)}, {0x02, 7, user}, {0x04, 0, ^uint32(0)}, {0x10, 7, ^uint32(0)}, {0x20, 0, ^uint32(0)}} {
		list = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(list, e.tag), e.bits), e.id)
	}
	return list
}

// Between two looks nothing is held: a plain umount succeeds at once.
func TestProbeHoldsNothing(t *testing.T) {
	p := newPool(t)
	for range 20 {
		p.sees(t, "mounted")
		hosttest.Unmount(t, p.dir)
		p.sees(t, "unmounted", ReasonNotMounted)
		p.image.Mount(t, p.dir)
	}
}

func TestProbePaths(t *testing.T) {
	p := newPool(t)
	below := func(name string) string { return filepath.Join(p.dir, name) }
	must(t, os.Mkdir(below("sub"), 0o700))
	must(t, os.Mkdir(below("other"), 0o700))
	must(t, os.Symlink("sub", below("link")))
	must(t, os.WriteFile(below("file"), nil, 0o600))
	must(t, os.Mkdir(below("mounted"), 0o700))
	hosttest.Mount(t, "-t", "tmpfs", "t", below("mounted"))
	prepare(t, below("sub"), "fast")
	base := filepath.Dir(p.dir)
	must(t, os.Symlink("pool", filepath.Join(base, "link")))
	must(t, os.WriteFile(filepath.Join(base, "file"), nil, 0o600))
	for _, c := range []struct {
		mount, path string
		want        string
	}{
		{p.dir, below("sub"), ""},
		{p.dir, below("other"), "NotPrepared"},
		{p.dir, below("none"), "PathMissing"},
		{p.dir, below("none/deeper"), "PathMissing"},
		{p.dir, below("file"), "NotADirectory"},
		{p.dir, below("file/deeper"), "NotADirectory"},
		{p.dir, below("link"), "SymlinkInPath"},
		{p.dir, below("mounted"), "WrongMount"},
		{p.dir, below("mounted/deeper"), "WrongMount"},
		{p.dir, base, "WrongMount"}, // not beneath the mount point at all
		{base + "/none", base + "/none", "PathMissing"},
		{base + "/file", base + "/file", "NotADirectory"},
		{base + "/link", base + "/link", "SymlinkInPath"},
		{base, p.dir, "NotMounted NotImmutable"},
		{"/", "/", "RootFilesystem"},
	} {
		e := expectPool(c.path)
		e.MountPoint = c.mount
		r := NewProber(e).Probe(t.Context())
		got := strings.Join(reasons(r), " ")
		if c.mount == "/" { // what else is found there is this machine's affair
			got, _, _ = strings.Cut(got, " ")
		}
		if got != c.want {
			t.Errorf("%s at %s: %q, want %q\n%+v", c.path, c.mount, got, c.want, r)
		}
	}
}

// Two paths of one directory, or of one inside the other, are seen through bind mounts.
func TestProbeOverlap(t *testing.T) {
	p := newPool(t)
	must(t, os.MkdirAll(filepath.Join(p.dir, "volume/deep"), 0o700))
	apart := filepath.Join(hosttest.Dir(t), "apart")
	must(t, os.Mkdir(apart, 0o700))
	for name, c := range map[string]struct{ from, below, want string }{
		"the same":     {p.dir, "", ReasonPoolsOverlap},
		"inside":       {filepath.Join(p.dir, "volume"), "/deep", ReasonPoolsOverlap},
		"around":       {p.dir, "/volume", ReasonPoolsOverlap},
		"another disk": {apart, "", ""},
	} {
		point := filepath.Join(hosttest.Dir(t), "again")
		must(t, os.Mkdir(point, 0o700))
		hosttest.Mount(t, "--bind", c.from, point)
		e := p.expect
		e.Before = []Neighbour{{"first", point + c.below}}
		r := NewProber(e).Probe(t.Context())
		if got := strings.Join(reasons(r), " "); got != c.want || r.Open() != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		hosttest.Unmount(t, point)
	}
}

func TestProbePlainDirectory(t *testing.T) {
	dir := hosttest.Dir(t)
	m := prepare(t, dir, "fast")
	e := Expect{Pool: "fast", Path: dir, MountPoint: dir, Remembered: m.ID, Immutable: ImmutableRequire}
	r := NewProber(e).Probe(t.Context())
	if got := reasons(r); len(got) != 1 || got[0] != ReasonPlainDirectory || !r.Open() || r.Size == 0 || r.Marker != m.ID {
		t.Fatalf("%+v", r)
	}
	must(t, os.RemoveAll(dir))
	if got := reasons(NewProber(e).Probe(t.Context())); len(got) != 2 || got[0] != ReasonPathMissing {
		t.Fatalf("removed: %v", got)
	}
}

// The device is known by the filesystem's own UUID, by its node, or not at all.
func TestProbeDevice(t *testing.T) {
	p := newPool(t)
	table, err := mounts.Read()
	must(t, err)
	on, _ := mounts.Covering(table, p.dir)
	for device, want := range map[string]string{
		"UUID=" + p.image.UUID(t):                  "",
		"UUID=" + strings.ToUpper(p.image.UUID(t)): "",
		on.Source: "",
		"UUID=00000000-0000-0000-0000-000000000001": ReasonWrongDevice,
		"LABEL=there is none":                       ReasonDeviceMissing,
		"/dev/none":                                 ReasonDeviceMissing,
		"/dev/null":                                 ReasonDeviceMissing, // not a disk
		"server:/export":                            ReasonWrongDevice,
	} {
		e := p.expect
		e.Device = device
		if got := strings.Join(reasons(NewProber(e).Probe(t.Context())), " "); got != want {
			t.Errorf("%s: %q, want %q", device, got, want)
		}
	}
	e := p.expect
	e.Filesystem = "xfs"
	if got := reasons(NewProber(e).Probe(t.Context())); len(got) != 1 || got[0] != ReasonWrongFilesystem {
		t.Errorf("filesystem: %v", got)
	}
}

// In the service /dev has no disks: the host's is looked at where the unit shows it, links and all.
func TestProbeShownDevice(t *testing.T) {
	hosttest.Mount(t, "-t", "tmpfs", "none", "/run")
	defer hosttest.Unmount(t, "/run")
	must(t, os.MkdirAll(ShownDev+"/disk/by-label", 0o755))
	must(t, unix.Mknod(ShownDev+"/shown", unix.S_IFBLK|0o600, int(unix.Mkdev(254, 77))))
	must(t, os.Symlink("../../shown", ShownDev+"/disk/by-label/of-the-pool"))
	for path, want := range map[string]string{
		"/dev/disk/by-label/of-the-pool": "254:77",
		"/dev/shown":                     "254:77",
		"/dev/none":                      "",
		"/dev/disk/by-label":             "",
	} {
		if got := deviceNumber(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// A filesystem that fails by itself changes nothing in the mount table's poll mark; the look itself
// must see it.
func TestProbeShutDownFilesystem(t *testing.T) {
	for _, fs := range []struct {
		name string
		mib  int
	}{{"ext4", 16}, {"xfs", 320}} {
		dir := hosttest.PoolMount(t, hosttest.Mkfs(t, fs.name, fs.mib))
		prepare(t, dir, "fast")
		p := &pool{Prober: NewProber(expectPool(dir))}
		p.sees(t, fs.name)
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		const shutdown, noFlush = 0x8004587d, 2 // FS_IOC_SHUTDOWN
		must(t, unix.IoctlSetPointerInt(fd, shutdown, noFlush))
		must(t, unix.Close(fd))
		if r := p.Probe(t.Context()); r.Open() {
			t.Errorf("%s: a filesystem that was shut down is open: %+v", fs.name, r)
		}
	}
}

// A disk that is gone can still be read from the page cache. A look past the cache finds out,
// within expensiveEvery.
func TestProbeYankedDisk(t *testing.T) {
	p := newPool(t)
	fd, err := unix.Open(p.dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	must(t, unix.Syncfs(fd))
	must(t, unix.Close(fd))
	p.sees(t, "before")
	defer hosttest.KeepCached(t, filepath.Join(p.dir, ".hostpath-provisioner", "pool.json"))()
	must(t, os.Truncate(p.image.File, 0)) // the loop device fails every read with EIO now
	p.sees(t, "from the cache")
	p.look.now = func() time.Time { return time.Now().Add(expensiveEvery) }
	p.sees(t, "from the device", ReasonUnreadable)
}

// The look under the mount is not repeated while the same mounts stand there and expensiveEvery has
// not passed; what is not good is looked at again at once.
func TestProbeDeepIsKept(t *testing.T) {
	p := newPool(t)
	base := filepath.Dir(p.dir)
	door := filepath.Join(hosttest.Dir(t), "door") // another way to the bare directory
	must(t, os.Mkdir(door, 0o700))
	hosttest.Mount(t, "--bind", base, door)
	bare := filepath.Join(door, "pool")
	start := time.Now()
	now := start
	p.look.now = func() time.Time { return now }

	p.sees(t, "at first")
	hosttest.SetImmutable(t, bare, false)
	p.sees(t, "kept")
	now = start.Add(expensiveEvery - 1)
	p.sees(t, "still kept")
	now = start.Add(expensiveEvery)
	p.sees(t, "looked again", ReasonNotImmutable)
	hosttest.SetImmutable(t, bare, true)
	p.sees(t, "a repair is seen at once")
	hosttest.SetImmutable(t, bare, false)
	hosttest.Mount(t, "-o", "remount,bind,noatime", p.dir)
	p.sees(t, "the mount changed", ReasonNotImmutable)
	hosttest.SetImmutable(t, bare, true)
	p.sees(t, "repaired")
	now = start // the clock was set back
	hosttest.SetImmutable(t, bare, false)
	p.sees(t, "clock set back", ReasonNotImmutable)
}

// In a storm of mounts and unmounts every look is of one moment: the pool is either mounted, whole
// and its own, or closed for being unmounted. Never is it open on the host's own disk.
func TestProbeInAStorm(t *testing.T) {
	p := newPool(t)
	identity := p.sees(t, "before").Identity
	var stop atomic.Bool
	var looks atomic.Int64
	var storm sync.WaitGroup
	loop := filepath.Join(filepath.Dir(p.dir), "kept")
	must(t, os.Mkdir(loop, 0o700))
	p.image.Mount(t, loop) // so that the loop device stays
	storm.Go(func() {
		for round := 0; !stop.Load(); round++ {
			// Half of the time the mount stays until a look or two were made of it.
			for end := looks.Load() + int64(round%3); looks.Load() < end && !stop.Load(); {
				runtime.Gosched()
			}
			if err := errors.Join(unix.Unmount(p.dir, unix.MNT_DETACH), unix.Mount(loop, p.dir, "", unix.MS_BIND, "")); err != nil {
				t.Error(err)
				return
			}
		}
	})
	seen := map[string]int{}
	for range 3000 {
		r := p.Probe(t.Context())
		looks.Add(1)
		seen[strings.Join(reasons(r), " ")]++
		if r.Open() && (r.Marker != p.expect.Remembered || r.Identity.DevMinor != identity.DevMinor || r.Identity.Inode != identity.Inode) {
			t.Fatalf("open on something else: %+v", r)
		}
	}
	stop.Store(true)
	storm.Wait()
	t.Log(seen)
	for found := range seen {
		switch found {
		case "", ReasonNotMounted, ReasonMountsChanging:
		default:
			t.Errorf("facts %q %d times", found, seen[found])
		}
	}
	if seen[""] == 0 || seen[ReasonNotMounted] == 0 {
		t.Errorf("the storm was none: %v", seen)
	}
}

// Many callers at once share looks, and each gets one that began after its call.
func TestProbeIsShared(t *testing.T) {
	p := newPool(t)
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			for range 20 {
				if r := p.Probe(context.Background()); !r.Open() {
					t.Errorf("%+v", r)
				}
			}
		})
	}
	wait.Wait()
	for range 100 {
		wait.Go(func() { p.Probe(context.Background()) })
		hosttest.UnmountLazy(t, p.dir)
		p.sees(t, "the look after an unmount", ReasonNotMounted)
		p.image.Mount(t, p.dir)
	}
	wait.Wait()
}
