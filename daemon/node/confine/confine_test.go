package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/subvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// What is confined stays so: each case is a process of its own, this program with a case's name.
const caseEnv = "CONFINE_CASE"

func TestMain(m *testing.M) {
	if name := os.Getenv(caseEnv); name != "" {
		if err := cases[name](os.Args[1]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(hosttest.Main(m))
}

var cases = map[string]func(dir string) error{
	"work": work, "later": later, "calls": calls, "copying": copies, "old": old, "lacks": lacks,
	"replaced": replaced,
	"paths":    paths, "labels": labels, "running": runs, "diverging": diverging,
	"refusing": refusing, "malformed": malformed,
}

func run(t *testing.T, name, dir string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", dir)
	cmd.Env = append(os.Environ(), caseEnv+"="+name)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestProcess(t *testing.T) {
	dir := hosttest.Dir(t)
	for _, sub := range []string{"pool/a", "pool/b", "read", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"pool/file", "read/file", "other/file"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		"work", "calls", "copying", "lacks", "replaced", "paths", "labels", "running", "diverging",
	} {
		t.Run(name, func(t *testing.T) { run(t, name, dir) })
	}
}

func rules(dir string) Rules {
	return Rules{Work: []string{dir + "/pool"}, Read: []string{dir + "/read", dir + "/other/file", "/proc"}, Write: []string{"/proc/self", "/dev/null"}}
}

// confined confines this process, on a kernel that can.
func confined(r Rules) error {
	c, err := Process(r)
	if err == nil && c.ABI == 0 {
		err = errors.New("this kernel has no Landlock: the test is for one that has it")
	}
	return err
}

// outcomes compares what was tried: nil stands for success.
func outcomes(all map[string][2]error) error {
	var wrong []error
	for what, o := range all {
		if got, want := o[0], o[1]; !errors.Is(got, want) || (got == nil) != (want == nil) {
			wrong = append(wrong, fmt.Errorf("%s: %v, want %v", what, got, want))
		}
	}
	return errors.Join(wrong...)
}

func opened(path string, flags int) error {
	f, err := os.OpenFile(path, flags, 0o600)
	if err == nil {
		f.Close()
	}
	return err
}

func work(dir string) error {
	if err := confined(rules(dir)); err != nil {
		return err
	}
	return outcomes(map[string][2]error{
		"making a directory":            {os.Mkdir(dir+"/pool/c", 0o700), nil},
		"renaming into another":         {os.Rename(dir+"/pool/c", dir+"/pool/a/c"), nil},
		"making a file":                 {opened(dir+"/pool/a/new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC), nil},
		"removing":                      {os.RemoveAll(dir + "/pool/a"), nil},
		"reading":                       {opened(dir+"/read/file", os.O_RDONLY), nil},
		"writing what may be read":      {opened(dir+"/read/file", os.O_WRONLY), unix.EACCES},
		"making where it may read":      {opened(dir+"/read/new", os.O_CREATE|os.O_WRONLY), unix.EACCES},
		"writing elsewhere":             {opened(dir+"/other/new", os.O_CREATE|os.O_WRONLY), unix.EACCES},
		"reading elsewhere":             {opened("/etc/shadow", os.O_RDONLY), unix.EACCES},
		"renaming out":                  {os.Rename(dir+"/pool/file", dir+"/other/file2"), unix.EACCES},
		"a link out":                    {os.Link(dir+"/read/file", dir+"/pool/link"), unix.EXDEV},
		"a symbolic link":               {os.Symlink("x", dir+"/pool/symlink"), unix.EACCES},
		"a program":                     {exec.Command("/bin/true").Run(), unix.EPERM},
		"a device":                      {opened("/dev/null", os.O_RDWR), nil},
		"another device":                {opened("/dev/zero", os.O_RDONLY), unix.EACCES},
		"what the process tells":        {opened("/proc/self/mountinfo", os.O_RDONLY), nil},
		"a process's own":               {opened("/proc/thread-self/attr/current", os.O_RDWR), nil},
		"another process's root":        {opened("/proc/1/root/etc/shadow", os.O_RDONLY), unix.EACCES},
		"a signal to another process":   {unix.Kill(os.Getppid(), 0), unix.EPERM},
		"listing a directory elsewhere": {opened("/etc", os.O_RDONLY), unix.EACCES},
	})
}

// copying is with the right to copy trees.
func copies(dir string) error {
	from, err := os.Create(dir + "/pool/from")
	if err != nil {
		return err
	}
	to, err := os.Create(dir + "/pool/to")
	if err != nil {
		return err
	}
	r := rules(dir)
	r.Work = append(r.Work, dir+"/read")
	r.Copy = []string{dir + "/pool"}
	if err := os.Symlink("x", dir+"/pool/link"); err != nil {
		return err
	}
	if err := confined(r); err != nil {
		return err
	}
	device := int(unix.Mkdev(1, 3))
	return outcomes(map[string][2]error{
		"a symbolic link":           {os.Symlink("x", dir+"/pool/symlink"), nil},
		"a symbolic link elsewhere": {os.Symlink("x", dir+"/other/symlink"), unix.EACCES},
		"a symbolic link beside":    {os.Symlink("x", dir+"/read/symlink"), unix.EACCES},
		"moving a link there":       {os.Rename(dir+"/pool/link", dir+"/read/link"), unix.EACCES},
		"a FIFO":                    {unix.Mknodat(unix.AT_FDCWD, dir+"/pool/fifo", unix.S_IFIFO|0o600, 0), nil},
		"a FIFO elsewhere":          {unix.Mknodat(unix.AT_FDCWD, dir+"/other/fifo", unix.S_IFIFO|0o600, 0), unix.EACCES},
		"a device":                  {unix.Mknodat(unix.AT_FDCWD, dir+"/pool/null", unix.S_IFCHR|0o600, device), unix.EPERM},
		"a socket":                  {unix.Mknodat(unix.AT_FDCWD, dir+"/pool/socket", unix.S_IFSOCK|0o600, 0), unix.EPERM},
		"a file by mknod":           {unix.Mknodat(unix.AT_FDCWD, dir+"/pool/node", unix.S_IFREG|0o600, 0), unix.EPERM},
		"shared blocks":             {unix.IoctlFileClone(int(to.Fd()), int(from.Fd())), unix.EOPNOTSUPP}, // tmpfs has none: the filter lets it pass
		"an owner by path":          {os.Lchown(dir+"/pool/symlink", 1, 1), unix.EPERM},
		"freezing a filesystem":     {raw(unix.SYS_IOCTL, to.Fd(), 0xC0045877), unix.EPERM},
	})
}

func calls(dir string) error {
	file, err := os.Create(dir + "/pool/calls")
	if err != nil {
		return err
	}
	place, err := os.Open(dir + "/pool")
	if err != nil {
		return err
	}
	if err := confined(rules(dir)); err != nil {
		return err
	}
	fd := int(file.Fd())
	ioctl := func(number uintptr) error {
		var value [64]byte
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, place.Fd(), number, uintptr(unsafe.Pointer(&value))); errno != 0 {
			return errno
		}
		return nil
	}
	_, streamErr := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	_, datagram := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	_, internet := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	_, flags := unix.IoctlGetInt(int(place.Fd()), unix.FS_IOC_GETFLAGS)
	_, state := quota.StateOf(int(place.Fd()))
	_, got := quota.Get(int(place.Fd()), 5)
	return outcomes(map[string][2]error{
		"a mode":                    {unix.Fchmod(fd, 0o640), nil},
		"a set-uid bit":             {unix.Fchmod(fd, 0o4755), unix.EPERM},
		"a set-gid bit":             {unix.Fchmod(fd, 0o2755), unix.EPERM},
		"a mode by path":            {os.Chmod(dir+"/other", 0o777), unix.EPERM},
		"an owner":                  {unix.Fchown(fd, 1, 1), nil},
		"an owner by path":          {os.Lchown(dir+"/other", 1, 1), unix.EPERM},
		"a set-uid file":            {opened2(dir+"/pool/suid", 0o4755), unix.EPERM},
		"a FIFO":                    {unix.Mknodat(unix.AT_FDCWD, dir+"/pool/fifo", unix.S_IFIFO|0o600, 0), unix.EPERM},
		"shared blocks":             {ioctl(unix.FICLONE), unix.EPERM},
		"a subvolume":               {ioctl(subvolume.RequestCreate), unix.EPERM},
		"a snapshot of one":         {ioctl(subvolume.RequestSnapshot), unix.EPERM},
		"freezing a filesystem":     {ioctl(0xC0045877), unix.EPERM},
		"thawing it":                {ioctl(0xC0045878), unix.EPERM},
		"shutting it down":          {ioctl(0x8004587D), unix.EPERM},
		"a flag of a directory":     {flags, nil},
		"a stream to a socket file": {streamErr, unix.EPERM},
		"a datagram":                {datagram, nil},
		"the network":               {internet, nil},
		"asking for quotas":         {state, nil},
		"reading a limit":           {got, unix.EPERM},
		"setting a limit":           {quota.Set(int(place.Fd()), 5, quota.Limit{}), unix.EPERM},
		"switching quotas off":      {raw(unix.SYS_QUOTACTL_FD, place.Fd(), quotaOff), unix.EPERM},
		"a mount":                   {unix.Mount("tmpfs", dir+"/pool", "tmpfs", 0, ""), unix.EPERM},
		"an unmount":                {unix.Unmount("/proc", unix.MNT_DETACH), unix.EPERM},
		"tracing":                   {unix.PtraceAttach(os.Getppid()), unix.EPERM},
		"the host's name":           {unix.Sethostname([]byte("x")), unix.EPERM},
		"a clone of a mount":        {cloned(dir), unix.EPERM},
		"io_uring":                  {raw(unix.SYS_IO_URING_SETUP, 8, uintptr(unsafe.Pointer(&[256]byte{}))), unix.EPERM},
	})
}

// quotaOff is QCMD(Q_XQUOTAOFF, PRJQUOTA) of linux/dqblk_xfs.h.
const quotaOff = 0x5802<<8 | 2

func cloned(dir string) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func opened2(path string, mode uint32) error {
	_, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, mode)
	return err
}

func raw(number, a, b uintptr) error {
	if _, _, errno := unix.Syscall(number, a, b, 0); errno != 0 {
		return errno
	}
	return nil
}

// The rule of a mount point's parent holds for what is mounted there later, and lets the bare
// directory be seen; mounting is what a confined process cannot do, so this one's parent does it.
func TestMountedLater(t *testing.T) {
	dir := hosttest.Dir(t)
	if err := os.MkdirAll(dir+"/srv/pool", 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", dir)
	cmd.Env = append(os.Environ(), caseEnv+"=later")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 4096)
	if n, err := out.Read(said); string(said[:n]) != "confined\n" {
		t.Fatalf("%q, %v", said[:n], err)
	}
	if err := unix.Mount("later", dir+"/srv/pool", "tmpfs", 0, "mode=0700"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir+"/srv/pool", unix.MNT_DETACH)
	in.Write([]byte("mounted\n"))
	n, _ := out.Read(said)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, said[:n])
	}
}

func later(dir string) error {
	if err := confined(Rules{Work: []string{dir + "/srv"}, Read: []string{"/proc"}, LookUnder: true}); err != nil {
		return err
	}
	fmt.Println("confined")
	os.Stdin.Read(make([]byte, 16))
	place := dir + "/srv/pool"
	table, err := mounts.OpenTable()
	if err != nil {
		return err
	}
	all, _, err := table.Mounts()
	if err != nil {
		return err
	}
	stack, parent, _ := mounts.At(all, place)
	if len(stack) == 0 {
		return errors.New("the mount is not seen")
	}
	_, under := mounts.Under(stack[0], parent)
	root, err := os.Open(place)
	if err != nil {
		return err
	}
	none := quota.Set(int(root.Fd()), 5, quota.Limit{}) // a tmpfs has no quotas
	return outcomes(map[string][2]error{
		"switching off":    {raw(unix.SYS_QUOTACTL_FD, root.Fd(), quotaOff), unix.EPERM},
		"setting a limit":  {refusedBy(none), nil},
		"looking under it": {under, nil},
		"making":           {os.Mkdir(place+"/a", 0o700), nil},
		"writing":          {os.WriteFile(place+"/a/file", nil, 0o600), nil},
		"renaming":         {os.Rename(place+"/a/file", place+"/file"), nil},
	})
}

// refusedBy is the error of a call that the filter denied.
func refusedBy(err error) error {
	if errors.Is(err, unix.EPERM) {
		return err
	}
	return nil
}

// On a kernel without Landlock the process goes on, and reports it. An older kernel is one that
// does not know the call.
func TestOldKernel(t *testing.T) { run(t, "old", hosttest.Dir(t)) }

func old(dir string) error {
	if err := without(unix.SYS_LANDLOCK_CREATE_RULESET, unix.ENOSYS, allThreads); err != nil {
		return err
	}
	c, err := Process(Rules{Work: []string{dir}})
	if err != nil {
		return err
	}
	if got, want := c.String(), "not confined: Landlock is not available on this kernel"; got != want || c.ABI != 0 {
		return fmt.Errorf("%q, want %q", got, want)
	}
	return outcomes(map[string][2]error{
		"a file elsewhere": {opened("/etc/shadow", os.O_RDONLY), nil},
		"a set-uid file":   {opened2(dir+"/suid", 0o4755), unix.EPERM}, // the filter needs no Landlock
	})
}

const allThreads = unix.SECCOMP_FILTER_FLAG_TSYNC

// without denies one call, or some of its arguments, as a kernel does that does not know it.
func without(number uint32, errno unix.Errno, flags uintptr, when ...unix.SockFilter) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	deny := with(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ERRNO|uint32(errno))
	p := program{}.when(number, append(when, deny)...)
	p = append(p, with(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ALLOW))
	fprog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	return raw3(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
}

// A filter that the kernel refuses is an error; a kernel that has no filters at all goes without,
// and reports it.
func TestRefusedFilter(t *testing.T) {
	run(t, "refusing", hosttest.Dir(t))
	run(t, "malformed", hosttest.Dir(t))
}

// malformed is a kernel that has filters, and refuses this one.
func malformed(dir string) error {
	isSet := jump(unix.BPF_JEQ, unix.SECCOMP_SET_MODE_FILTER, 0, 1)
	set := []unix.SockFilter{load(ofArgument(0)), isSet}
	if err := without(unix.SYS_SECCOMP, unix.EINVAL, allThreads, set...); err != nil {
		return err
	}
	if c, err := Process(rules(dir)); !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%s, %v", c, err)
	}
	return nil
}

