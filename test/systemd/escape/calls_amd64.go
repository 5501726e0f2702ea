package main

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lastCall is the last one that was looked at.
const lastCall = unix.SYS_FILE_SETATTR

// harmless calls take no path and no descriptor of a file, or only read, or write to descriptors
// that open(2) gave for writing, which is tried. What sockets and processes let a daemon do is in
// attempts.
var harmless = []uintptr{
	unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_ACCESS, unix.SYS_ALARM, unix.SYS_ARCH_PRCTL,
	unix.SYS_BRK, unix.SYS_CAPGET, unix.SYS_CHDIR, unix.SYS_CLOCK_GETRES, unix.SYS_CLOCK_GETTIME,
	unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_CLOSE,
	unix.SYS_CLOSE_RANGE, unix.SYS_CONNECT, unix.SYS_DUP, unix.SYS_DUP2, unix.SYS_DUP3,
	unix.SYS_EPOLL_CREATE, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_CTL_OLD,
	unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2, unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_WAIT_OLD,
	unix.SYS_EVENTFD, unix.SYS_EVENTFD2, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_FACCESSAT,
	unix.SYS_FACCESSAT2, unix.SYS_FADVISE64, unix.SYS_FCHDIR, unix.SYS_FCNTL, unix.SYS_FDATASYNC,
	unix.SYS_FGETXATTR, unix.SYS_FLISTXATTR, unix.SYS_FLOCK, unix.SYS_FORK, unix.SYS_FSTAT,
	unix.SYS_FSTATFS, unix.SYS_FSYNC, unix.SYS_FUTEX, unix.SYS_FUTEX_WAITV,
	unix.SYS_GET_MEMPOLICY, unix.SYS_GET_ROBUST_LIST, unix.SYS_GET_THREAD_AREA, unix.SYS_GETCPU,
	unix.SYS_GETCWD, unix.SYS_GETDENTS, unix.SYS_GETDENTS64, unix.SYS_GETEGID, unix.SYS_GETEUID,
	unix.SYS_GETGID, unix.SYS_GETGROUPS, unix.SYS_GETITIMER, unix.SYS_GETPEERNAME,
	unix.SYS_GETPGID, unix.SYS_GETPGRP, unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETPRIORITY,
	unix.SYS_GETRANDOM, unix.SYS_GETRESGID, unix.SYS_GETRESUID, unix.SYS_GETRLIMIT,
	unix.SYS_GETRUSAGE, unix.SYS_GETSID, unix.SYS_GETSOCKNAME, unix.SYS_GETSOCKOPT,
	unix.SYS_GETTID, unix.SYS_GETTIMEOFDAY, unix.SYS_GETUID, unix.SYS_GETXATTR,
	unix.SYS_INOTIFY_ADD_WATCH, unix.SYS_INOTIFY_INIT, unix.SYS_INOTIFY_INIT1,
	unix.SYS_INOTIFY_RM_WATCH, unix.SYS_IO_CANCEL, unix.SYS_IO_DESTROY, unix.SYS_IO_GETEVENTS,
	unix.SYS_IO_PGETEVENTS, unix.SYS_IO_SETUP, unix.SYS_IO_SUBMIT, unix.SYS_IOPRIO_GET,
	unix.SYS_KILL, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_CREATE_RULESET,
	unix.SYS_LANDLOCK_RESTRICT_SELF, unix.SYS_LGETXATTR, unix.SYS_LISTEN, unix.SYS_LISTXATTR,
	unix.SYS_LLISTXATTR, unix.SYS_LSEEK, unix.SYS_LSTAT, unix.SYS_MADVISE, unix.SYS_MEMBARRIER,
	unix.SYS_MPROTECT, unix.SYS_MQ_GETSETATTR, unix.SYS_MQ_NOTIFY, unix.SYS_MQ_OPEN,
	unix.SYS_MQ_TIMEDRECEIVE, unix.SYS_MQ_TIMEDSEND, unix.SYS_MQ_UNLINK, unix.SYS_MREMAP,
	unix.SYS_MSGCTL, unix.SYS_MSGGET, unix.SYS_MSGRCV, unix.SYS_MSGSND, unix.SYS_MSYNC,
	unix.SYS_MUNMAP, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_NANOSLEEP, unix.SYS_NEWFSTATAT,
	unix.SYS_PAUSE, unix.SYS_PERSONALITY, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL,
	unix.SYS_PIPE, unix.SYS_PIPE2, unix.SYS_POLL, unix.SYS_PPOLL, unix.SYS_PRCTL,
	unix.SYS_PREAD64, unix.SYS_PREADV, unix.SYS_PREADV2, unix.SYS_PRLIMIT64,
	unix.SYS_PROCESS_MADVISE, unix.SYS_PSELECT6, unix.SYS_READ, unix.SYS_READAHEAD,
	unix.SYS_READLINK, unix.SYS_READLINKAT, unix.SYS_READV, unix.SYS_RECVFROM, unix.SYS_RECVMMSG,
	unix.SYS_RECVMSG, unix.SYS_REMAP_FILE_PAGES, unix.SYS_RESTART_SYSCALL, unix.SYS_RSEQ,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPENDING, unix.SYS_RT_SIGPROCMASK,
	unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGSUSPEND,
	unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_RT_TGSIGQUEUEINFO, unix.SYS_SCHED_GET_PRIORITY_MAX,
	unix.SYS_SCHED_GET_PRIORITY_MIN, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_GETATTR,
	unix.SYS_SCHED_GETPARAM, unix.SYS_SCHED_GETSCHEDULER, unix.SYS_SCHED_RR_GET_INTERVAL,
	unix.SYS_SCHED_YIELD, unix.SYS_SECCOMP, unix.SYS_SELECT, unix.SYS_SEMCTL, unix.SYS_SEMGET,
	unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SENDFILE, unix.SYS_SENDMMSG, unix.SYS_SENDMSG,
	unix.SYS_SENDTO, unix.SYS_SET_ROBUST_LIST, unix.SYS_SET_THREAD_AREA, unix.SYS_SET_TID_ADDRESS,
	unix.SYS_SETFSGID, unix.SYS_SETFSUID, unix.SYS_SETITIMER, unix.SYS_SETPGID, unix.SYS_SETSID,
	unix.SYS_SETSOCKOPT, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SHMDT, unix.SYS_SHMGET,
	unix.SYS_SHUTDOWN, unix.SYS_SIGALTSTACK, unix.SYS_SIGNALFD, unix.SYS_SIGNALFD4,
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_SPLICE, unix.SYS_STAT, unix.SYS_STATFS,
	unix.SYS_STATX, unix.SYS_SYNC, unix.SYS_SYNC_FILE_RANGE, unix.SYS_SYNCFS, unix.SYS_SYSINFO,
	unix.SYS_TEE, unix.SYS_TGKILL, unix.SYS_TIME, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_DELETE,
	unix.SYS_TIMER_GETOVERRUN, unix.SYS_TIMER_GETTIME, unix.SYS_TIMER_SETTIME,
	unix.SYS_TIMERFD_CREATE, unix.SYS_TIMERFD_GETTIME, unix.SYS_TIMERFD_SETTIME, unix.SYS_TIMES,
	unix.SYS_TKILL, unix.SYS_UMASK, unix.SYS_UNAME, unix.SYS_UNSHARE, unix.SYS_URETPROBE, unix.SYS_UPROBE,
	unix.SYS_VFORK,
	unix.SYS_VMSPLICE, unix.SYS_WAIT4, unix.SYS_WAITID,
}

