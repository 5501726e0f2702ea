package prepare

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// host is one host with one pool, as an operator has it: a configuration and directories.
type host struct {
	t     *testing.T
	base  string
	pool  config.Pool
	state string
	owner Owner
}

func newHost(t *testing.T) *host {
	base := hosttest.Dir(t)
	h := &host{t: t, base: base, pool: config.DefaultPool("fast"), state: base + "/state"}
	h.pool.Path, h.pool.MountPoint = base+"/pool", base+"/pool"
	return h
}

var id = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)

// run prepares and returns everything that was printed, with the test's directory and the
// accidental parts taken out.
func (h *host) run(replace bool) string {
	h.t.Helper()
	o := h.options()
	o.Replace = replace
	return h.said(Run(context.Background(), o))
}

func (h *host) options() Options {
	prober := hostcheck.NewProber(hostcheck.Expect{
		Pool: h.pool.Name, Path: h.pool.Path, MountPoint: h.pool.MountPoint, RequireMount: h.pool.RequireMount, Node: h.owner.Node,
		Immutable: hostcheck.Immutability(h.pool.Immutable), Filesystem: h.pool.Filesystem, Device: h.pool.Device,
	})
	return Options{
		Pool: h.pool, StateDir: h.state, Owner: h.owner,
		Marking: volume.New(volume.Options{Name: h.pool.Name, Path: h.pool.Path}), Check: prober.Probe,
	}
}

func (h *host) said(r Result, err error) string {
	said := append([]string(nil), r.Done...)
	for _, n := range r.Notes {
		said = append(said, "note: "+n)
	}
	if err != nil {
		said = append(said, "error: "+err.Error())
	} else if !r.Mounted {
		said = append(said, "not mounted")
	}
	text := id.ReplaceAllString(strings.ReplaceAll(strings.Join(said, "\n"), h.base, ""), "ID")
	text = strings.ReplaceAll(text, time.Now().UTC().Format(time.DateOnly), "TODAY")
	return regexp.MustCompile(`/dev/loop\d+`).ReplaceAllString(text, "LOOP")
}

func (h *host) want(got string, lines ...string) {
	h.t.Helper()
	if want := strings.Join(lines, "\n"); got != want {
		h.t.Errorf("said\n%s\nwant\n%s", got, want)
	}
}

