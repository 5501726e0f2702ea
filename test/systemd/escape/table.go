package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// baits are directories that test/systemd makes, in each of which root has a file: one in each tree
// that matters, and on the filesystem of another pool, beside that pool.
var baits = []string{
	"/run/escape-bait", "/etc/escape-bait", "/var/lib/escape-bait", "/data/escape-bait", "/opt/escape-bait",
}

// place is a directory and a file in it, and what could be opened of them; -1 for nothing.
type place struct {
	dir, file     string
	dirFD, fileFD int
}

// places are the baits, and all that Landlock lets the daemon read: what can be opened can be
// changed by its descriptor.
func places(readable []string) (all []place) {
	for _, path := range slices.Concat(baits, readable) {
		switch {
		case path == "/dev/null", strings.HasPrefix(path, "/proc/self"), strings.HasPrefix(path, pool):
			continue // its own
		}
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		p := place{dir: filepath.Dir(path), file: path}
		if info.IsDir() {
			p.dir, p.file = path, filepath.Join(path, fileIn(path))
		}
		p.dirFD, p.fileFD = reading(p.dir), reading(p.file)
		all = append(all, p)
	}
	return all
}

// fileIn is the name of a file in a directory: one that can be seen, or that of the baits.
func fileIn(dir string) string {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.Type().IsRegular() {
			return e.Name()
		}
	}
	return "file"
}

func reading(path string) int {
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOFOLLOW
	fd, err := unix.Open(path, flags, 0)
	if err != nil {
		return -1
	}
	return fd
}

// state is what a call changes of a file. The times of procfs and sysfs say when they were looked
// at.
type state struct {
	mode, uid, gid uint32
	size           int64
	mtime, ctime   unix.Timespec
	inode          uint64
}

func look(path string) (s state, there bool) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return s, !errors.Is(err, unix.ENOENT)
	}
	s = state{mode: st.Mode, uid: st.Uid, gid: st.Gid, size: st.Size}
	if !strings.HasPrefix(path, "/proc") && !strings.HasPrefix(path, "/sys") {
		s.mtime, s.ctime, s.inode = st.Mtim, st.Ctim, st.Ino
	}
	return s, true
}

// derived tries each system call that changes something, on each place, and wants each call of the
// kernel to be known: tried here, harmless, or refused by the filters. It returns how many are not
// as they should be, and how many were tried.
func derived(readable []string) (wrong, tried int) {
	for _, bait := range baits {
		if _, there := look(bait + "/file"); !there {
			fmt.Printf("MISSED  %s: the attempts there prove nothing\n", bait)
			wrong++
		}
	}
	all := places(readable)
	for _, c := range changing {
		for _, p := range all {
			dir, _ := look(p.dir)
			file, _ := look(p.file)
			err := c.try(p)
			nowDir, _ := look(p.dir)
			now, _ := look(p.file)
			tried++
			if err == nil || dir != nowDir || file != now {
				fmt.Printf("ESCAPED %s: %s, %s: %v\n", c.name, p.dir, p.file, err)
				wrong++
			}
		}
		fmt.Printf("refused %s at %d places\n", c.name, len(all))
	}
	for number := uintptr(0); number <= lastCall+8; number++ {
		if slices.Contains(harmless, number) || slices.ContainsFunc(changing, func(c change) bool { return c.number == number }) {
			continue
		}
		if err := raw6(number); !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) {
			fmt.Printf("UNKNOWN system call %d is allowed (%v): what can it change?\n", number, err)
			wrong++
		}
	}
	return wrong, tried
}

// raw6 makes a call with arguments that are nothing.
func raw6(number uintptr) error {
	const none = ^uintptr(0)
	if _, _, errno := unix.Syscall6(number, none, none, none, none, none, none); errno != 0 {
		return errno
	}
	return nil
}