// change is a system call that changes something of a path or a descriptor. Its error is nil where
// it did: what is the same as before counts, too.
type change struct {
	name   string
	number uintptr
	try    func(p place) error
}

// opening tries an open of a file for writing, of a new one, and one that empties the file.
func opening(open func(path string, flags int) (int, error)) func(p place) error {
	return func(p place) error {
		fd, err := open(p.file, unix.O_WRONLY)
		if err != nil {
			fd, err = open(p.dir+"/escape-new", unix.O_WRONLY|unix.O_CREAT)
		}
		if err != nil && p.fileFD < 0 { // else it would be opened for reading, and its size is compared
			fd, err = open(p.file, unix.O_RDONLY|unix.O_TRUNC)
		} else if err != nil {
			if fd, err := open(p.file, unix.O_RDONLY|unix.O_TRUNC); err == nil {
				unix.Close(fd)
			}
		}
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

// both tries a call on the descriptors of the file and of the directory.
func both(do func(fd int, path string) error) func(p place) error {
	return func(p place) error {
		if err := do(p.fileFD, p.file); err == nil {
			return nil
		}
		return do(p.dirFD, p.dir)
	}
}

// anyOf is the first success.
func anyOf(calls ...func() error) (err error) {
	for _, call := range calls {
		if err = call(); err == nil {
			return nil
		}
	}
	return err
}

// renaming moves a file out of its place, one of the pool into it, and exchanges both.
func renaming(rename func(from, to string) error) func(p place) error {
	return func(p place) error {
		return anyOf(
			func() error { return rename(p.file, p.file+".escape") },
			func() error { return rename(p.file, pool+"/escape-moved") },
			func() error { return rename(own(), p.dir+"/escape-moved") },
			func() error { return rename(p.dir, p.dir+".escape") },
		)
	}
}

// linking makes a link of a file in the pool, and one of a file of the pool beside it.
func linking(link func(from, to string) error) func(p place) error {
	return func(p place) error {
		return anyOf(
			func() error { return link(p.file, pool+"/escape-linked") },
			func() error { return link(own(), p.dir+"/escape-linked") },
		)
	}
}

// own is a file of the pool.
func own() string {
	f, err := made("escape-own", 0o600)
	if err == nil {
		f.Close()
	}
	return pool + "/escape-own"
}

// opened1 is the path of openat(2).
func opened1(path string, flags int) (int, error) {
	const more = unix.O_CLOEXEC | unix.O_NONBLOCK
	return unix.Openat(unix.AT_FDCWD, path, flags|more, 0o600)
}

func opened2(path string, flags int) (int, error) {
	how := &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NONBLOCK)}
	if flags&unix.O_CREAT != 0 {
		how.Mode = 0o600
	}
	return unix.Openat2(unix.AT_FDCWD, path, how)
}