// snapshot is everything below the pool and the state directory: modes, flags, names. Images and
// the kernel's own lost+found are left out.
func (h *host) snapshot() string {
	h.t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(h.base, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == h.base || d.Name() == "lost+found" || strings.HasSuffix(path, ".img") {
			return nil
		}
		info, err := d.Info()
		flags := ""
		if d.IsDir() && immutable(h.t, path) {
			flags = " immutable"
		}
		fmt.Fprintf(&b, "%s %s%s\n", info.Mode(), strings.TrimPrefix(path, h.base), flags)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return b.String()
}

func immutable(t *testing.T, path string) bool {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	is, err := mounts.Immutable(fd)
	if err != nil && !errors.Is(err, mounts.ErrCannotTell) {
		t.Fatal(err)
	}
	return is
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) compare(want string) {
	h.t.Helper()
	if got := h.snapshot(); got != want {
		h.t.Errorf("the snapshot is\n%swant\n%s", got, want)
	}
}

const prepared = `drwx------ /pool
drwx------ /pool/.hostpath-provisioner
drwx------ /pool/.hostpath-provisioner/archive
-rw------- /pool/.hostpath-provisioner/pool.json
drwx------ /pool/.hostpath-provisioner/staging
drwx------ /pool/.hostpath-provisioner/trash
drwx------ /pool/.hostpath-provisioner/volumes
drwx------ /state
drwx------ /state/pools
-rw------- /state/pools/fast.json
`

// The way of the manual, from nothing: prepare, mount, prepare, and once more for nothing.
func TestFromNothing(t *testing.T) {
	h := newHost(t)
	defer hosttest.SetImmutable(t, h.pool.Path, false)
	h.want(h.run(false), "made /pool with mode 0700", "made the directory /pool itself immutable (chattr +i)", "not mounted")
	h.compare("drwx------ /pool immutable\n")
	h.want(h.run(false), "not mounted")
	h.compare("drwx------ /pool immutable\n")

	image := hosttest.Mkfs(t, "ext4", 16)
	image.Mount(t, h.pool.Path)
	h.want(h.run(false), "changed the mode of /pool from 0755 to 0700", "wrote marker ID on the filesystem of /pool", "remembered marker ID (of TODAY) for pool fast")
	h.compare(prepared)
	h.want(h.run(false), "")
	h.want(h.run(true), "")
	h.compare(prepared)
	hosttest.Unmount(t, h.pool.Path) // plainly: nothing was left open
	h.want(h.run(false), "not mounted")
}

// Storage that has been mounted for years gets the flag below it, without an unmount.
func TestAlreadyMounted(t *testing.T) {
	h := newHost(t)
	h.must(os.Mkdir(h.pool.Path, 0o755))
	hosttest.Mkfs(t, "ext4", 16).Mount(t, h.pool.Path)
	h.want(h.run(false), "made the directory /pool itself immutable (chattr +i)", "changed the mode of /pool from 0755 to 0700",
		"wrote marker ID on the filesystem of /pool", "remembered marker ID (of TODAY) for pool fast")
	h.compare(prepared)
	hosttest.Unmount(t, h.pool.Path)
	defer hosttest.SetImmutable(t, h.pool.Path, false)
	h.compare("drwxr-xr-x /pool immutable\ndrwx------ /state\ndrwx------ /state/pools\n-rw------- /state/pools/fast.json\n")
}

func TestPoolBelowItsMount(t *testing.T) {
	h := newHost(t)
	h.pool.Path = h.pool.MountPoint + "/volumes"
	h.must(os.Mkdir(h.pool.MountPoint, 0o755))
	hosttest.SetImmutable(t, h.pool.MountPoint, true)
	hosttest.Mkfs(t, "ext4", 16).Mount(t, h.pool.MountPoint)
	h.want(h.run(false), "made /pool/volumes with mode 0700", "wrote marker ID on the filesystem of /pool/volumes", "remembered marker ID (of TODAY) for pool fast")
	h.compare(`drwxr-xr-x /pool
drwx------ /pool/volumes
drwx------ /pool/volumes/.hostpath-provisioner
drwx------ /pool/volumes/.hostpath-provisioner/archive
-rw------- /pool/volumes/.hostpath-provisioner/pool.json
drwx------ /pool/volumes/.hostpath-provisioner/staging
drwx------ /pool/volumes/.hostpath-provisioner/trash
drwx------ /pool/volumes/.hostpath-provisioner/volumes
drwx------ /state
drwx------ /state/pools
-rw------- /state/pools/fast.json
`)
}

func TestPlainDirectory(t *testing.T) {
	h := newHost(t)
	h.pool.RequireMount = false
	h.want(h.run(false), "made /pool with mode 0700", "wrote marker ID on the filesystem of /pool", "remembered marker ID (of TODAY) for pool fast")
	h.compare(prepared)
	h.want(h.run(false), "")
}

// A directory in use keeps its mode, and prepare reports that.
func TestDirectoryInUse(t *testing.T) {
	h := newHost(t)
	h.pool.RequireMount = false
	h.must(os.Mkdir(h.pool.Path, 0o755))
	h.must(os.Mkdir(h.pool.Path+"/data", 0o755))
	h.want(h.run(false), "wrote marker ID on the filesystem of /pool", "remembered marker ID (of TODAY) for pool fast",
		"note: the mode of /pool is 0755 and was left, because the directory is in use")
	h.compare(strings.Replace(strings.Replace(prepared, "drwx------ /pool\n", "drwxr-xr-x /pool\n", 1), "drwx------ /state\n", "drwxr-xr-x /pool/data\ndrwx------ /state\n", 1))
}

// Who may write to the directory may swap the volumes in it: that is taken away, and nothing else.
func TestWritableInUse(t *testing.T) {
	h := newHost(t)
	h.must(os.Mkdir(h.pool.Path, 0o755))
	hosttest.SetImmutable(t, h.pool.Path, true)
	hosttest.Mkfs(t, "ext4", 16).Mount(t, h.pool.Path)
	h.must(errors.Join(os.Mkdir(h.pool.Path+"/data", 0o755), os.Chmod(h.pool.Path+"/data", 0o777)))
	for mode, want := range map[fs.FileMode]string{0o777: "0755", 0o777 | fs.ModeSticky: "0755", 0o770: "0750", 0o702: "0700"} {
		h.must(os.Chmod(h.pool.Path, mode))
		got := h.run(false)
		first, _, _ := strings.Cut(got, "\n")
		if changed := fmt.Sprintf("changed the mode of /pool from %04o to %s", mode.Perm(), want); first != changed {
			t.Errorf("%v: said\n%s\nwant first %s", mode, got, changed)
		}
		info, err := os.Stat(h.pool.Path)
		h.must(err)
		if fmt.Sprintf("%04o", info.Mode().Perm()) != want || info.Mode()&fs.ModeSticky != mode&fs.ModeSticky {
			t.Errorf("%v became %v", mode, info.Mode())
		}
		if note := "the mode of /pool is " + want + " and was left"; strings.Contains(got, note) != (want != "0700") {
			t.Errorf("%v: said\n%s", mode, got)
		}
	}
	if info, err := os.Stat(h.pool.Path + "/data"); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("the volume: %v, %v", info, err)
	}
}