func refusing(dir string) error {
	if err := without(unix.SYS_SECCOMP, unix.EINVAL, allThreads); err != nil {
		return err
	}
	c, err := Process(Rules{Work: []string{dir}, Read: []string{"/proc"}})
	if err != nil {
		return err
	}
	const told = "confined by Landlock (ABI %d) to %s; this kernel has no filter of system calls"
	if want := fmt.Sprintf(told, c.ABI, dir); c.String() != want {
		return fmt.Errorf("%q, want %q", c, want)
	}
	return nil
}

func raw3(number, a, b, c uintptr) error {
	if _, _, errno := unix.Syscall(number, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

func lacks(dir string) error {
	c, err := Process(rules(dir))
	if err != nil {
		return err
	}
	for path, want := range map[string]string{
		dir + "/pool": "", dir + "/pool/new/deep": "", dir + "/pools": dir + "/pools", dir: dir, dir + "/read": dir + "/read",
	} {
		if got := c.Lacks(Rules{Work: []string{path}}); got != want {
			return fmt.Errorf("work in %s: lacks %q", path, got)
		}
	}
	if got := c.Lacks(Rules{Read: []string{dir + "/read/x", dir + "/pool/x", "/etc/hosts"}}); got != "/etc/hosts" {
		return fmt.Errorf("lacks %q", got)
	}
	if got, want := c.String(), fmt.Sprintf("confined by Landlock (ABI %d) to %s/pool", c.ABI, dir); got != want {
		return fmt.Errorf("%q, want %q", got, want)
	}
	return nil
}

// replaced has a file replaced by a process that is not confined, as the resolver's are.
func replaced(dir string) error {
	mover := exec.Command("sh", "-c", "read line; for f in other pool; do cp $0/$f/file $0/$f/new; mv $0/$f/new $0/$f/file; done", dir)
	in, err := mover.StdinPipe()
	if err != nil {
		return err
	}
	if err := mover.Start(); err != nil {
		return err
	}
	c, err := Process(Rules{Work: []string{dir + "/pool"}, Read: []string{dir + "/other/file", dir + "/pool/file", "/proc"}})
	if err != nil {
		return err
	}
	both := []string{dir + "/pool/file", dir + "/other/file"}
	if got := c.Replaced(both...); got != "" {
		return fmt.Errorf("%s was not replaced", got)
	}
	in.Close()
	if err := mover.Wait(); err != nil {
		return err
	}
	if got := c.Replaced(both...); got != dir+"/other/file" { // the other one is in a directory that may be read
		return fmt.Errorf("%q was replaced", got)
	}
	return nil
}
