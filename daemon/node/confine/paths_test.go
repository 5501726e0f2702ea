package confine

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// paths are the calls that change a file by its path, or run a program, and of which Landlock knows
// nothing.
func paths(dir string) error {
	kept, err := os.Create(dir + "/pool/kept")
	if err != nil {
		return err
	}
	file := dir + "/other/file"
	if err := confined(rules(dir)); err != nil {
		return err
	}
	const attribute = "user.confine"
	at, name, value := word(file), word(attribute), word("x")
	none, empty := uintptr(0), word("")
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	fd := kept.Fd()
	no := unix.EPERM
	all := map[string][2]error{
		"an attribute":                   {unix.Fsetxattr(int(fd), attribute, []byte("x"), 0), nil},
		"an attribute taken off":         {unix.Fremovexattr(int(fd), attribute), nil},
		"an attribute by path":           {unix.Setxattr(file, attribute, []byte("x"), 0), no},
		"a mode by an attribute":         {unix.Setxattr(file, "system.posix_acl_access", nil, 0), no},
		"a link's attribute":             {unix.Lsetxattr(file, attribute, []byte("x"), 0), no},
		"one taken off by path":          {unix.Removexattr(file, attribute), no},
		"one taken off a link":           {unix.Lremovexattr(file, attribute), no},
		"an attribute by setxattrat":     {raw6(unix.SYS_SETXATTRAT, cwd, at, 0, name, value, 16), no},
		"one taken off by removexattrat": {raw6(unix.SYS_REMOVEXATTRAT, cwd, at, 0, name), no},
		"flags by file_setattr":          {raw6(unix.SYS_FILE_SETATTR, cwd, at, value, 24, 0), no},
		"times":                          {raw6(unix.SYS_UTIMENSAT, fd), nil},
		"times by path":                  {unix.UtimesNanoAt(unix.AT_FDCWD, file, now, 0), no},
		"a size by path":                 {unix.Truncate(file, 0), no},
		"a program in memory":            {raw6(unix.SYS_MEMFD_CREATE, name, 0), no},
		"memory without a name":          {raw6(unix.SYS_MEMFD_SECRET, 0), no},
		"a program by its descriptor":    {raw6(unix.SYS_EXECVEAT, fd, empty, 0, 0, unix.AT_EMPTY_PATH), no},
		"a clone of a mount with flags":  {raw6(unix.SYS_OPEN_TREE_ATTR, cwd, at, 0, none, 0), no},
	}
	for number, what := range olderTimes {
		all[what] = [2]error{raw6(number, at, at, none, none), unix.EPERM}
	}
	return outcomes(all)
}

// cwd is AT_FDCWD.
const cwd = ^uintptr(99)

// word is a string for the kernel.
func word(s string) uintptr {
	b := append([]byte(s), make([]byte, 64)...)
	held = append(held, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

var held [][]byte

func raw6(number uintptr, arguments ...uintptr) error {
	var a [6]uintptr
	copy(a[:], arguments)
	if _, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

// labels is on a host with SELinux, which looks at attributes itself: a link's label is set by its
// path alone.
func labels(dir string) error {
	r := rules(dir)
	r.Label = true
	if err := confined(r); err != nil {
		return err
	}
	file := dir + "/pool/file"
	return outcomes(map[string][2]error{
		"a label":             {unix.Setxattr(file, "user.confine", []byte("x"), 0), nil},
		"a link's label":      {unix.Lsetxattr(file, "user.confine", []byte("x"), 0), unix.EPERM},
		"one that is no more": {unix.Removexattr(file, "user.confine"), unix.EPERM},
	})
}

// runs is with a program that the kubeconfig names.
func runs(dir string) error {
	r := rules(dir)
	r.Execute = []string{"/bin", "/usr", "/lib", "/lib64"}
	if err := os.WriteFile(dir+"/pool/program", []byte("#!/bin/sh\n"), 0o755); err != nil {
		return err
	}
	if err := confined(r); err != nil {
		return err
	}
	_, stream := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	return outcomes(map[string][2]error{
		"a program":                 {exec.Command("/bin/true").Run(), nil},
		"a program elsewhere":       {exec.Command(dir + "/pool/program").Run(), unix.EACCES},
		"a program in memory":       {raw6(unix.SYS_MEMFD_CREATE, word("x"), 0), unix.EPERM},
		"a stream to a socket file": {stream, unix.EPERM},
	})
}

// diverging has a thread with a filter of its own, which keeps the kernel from giving all threads
// the same one.
func diverging(dir string) error {
	failed, held := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		failed <- without(unix.SYS_ACCT, unix.EPERM, 0)
		<-held
	}()
	if err := <-failed; err != nil {
		return err
	}
	if c, err := Process(rules(dir)); err == nil {
		return fmt.Errorf("%s, and one thread is not filtered", c)
	}
	return nil
}