// What refuses before anything is mounted leaves everything as it was.
func TestSurprisesUnmounted(t *testing.T) {
	for name, c := range map[string]struct {
		make func(h *host)
		want string
		is   error
	}{
		"no parent": {func(h *host) { h.pool.Path, h.pool.MountPoint = h.base+"/no/pool", h.base+"/no/pool" },
			"error: /no/pool: the parent directory does not exist", ErrNoParent},
		"symlink": {func(h *host) { h.must(os.Mkdir(h.base+"/real", 0o700)); h.must(os.Symlink("real", h.pool.Path)) },
			"error: /pool: a component of the path is a symbolic link", ErrSymlink},
		"dangling symlink": {func(h *host) { h.must(os.Symlink("nowhere", h.pool.Path)) },
			"error: /pool: a component of the path is a symbolic link", ErrSymlink},
		"symlink above": {func(h *host) {
			h.must(os.Mkdir(h.base+"/real", 0o700))
			h.must(os.Symlink("real", h.base+"/link"))
			h.pool.Path, h.pool.MountPoint = h.base+"/link/pool", h.base+"/link/pool"
		}, "error: /link/pool: a component of the path is a symbolic link", ErrSymlink},
		"file": {func(h *host) { h.must(os.WriteFile(h.pool.Path, nil, 0o600)) },
			"error: /pool: not a directory", ErrNotDirectory},
		"FIFO": {func(h *host) { h.must(unix.Mkfifo(h.pool.Path, 0o600)) },
			"error: /pool: not a directory", ErrNotDirectory},
		"file above": {func(h *host) {
			h.must(os.WriteFile(h.base+"/file", nil, 0o600))
			h.pool.Path, h.pool.MountPoint = h.base+"/file/pool", h.base+"/file/pool"
		}, "error: /file/pool: not a directory", ErrNotDirectory},
		"one file in it": {func(h *host) { h.must(os.Mkdir(h.pool.Path, 0o700)); h.must(os.Mkdir(h.pool.Path+"/a b", 0o700)) },
			`error: /pool has "a b": not empty`, ErrNotEmpty},
		"many": {func(h *host) {
			for _, n := range []string{"", "/d", "/c", "/b", "/a", "/e"} {
				h.must(os.Mkdir(h.pool.Path+n, 0o700))
			}
		}, `error: /pool has "a", "b", "c", 2 more: not empty`, ErrNotEmpty},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			c.make(h)
			before := h.snapshot()
			h.want(h.run(false), c.want)
			h.want(h.run(true), c.want)
			h.compare(before)
		})
	}
}

