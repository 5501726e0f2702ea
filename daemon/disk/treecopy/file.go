package treecopy

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// pieceSize is how much of a file is copied by one system call, in bytes: so long cannot be
// canceled.
const pieceSize = 8 << 20

// syncEvery is how many bytes of a full copy may wait to be written out: a filesystem that has much
// more of them keeps others waiting.
const syncEvery = 256 << 20

// nocow is FS_NOCOW_FL of linux/fs.h. btrfs shares blocks only between files that agree in it.
const nocow = 0x800000

// file copies a regular file that is open by O_PATH, or gives its copy another name.
func (c *copier) file(fd int, name string, st unix.Stat_t) error {
	key := ""
	if st.Nlink > 1 {
		var err error
		if key, err = keyOf(fd); err != nil {
			return err
		}
		if c.o.Seen != nil { // a copy of an earlier pass is one of the file as it was then
			key += c.o.Seen.version(st.Ctim)
		}
		linked, err := c.links.link(key, c.at, name)
		if linked {
			c.done.HardLinks++
		}
		if linked || err != nil {
			return err
		}
	}
	from, err := c.leases.Open(c.step, func() (int, error) { return reopen(fd, unix.O_RDONLY) })
	if err != nil {
		return fmt.Errorf("opening it: %w", err)
	}
	defer unix.Close(from)
	to, err := openat.Open(c.at, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600, openat.Beneath)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	if err := c.data(from, to, st); err != nil {
		return err
	}
	if err := c.attributes(attributed{fd: from}, to, st); err != nil {
		return err
	}
	c.done.Files++
	if c.o.Seen != nil {
		if err := c.o.Seen.note(from, to); err != nil {
			return err
		}
	}
	if key != "" {
		if err := c.links.keep(key, c.at, name); err != nil {
			return err
		}
	}
	return setTimes(c.at, name, st)
}

// reopen opens what is open by O_PATH, and not what has its name by now. The time of access stays.
func reopen(fd, flags int) (int, error) {
	flags |= unix.O_NONBLOCK
	to, err := openat.Open(unix.AT_FDCWD, descriptor(fd), flags|unix.O_NOATIME, 0, 0)
	if errors.Is(err, unix.EPERM) {
		to, err = openat.Open(unix.AT_FDCWD, descriptor(fd), flags, 0, 0)
	}
	return to, err
}

// descriptor is the magic link of the calling thread's descriptor (proc(5)).
func descriptor(fd int) string { return fmt.Sprintf("/proc/thread-self/fd/%d", fd) }

func (c *copier) data(from, to int, st unix.Stat_t) error {
	switch {
	case c.o.Full:
		return c.copyData(from, to, st)
	case st.Size == 0:
		return nil
	default:
		return reflink(from, to)
	}
}

// reflink has the file share all blocks of another one, as it is at one moment: FICLONE holds the
// other one's lock.
func reflink(from, to int) error {
	clone := func() error { return openat.Retry(func() error { return unix.IoctlFileClone(to, from) }) }
	err := clone()
	if errors.Is(err, unix.EINVAL) && likeNocow(from, to) {
		err = clone()
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EXDEV) {
		return fmt.Errorf("%w: %w", ErrNoReflink, err)
	}
	return err
}

// likeNocow gives an empty file the flag of another one, or takes it, which it has of its directory,
// if the other one has it not.
func likeNocow(from, to int) bool {
	was, err := unix.IoctlGetInt(from, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return false
	}
	flags, err := unix.IoctlGetInt(to, unix.FS_IOC_GETFLAGS)
	return err == nil && (was^flags)&nocow != 0 &&
		unix.IoctlSetPointerInt(to, unix.FS_IOC_SETFLAGS, flags^nocow) == nil
}

// copyData copies a file's data up to the size that it had, without its holes.
func (c *copier) copyData(from, to int, st unix.Stat_t) error {
	for at := int64(0); at < st.Size; {
		data, hole, err := dataAfter(from, at, st.Size)
		if errors.Is(err, ErrWritten) || err == nil && data == hole {
			break // it was cut off meanwhile, or the rest is a hole
		}
		if err != nil {
			return err
		}
		if at, err = c.copyRange(from, to, data, hole); err != nil {
			return err
		}
	}
	if err := unix.Ftruncate(to, st.Size); err != nil {
		return err
	}
	var now unix.Stat_t
	if unix.Fstat(from, &now) == nil && (now.Size != st.Size || now.Mtim != st.Mtim) {
		c.done.Changed++
	}
	return nil
}

// copyRange copies what lies from one position to another, and returns where it stopped: at the
// end, or before where the file was cut off meanwhile, which is a hole up to the end then.
func (c *copier) copyRange(from, to int, at, end int64) (int64, error) {
	for at < end {
		if err := c.step(); err != nil {
			return at, err
		}
		size := min(end-at, pieceSize)
		if c.o.Limit > 0 && c.done.Bytes+size > c.o.Limit {
			return at, ErrLimit
		}
		in, out, n := at, at, 0
		err := openat.Retry(func() (err error) {
			n, err = unix.CopyFileRange(from, &in, to, &out, int(size), 0)
			return err
		})
		if err != nil {
			return at, fmt.Errorf("copying its data: %w", err)
		}
		if n == 0 {
			return end, nil
		}
		at += int64(n)
		if err := c.wrote(int64(n)); err != nil {
			return at, err
		}
	}
	return at, nil
}

// wrote counts bytes that a full copy wrote, and has the kernel write them out from time to time.
func (c *copier) wrote(n int64) error {
	c.done.Bytes += n
	c.o.Work.Add(0, uint64(n))
	if c.unsynced += n; c.unsynced >= syncEvery {
		c.unsynced = 0
		if err := openat.Retry(func() error { return unix.Syncfs(c.top) }); err != nil {
			return fmt.Errorf("writing it out: %w", err)
		}
	}
	return nil
}

// copySymlink makes a link with the text of one that is open by O_PATH.
func (c *copier) copySymlink(fd int, name string, st unix.Stat_t) error {
	n, err := unix.Readlinkat(fd, "", c.text)
	if err != nil {
		return fmt.Errorf("reading the link: %w", err)
	}
	return c.symlink(name, string(c.text[:n]), st)
}

func (c *copier) symlink(name, target string, st unix.Stat_t) error {
	err := openat.Retry(func() error { return unix.Symlinkat(target, c.at, name) })
	if err != nil {
		return err
	}
	c.done.Symlinks++
	if err := c.own(unix.Fchownat(c.at, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW), st); err != nil {
		return err
	}
	return setTimes(c.at, name, st)
}

// fifo makes a FIFO. The new one, which no other process has, is opened for its attributes.
func (c *copier) fifo(name string, from attributed, st unix.Stat_t) error {
	if err := openat.Retry(func() error { return unix.Mknodat(c.at, name, unix.S_IFIFO|0o600, 0) }); err != nil {
		return err
	}
	to, err := openat.Open(c.at, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0, openat.Beneath)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	c.done.FIFOs++
	if err := c.attributes(from, to, st); err != nil {
		return err
	}
	return setTimes(c.at, name, st)
}
