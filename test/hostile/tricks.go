package hostile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
)

// trick spoils a volume. end takes back what is not in the volume: processes, mounts.
type trick struct {
	name string
	// reported is what the report has to say; nil: everything is removed, and nothing reported.
	// With an empty first word both is right.
	reported []string
	play     func(s *fixture, dir string, size sizes) (end func(), err error)
}

func still(make func(s *fixture, dir string, size sizes) error) func(*fixture, string, sizes) (func(), error) {
	return func(s *fixture, dir string, size sizes) (func(), error) { return func() {}, make(s, dir, size) }
}

var tricks = []trick{
	{"links to everywhere", nil, still(links)},
	{"FIFOs, sockets, devices", nil, still(special)},
	{"10,000 levels", nil, still(deep)},
	{"names of 255 bytes, not UTF-8", nil, still(names)},
	{"immutable and append-only", nil, still(flags)},
	{"sparse and huge files", nil, still(huge)},
	{"many files, many in one directory", nil, still(many)},
	{"modes that forbid everything", nil, still(modes)},
	{"files written during the removal", nil, writing("65534")},
	{"files written during it by root", []string{"", "left"}, writing("0")},
	{"directories moved during the removal", nil, moving},
	{"directories moved out and in again", nil, movingOut},
	{"files locked, leased and mapped", nil, holding},
	{"mounts inside", []string{"something is mounted on it", "a/bound", "a/file"}, mounting},
	{"a mount inside that hangs", []string{"something is mounted on it", "hung"}, hanging},
}

func links(s *fixture, dir string, _ sizes) error {
	return errors.Join(
		os.Symlink(s.outside, dir+"/outside"), os.Symlink(filepath.Join(s.outside, "file"), dir+"/file"),
		os.Symlink("/", dir+"/root"), os.Symlink("..", dir+"/up"), os.Symlink("../"+filepath.Base(s.next), dir+"/next"),
		os.Symlink("loop", dir+"/loop"), os.Symlink("/proc/self/root", dir+"/magic"), os.Symlink(strings.Repeat("x", 1000), dir+"/long"),
		os.Mkdir(dir+"/d", 0o755), os.Symlink(s.foreign, dir+"/d/foreign"),
		os.Link(filepath.Join(s.next, "file"), dir+"/hard"), os.Link(filepath.Join(s.foreign, "directory/file"), dir+"/d/hard"),
	)
}

func special(_ *fixture, dir string, _ sizes) error {
	return errors.Join(
		unix.Mkfifo(dir+"/fifo", 0o600), unix.Mknod(dir+"/socket", unix.S_IFSOCK|0o600, 0),
		unix.Mknod(dir+"/zero", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))), unix.Mknod(dir+"/loop", unix.S_IFBLK|0o600, int(unix.Mkdev(7, 99))),
		os.Mkdir(dir+"/d", 0o700), unix.Mkfifo(dir+"/d/fifo", 0o600), unix.Mknod(dir+"/d/tape", unix.S_IFCHR|0o600, int(unix.Mkdev(9, 0))),
	)
}

func deep(_ *fixture, dir string, size sizes) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; err == nil && i < size.levels; i++ {
		var below int
		if err = unix.Mkdirat(fd, "d", 0o755); err == nil {
			below, err = unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		if err == nil && i%100 == 0 {
			err = unix.Mknodat(fd, "file", unix.S_IFREG|0o600, 0)
		}
		unix.Close(fd)
		fd = below
	}
	unix.Close(fd)
	return err
}

func names(_ *fixture, dir string, _ sizes) error {
	var err error
	for _, name := range []string{strings.Repeat("n", 255), strings.Repeat("\xfe", 255), "\xff\xfe", "new\nline", " ", "-rf", "*", "\x1b[2J\x07", ".moved-up-1", "...", "pool.json", ".hostpath-provisioner"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, name), 0o755), os.WriteFile(filepath.Join(dir, name, name), []byte("x"), 0o600))
	}
	return err
}