// Files that lie hidden under the mount have an owner; the flag would freeze them.
func TestFilesUnderTheMount(t *testing.T) {
	h := newHost(t)
	h.must(os.MkdirAll(h.pool.Path+"/hidden", 0o755))
	hosttest.Mkfs(t, "ext4", 16).Mount(t, h.pool.Path)
	before := h.snapshot()
	h.want(h.run(false), `error: /pool has "hidden": not empty`)
	h.compare(before)
	hosttest.Unmount(t, h.pool.Path)
	if immutable(t, h.pool.Path) {
		t.Error("the directory was made immutable")
	}
}

// What is mounted and should not be gets neither a mode nor a marker.
func TestUnfit(t *testing.T) {
	for name, c := range map[string]struct {
		fs      string
		options []string
		change  func(p *config.Pool)
		reason  string
	}{
		"wrong device":     {"ext4", nil, func(p *config.Pool) { p.Device = "UUID=0a1b2c3d-1111-2222-3333-444455556666" }, hostcheck.ReasonWrongDevice},
		"wrong filesystem": {"ext4", nil, func(p *config.Pool) { p.Filesystem = "xfs" }, hostcheck.ReasonWrongFilesystem},
		"read-only":        {"ext4", []string{"ro"}, func(*config.Pool) {}, hostcheck.ReasonReadOnly},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			c.change(&h.pool)
			h.must(os.Mkdir(h.pool.Path, 0o700))
			hosttest.SetImmutable(t, h.pool.Path, true)
			hosttest.Mkfs(t, c.fs, 16).Mount(t, h.pool.Path, c.options...)
			before := h.snapshot()
			o := h.options()
			o.Replace = true
			_, err := Run(context.Background(), o)
			var unfit *UnfitError
			if !errors.As(err, &unfit) || unfit.Finding.Reason != c.reason || !strings.HasPrefix(err.Error(), `pool "fast": `) {
				t.Errorf("%v, want %s", err, c.reason)
			}
			h.compare(before)
		})
	}
}

// Another disk in the pool's place is refused, with and without a marker of its own, until it is
// accepted in so many words.
func TestAnotherFilesystem(t *testing.T) {
	h := newHost(t)
	h.run(false)
	defer hosttest.SetImmutable(t, h.pool.Path, false)
	first, second := hosttest.Mkfs(t, "ext4", 16), hosttest.Mkfs(t, "ext4", 16)
	first.Mount(t, h.pool.Path)
	h.run(false)
	hosttest.Unmount(t, h.pool.Path)

	second.Mount(t, h.pool.Path)
	before := h.snapshot()
	h.want(h.run(false), `error: pool "fast": marker ID is remembered and the filesystem has none: another filesystem was prepared for this pool`)
	h.compare(before)
	h.want(h.run(true), "changed the mode of /pool from 0755 to 0700", "wrote marker ID on the filesystem of /pool", "remembered marker ID (of TODAY) for pool fast")
	hosttest.Unmount(t, h.pool.Path)

	first.Mount(t, h.pool.Path)
	before = h.snapshot()
	h.want(h.run(false), `error: pool "fast": marker ID is remembered and the filesystem has ID: another filesystem was prepared for this pool`)
	h.compare(before)
	h.want(h.run(true), "remembered marker ID (of TODAY) for pool fast")
	h.want(h.run(false), "")
	// A state directory that was lost is filled again from the disk.
	h.must(os.RemoveAll(h.state))
	h.want(h.run(false), "remembered marker ID (of TODAY) for pool fast")
	// One that is damaged is not taken for lost.
	h.must(os.WriteFile(h.state+"/pools/fast.json", []byte("{"), 0o600))
	h.want(h.run(false), "error: /state/pools/fast.json: the marker cannot be understood: unexpected end of JSON input")
	h.want(h.run(true), "remembered marker ID (of TODAY) for pool fast")
	hosttest.Unmount(t, h.pool.Path)
}

