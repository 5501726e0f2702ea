package quota

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// The kernels that limits are enforced by are in a virtual machine: the chapter quota of test/vm.

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// The structures have the layout of linux/dqblk_xfs.h and linux/fs.h, so that the kernel writes no
// byte behind them.
func TestLayout(t *testing.T) {
	var d diskQuota
	var s stateV
	var x fsxattr
	for name, c := range map[string]struct{ got, want uintptr }{
		"size of fs_disk_quota":             {unsafe.Sizeof(d), 112},
		"offset of d_id":                    {unsafe.Offsetof(d.id), 4},
		"offset of d_blk_hardlimit":         {unsafe.Offsetof(d.blocksHard), 8},
		"offset of d_ino_hardlimit":         {unsafe.Offsetof(d.inodesHard), 24},
		"offset of d_bcount":                {unsafe.Offsetof(d.blocks), 40},
		"offset of d_icount":                {unsafe.Offsetof(d.inodes), 48},
		"offset of qs_flags":                {unsafe.Offsetof(s.flags), 2},
		"size of fsxattr":                   {unsafe.Sizeof(x), 28},
		"offset of fsx_projid":              {unsafe.Offsetof(x.projid), 12},
		"size in the number of the request": {unsafe.Sizeof(x), fsGetXattr >> 16 & 0x3fff},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", name, c.got, c.want)
		}
	}
	if size := unsafe.Sizeof(s); size < 160 {
		t.Errorf("fs_quota_statv has 160 bytes, and there is room for %d", size)
	}
}

// A limit is passed in blocks of 512 bytes, rounded down, and takes the soft limits away.
func TestDiskQuota(t *testing.T) {
	for name, c := range map[string]struct {
		limit          Limit
		blocks, inodes uint64
	}{
		"a whole number of blocks": {Limit{Bytes: 1 << 20}, 2048, 0},
		"a rest":                   {Limit{Bytes: 1023}, 1, 0},
		"inodes alone":             {Limit{Inodes: 100}, 0, 100},
		"none":                     {Limit{}, 0, 0},
	} {
		d := c.limit.diskQuota(7)
		if d.blocksHard != c.blocks || d.inodesHard != c.inodes || d.blocksSoft != 0 || d.inodesSoft != 0 {
			t.Errorf("%s: %+v", name, d)
		}
		if d.id != 7 || d.flags != ofProject || d.version != fsDiskQuota || d.fields != 0xf {
			t.Errorf("%s: of project %d, flags %d, version %d, fields %x", name, d.id, d.flags, d.version, d.fields)
		}
		if u := d.usage(); u.ID != 7 || u.Limit.Bytes != c.limit.Bytes/512*512 || u.Limit.Inodes != c.limit.Inodes {
			t.Errorf("%s: read back as %+v", name, u)
		}
	}
}

// table is a filesystem's quotas, in the order of their ids.
type table []diskQuota

func (known table) next(id uint32, d *diskQuota) error {
	for _, q := range known {
		if q.id >= id {
			*d = q
			return nil
		}
	}
	return unix.ENOENT
}

func TestFrom(t *testing.T) {
	known := table{{id: 3, blocks: 8}, {id: 4}, {id: 9, inodesHard: 5}, {id: 1<<32 - 1, inodes: 1}}
	for name, c := range map[string]struct {
		id   uint32
		n    int
		want []uint32
	}{
		"all, without one that is free":         {0, 10, []uint32{3, 9, 1<<32 - 1}},
		"from one that is known":                {9, 10, []uint32{9, 1<<32 - 1}},
		"no more than asked for":                {0, 1, []uint32{3}},
		"the highest id ends it":                {1<<32 - 1, 10, []uint32{1<<32 - 1}},
		"none is left":                          {0, 0, nil},
		"a free one does not count towards two": {4, 2, []uint32{9, 1<<32 - 1}},
	} {
		var got []uint32
		all, err := from(c.id, c.n, known.next)
		for _, u := range all {
			got = append(got, u.ID)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
	if all, err := from(10, 10, known[:3].next); err != nil || all != nil {
		t.Errorf("behind the last one: %v, %v", all, err)
	}
	if _, err := from(0, 10, func(uint32, *diskQuota) error { return unix.EIO }); !errors.Is(err, unix.EIO) {
		t.Errorf("a disk that fails: %v", err)
	}
}

func TestFree(t *testing.T) {
	for name, c := range map[string]struct {
		usage Usage
		free  bool
	}{
		"nothing":             {Usage{ID: 7}, true},
		"an empty file":       {Usage{ID: 7, Inodes: 1}, false},
		"a limit of inodes":   {Usage{ID: 7, Limit: Limit{Inodes: 1}}, false},
		"a limit of bytes":    {Usage{ID: 7, Limit: Limit{Bytes: 512}}, false},
		"bytes without inode": {Usage{ID: 7, Bytes: 512}, false},
	} {
		if c.usage.Free() != c.free {
			t.Errorf("%s: free is %t", name, !c.free)
		}
	}
}

// A directory hands its project down if it inherits, and keeps its other flags.
func TestSetProject(t *testing.T) {
	dir := hosttest.PoolMount(t, hosttest.Mkfs(t, "xfs", 300))
	fd := openDir(t, dir)
	if p := ProjectOf(fd); p != (Project{}) {
		t.Errorf("a new filesystem's is %+v", p)
	}
	hosttest.Run(t, "chattr", "+A", dir) // FS_XFLAG_NOATIME
	for _, p := range []Project{{7, true}, {8, false}, {MostID, true}} {
		if err := SetProject(fd, p); err != nil || ProjectOf(fd) != p {
			t.Errorf("%+v: %v, read back as %+v", p, err, ProjectOf(fd))
		}
	}
	var x fsxattr
	if err := x.call(fd, fsGetXattr); err != nil || x.xflags&0x40 == 0 {
		t.Errorf("the flag of chattr +A went: %x, %v", x.xflags, err)
	}
	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	if p := ProjectOf(openDir(t, below)); p != (Project{MostID, true}) {
		t.Errorf("handed down as %+v", p)
	}
}

// Where there are no quotas, there are none: not an error, and never a limit that seems to be set.
func TestWithoutQuotas(t *testing.T) {
	fd := openDir(t, hosttest.Dir(t))
	if s, err := StateOf(fd); s != (State{}) || err != nil {
		t.Errorf("state: %+v, %v", s, err)
	}
	if err := Set(fd, 7, Limit{Bytes: 512}); err == nil {
		t.Error("a limit was set")
	}
	if u, err := Get(fd, 7); err == nil && u != (Usage{ID: 7}) {
		t.Errorf("usage: %+v", u)
	}
	if err := SetProject(-1, Project{}); !errors.Is(err, unix.EBADF) {
		t.Errorf("a closed descriptor: %v", err)
	}
	if _, err := StateOf(-1); !errors.Is(err, unix.EBADF) {
		t.Errorf("the state behind a closed descriptor: %v", err)
	}
	if err := Probe(); err != nil {
		t.Error(err)
	}
}

func openDir(t *testing.T, dir string) int {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}