func flags(_ *fixture, dir string, _ sizes) error {
	err := errors.Join(os.MkdirAll(dir+"/d/e/f", 0o755), os.MkdirAll(dir+"/a/b", 0o755))
	for _, name := range []string{"file", "log", "d/file", "d/e/f/file", "a/log", "a/b/log"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	return errors.Join(err,
		chattr("+a", dir+"/log", dir+"/a/log", dir+"/a/b/log", dir+"/a/b", dir+"/a"),
		chattr("+i", dir+"/file", dir+"/d/e/f/file", dir+"/d/e/f", dir+"/d/e", dir+"/d", dir))
}

func chattr(args ...string) error {
	if out, err := exec.Command("chattr", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("chattr %q: %w: %s", args, err, out)
	}
	return nil
}

func huge(_ *fixture, dir string, _ sizes) error {
	err := os.WriteFile(dir+"/sparse", nil, 0o600)
	err = errors.Join(err, os.Truncate(dir+"/sparse", 2<<40), os.WriteFile(dir+"/full", make([]byte, 16<<20), 0o600))
	f, openErr := os.OpenFile(dir+"/holes", os.O_CREATE|os.O_WRONLY, 0o600)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	defer f.Close()
	for i := range int64(2000) { // an extent for each block
		_, writeErr := f.WriteAt([]byte("x"), i*1<<20)
		err = errors.Join(err, writeErr)
	}
	return err
}

func many(_ *fixture, dir string, size sizes) error {
	for i := range size.files {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func modes(_ *fixture, dir string, _ sizes) error {
	return errors.Join(os.MkdirAll(dir+"/d/e", 0o755), os.WriteFile(dir+"/d/e/file", nil, 0), os.Chown(dir+"/d/e", 65534, 65534),
		os.Chmod(dir+"/d/e", 0), os.Chmod(dir+"/d", 0), os.Chmod(dir, 0))
}

// writing goes on making files, directories and text as some user, from inside the volume, until
// its end.
func writing(uid string) func(*fixture, string, sizes) (func(), error) {
	return func(_ *fixture, dir string, _ sizes) (func(), error) {
		err := errors.Join(os.Mkdir(dir+"/d", 0o777), os.Chmod(dir+"/d", 0o777), os.Chmod(dir, 0o777))
		if err != nil {
			return nil, err
		}
		return process(dir, "setpriv", "--reuid", uid, "--clear-groups", "sh", "-c",
			`exec 9>held; echo ready; i=0; while i=$((i+1)); do : > f$i; mkdir -p d/$i/e; : > d/$i/e/f; echo x >&9; done 2>/dev/null`)
	}
}

// process runs in a directory until end; it has to say ready first.
func process(dir, name string, args ...string) (end func(), err error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	_, err = out.Read(make([]byte, 6))
	return func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }, err
}

// moving renames directories within the volume, while the purge walks there.
func moving(s *fixture, dir string, size sizes) (func(), error) {
	return mover(dir, dir, size)
}

// movingOut moves them into the volume next door and back, as root on the host could.
func movingOut(s *fixture, dir string, size sizes) (func(), error) {
	return mover(dir, s.next, size)
}

// mover moves directories to and fro between a volume's tree and another place, by descriptors that
// it holds, until end. What is next door in the end it removes: it is the volume's.
func mover(dir, other string, _ sizes) (func(), error) {
	const n = 50
	for i := range n {
		if err := os.MkdirAll(filepath.Join(dir, fmt.Sprint("d", i), "a", "b", "c"), 0o777); err != nil {
			return nil, err
		}
		for j := range 20 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("d", i), "a", "b", fmt.Sprint("f", j)), nil, 0o600); err != nil {
				return nil, err
			}
		}
	}
	from, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	to, err := unix.Open(other, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	stop := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		defer unix.Close(from)
		defer unix.Close(to)
		for moved := 1; moved > 0; { // until the removal left nothing to move
			moved = 0
			for i := range n {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprint("d", i)
				if unix.Renameat(from, name+"/a/b", to, "moved-"+name) == nil {
					moved++
					_ = unix.Renameat(to, "moved-"+name, from, name+"/a/b")
				}
			}
		}
	})
	return func() {
		close(stop)
		ended.Wait()
		left, _ := filepath.Glob(filepath.Join(other, "moved-*"))
		for _, name := range left {
			_ = os.RemoveAll(name)
		}
	}, nil
}

// holding keeps files open, locked, leased and mapped.
func holding(_ *fixture, dir string, _ sizes) (func(), error) {
	if err := os.WriteFile(dir+"/held", make([]byte, 4096), 0o600); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(dir+"/held", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	err = errors.Join(err, unix.Flock(int(f.Fd()), unix.LOCK_EX), os.WriteFile(dir+"/leased", nil, 0o600))
	leased, openErr := os.Open(dir + "/leased")
	if err = errors.Join(err, openErr); err != nil {
		return nil, err
	}
	_, err = unix.FcntlInt(leased.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	return func() { _ = unix.Munmap(memory); f.Close(); leased.Close() }, errors.Join(err, chattr("+i", dir+"/leased"))
}

// mounting binds a directory and a file from outside.
func mounting(s *fixture, dir string, _ sizes) (func(), error) {
	err := errors.Join(os.MkdirAll(dir+"/a/bound", 0o755), os.WriteFile(dir+"/a/file", nil, 0o600), os.WriteFile(dir+"/gone", nil, 0o600),
		unix.Mount(s.outside, dir+"/a/bound", "", unix.MS_BIND, ""), unix.Mount(filepath.Join(s.outside, "file"), dir+"/a/file", "", unix.MS_BIND, ""))
	trash := filepath.Join(s.dir, ".hostpath-provisioner/trash", filepath.Base(dir)+"~")
	return func() {
		_ = unix.Unmount(trash+"/a/bound", unix.MNT_DETACH)
		_ = unix.Unmount(trash+"/a/file", unix.MNT_DETACH)
	}, err
}

// hanging mounts a filesystem that does not respond.
func hanging(s *fixture, dir string, _ sizes) (func(), error) {
	if err := os.Mkdir(dir+"/hung", 0o755); err != nil {
		return nil, err
	}
	fs, err := hungfs.Start(dir + "/hung")
	if err != nil {
		return nil, err
	}
	fs.Silence()
	return func() { fs.Stop(filepath.Join(s.dir, ".hostpath-provisioner/trash", filepath.Base(dir)+"~", "hung")) }, nil
}