// The marker of another pool is never taken over, nor one that cannot be read.
func TestForeignMarkers(t *testing.T) {
	h := newHost(t)
	h.pool.RequireMount = false
	h.run(false)
	before := h.snapshot()
	h.pool.Name = "slow"
	want := `error: pool "slow": marker ID is of pool "fast": the filesystem belongs to another pool`
	h.want(h.run(false), want)
	h.want(h.run(true), want)
	h.compare(before)
	h.must(os.WriteFile(h.pool.Path+"/.hostpath-provisioner/pool.json", []byte("{"), 0o600))
	want = `error: pool "slow": the marker cannot be understood: unexpected end of JSON input`
	h.want(h.run(false), want)
	h.want(h.run(true), want)
}

// A filesystem without the flag, below the mount point: an error, a note, or nothing.
func TestNoFlag(t *testing.T) {
	for immutable, want := range map[string]string{
		config.ImmutableRequire: "made /ramfs/pool with mode 0700\nerror: /ramfs/pool: the filesystem has no immutable flag",
		config.ImmutableWarn:    "made /ramfs/pool with mode 0700\nnote: the filesystem of /ramfs/pool has no immutable flag\nnot mounted",
		config.ImmutableOff:     "made /ramfs/pool with mode 0700\nnot mounted",
	} {
		h := newHost(t)
		h.must(os.Mkdir(h.base+"/ramfs", 0o700))
		hosttest.Mount(t, "-t", "ramfs", "none", h.base+"/ramfs")
		h.pool.Path, h.pool.MountPoint, h.pool.Immutable = h.base+"/ramfs/pool", h.base+"/ramfs/pool", immutable
		h.want(h.run(false), want)
	}
}

// A crash between the marker and the memory of it is finished by the next call.
func TestCrashBeforeRemembering(t *testing.T) {
	h := newHost(t)
	h.pool.RequireMount = false
	h.run(false)
	h.must(os.Remove(filepath.Join(h.state, "pools", "fast.json")))
	h.want(h.run(false), "remembered marker ID (of TODAY) for pool fast")
	h.compare(prepared)
}

// Storage that an automounter mounts is prepared as if it were mounted; what does not come is not.
func TestAutomounted(t *testing.T) {
	h := newHost(t)
	h.must(os.Mkdir(h.pool.Path, 0o700))
	image := hosttest.Mkfs(t, "ext4", 16)
	a := hosttest.Automount(t, h.pool.Path, "-o", "loop", image.File, h.pool.Path)
	a.Fails()
	h.want(h.run(true), `error: pool "fast": /pool (autofs, hosttest) is an automount point, and nothing is mounted there: no such file or directory`)
	a.Mounts("-o", "loop", image.File, h.pool.Path)
	h.want(h.run(false), "made the directory /pool itself immutable (chattr +i)", "changed the mode of /pool from 0755 to 0700",
		"wrote marker ID on the filesystem of /pool", "remembered marker ID (of TODAY) for pool fast")
	hosttest.Unmount(t, h.pool.Path)
	h.want(h.run(false), "")
	h.compare(prepared)
	hosttest.Unmount(t, h.pool.Path)
	hosttest.UnmountLazy(t, h.pool.Path)
	if !immutable(t, h.pool.Path) {
		t.Error("the directory under the automounter's is not immutable")
	}
	hosttest.SetImmutable(t, h.pool.Path, false)
}