// path is a string for a call that the package unix makes by another one.
func path(s string) uintptr {
	b := append([]byte(s), 0)
	kept = append(kept, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

// nodump is FS_NODUMP_FL of linux/fs.h.
const nodump = 0x40

// kept are the strings of which the kernel was given the address.
var kept [][]byte

const attribute = "user.escape"

var here = unix.AT_FDCWD

var changing = []change{
	{"open", unix.SYS_OPEN, opening(func(name string, flags int) (int, error) {
		fd, _, errno := unix.Syscall(unix.SYS_OPEN, path(name), uintptr(flags|unix.O_NONBLOCK), 0o600)
		if errno != 0 {
			return -1, errno
		}
		return int(fd), nil
	})},
	{"openat", unix.SYS_OPENAT, opening(opened1)},
	{"openat2", unix.SYS_OPENAT2, opening(opened2)},
	{"creat", unix.SYS_CREAT, func(p place) error {
		return raw(unix.SYS_CREAT, path(p.dir+"/escape-new"), 0o600, 0)
	}},
	{"mkdir", unix.SYS_MKDIR, func(p place) error {
		return raw(unix.SYS_MKDIR, path(p.dir+"/escape-dir"), 0o700, 0)
	}},
	{"mkdirat", unix.SYS_MKDIRAT, func(p place) error {
		return unix.Mkdirat(here, p.dir+"/escape-dir", 0o700)
	}},
	{"mknodat", unix.SYS_MKNODAT, func(p place) error {
		return unix.Mknodat(here, p.dir+"/escape-node", unix.S_IFREG|0o600, 0)
	}},
	{"rmdir", unix.SYS_RMDIR, func(p place) error { return raw(unix.SYS_RMDIR, path(p.dir), 0, 0) }},
	{"unlink", unix.SYS_UNLINK, func(p place) error { return raw(unix.SYS_UNLINK, path(p.file), 0, 0) }},
	{"unlinkat", unix.SYS_UNLINKAT, func(p place) error { return unix.Unlinkat(here, p.file, 0) }},
	{"rename", unix.SYS_RENAME, renaming(func(from, to string) error {
		return raw(unix.SYS_RENAME, path(from), path(to), 0)
	})},
	{"renameat", unix.SYS_RENAMEAT, renaming(func(from, to string) error {
		return unix.Renameat(here, from, here, to)
	})},
	{"renameat2", unix.SYS_RENAMEAT2, renaming(func(from, to string) error {
		return unix.Renameat2(here, from, here, to, unix.RENAME_NOREPLACE)
	})},
	{"link", unix.SYS_LINK, linking(func(from, to string) error {
		return raw(unix.SYS_LINK, path(from), path(to), 0)
	})},
	{"linkat", unix.SYS_LINKAT, linking(func(from, to string) error {
		return unix.Linkat(here, from, here, to, 0)
	})},
	{"symlink", unix.SYS_SYMLINK, func(p place) error {
		return raw(unix.SYS_SYMLINK, path("x"), path(p.dir+"/escape-symlink"), 0)
	}},
	{"symlinkat", unix.SYS_SYMLINKAT, func(p place) error {
		return unix.Symlinkat("x", here, p.dir+"/escape-symlink")
	}},
	{"bind", unix.SYS_BIND, func(p place) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Bind(fd, &unix.SockaddrUnix{Name: p.dir + "/escape-socket"})
	}},
	{"fchmod", unix.SYS_FCHMOD, both(func(fd int, name string) error {
		s, _ := look(name)
		return unix.Fchmod(fd, s.mode&0o777)
	})},
	{"fchown", unix.SYS_FCHOWN, both(func(fd int, name string) error {
		s, _ := look(name)
		return unix.Fchown(fd, int(s.uid), int(s.gid))
	})},
	{"fsetxattr", unix.SYS_FSETXATTR, both(func(fd int, _ string) error {
		return unix.Fsetxattr(fd, attribute, []byte("x"), 0)
	})},
	{"fremovexattr", unix.SYS_FREMOVEXATTR, both(func(fd int, _ string) error {
		return unix.Fremovexattr(fd, "system.posix_acl_access")
	})},
	{"utimensat", unix.SYS_UTIMENSAT, func(p place) error {
		now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
		return anyOf(
			func() error { return unix.UtimesNanoAt(here, p.file, now, 0) },
			func() error { return raw(unix.SYS_UTIMENSAT, uintptr(p.fileFD), 0, 0) },
			func() error { return raw(unix.SYS_UTIMENSAT, uintptr(p.dirFD), 0, 0) },
		)
	}},
	{"ioctl", unix.SYS_IOCTL, both(func(fd int, _ string) error {
		flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags|nodump)
	})},
	{"ftruncate", unix.SYS_FTRUNCATE, both(func(fd int, _ string) error { return unix.Ftruncate(fd, 0) })},
	{"fallocate", unix.SYS_FALLOCATE, both(func(fd int, _ string) error {
		return unix.Fallocate(fd, 0, 0, 4096)
	})},
	{"mmap", unix.SYS_MMAP, both(func(fd int, _ string) error {
		const shared = unix.MAP_SHARED
		_, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, shared)
		return err
	})},
	{"copy_file_range", unix.SYS_COPY_FILE_RANGE, both(func(fd int, _ string) error {
		from, err := os.Open(own())
		if err != nil {
			return err
		}
		defer from.Close()
		_, err = unix.CopyFileRange(int(from.Fd()), nil, fd, nil, 1, 0)
		return err
	})},
	{"write", unix.SYS_WRITE, both(func(fd int, _ string) error { return wrote(unix.Write(fd, []byte("x"))) })},
	{"pwrite64", unix.SYS_PWRITE64, both(func(fd int, _ string) error {
		return wrote(unix.Pwrite(fd, []byte("x"), 0))
	})},
	{"writev", unix.SYS_WRITEV, both(func(fd int, _ string) error {
		return wrote(unix.Writev(fd, [][]byte{[]byte("x")}))
	})},
	{"pwritev", unix.SYS_PWRITEV, both(func(fd int, _ string) error {
		return wrote(unix.Pwritev(fd, [][]byte{[]byte("x")}, 0))
	})},
	{"pwritev2", unix.SYS_PWRITEV2, both(func(fd int, _ string) error {
		return wrote(unix.Pwritev2(fd, [][]byte{[]byte("x")}, 0, 0))
	})},
}

func wrote(_ int, err error) error { return err }
