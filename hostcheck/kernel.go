package hostcheck

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

// Feature is something that the kernel may lack.
type Feature struct {
	Name  string `json:"name"`
	Since string `json:"since"`         // the version of Linux that brought it
	Has   *bool  `json:"has,omitempty"` // absent where that could not be asked
	// Without is what follows where it is lacking.
	Without string `json:"without,omitempty"`
}

// Lacking are lines for people: what the kernel lacks, and in one what is not known, as of a unit
// whose filter of system calls refuses the questions.
func Lacking(all []Feature) (lines []string) {
	var unknown []string
	for _, f := range all {
		switch {
		case f.Has == nil && f.Name == killName: // there may be no cgroups of version 2 at all
		case f.Has == nil:
			unknown = append(unknown, f.Name)
		case !*f.Has:
			lines = append(lines,
				fmt.Sprintf("the kernel lacks %s (Linux %s): %s", f.Name, f.Since, f.Without))
		}
	}
	if unknown != nil {
		lines = append(lines, fmt.Sprintf("whether the kernel has %s is not known: "+
			"this process may not ask", strings.Join(unknown, ", ")))
	}
	return lines
}

// features are asked for one by one: ask returns nil where the kernel has it, errLacks where it
// does not, and another error where that is not known.
var features = []struct {
	name, since, without string
	ask                  func(root fs.FS) error
}{
	{"mount numbers", "5.8", "no pool opens", mountNumbers},
	{"unique mount numbers", "6.8",
		"a mount in another's place is told by its device and inode alone", uniqueMountNumbers},
	{"mounts by descriptor", "5.12", "the CSI driver mounts no volume", mountsByDescriptor},
	{"quotactl_fd(2)", "5.14", "pools with quota = \"project\" stay closed", quotaCall},
	{killName, "5.14", "systemd ends the processes of a unit one by one", cgroupKill},
}

const killName = "cgroup.kill"

var errLacks = errors.New("the kernel lacks it")

// Kernel asks the running kernel for what it may lack, in an order that stays. root is the host's
// root directory (os.DirFS("/")).
func Kernel(root fs.FS) []Feature {
	var all []Feature
	for _, one := range features {
		f := Feature{Name: one.name, Since: one.since}
		switch err := one.ask(root); {
		case err == nil, errors.Is(err, errLacks):
			has := err == nil
			f.Has = &has
		}
		if f.Has != nil && !*f.Has {
			f.Without = one.without
		}
		all = append(all, f)
	}
	return all
}

func mountNumbers(fs.FS) error {
	_, err := identityOfRoot()
	return err
}

func uniqueMountNumbers(fs.FS) error {
	id, err := identityOfRoot()
	if err == nil && !id.Unique {
		return errLacks
	}
	return err
}

func identityOfRoot() (mounts.Identity, error) {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return mounts.Identity{}, err
	}
	defer unix.Close(fd)
	id, err := mounts.IdentityOf(fd)
	if errors.Is(err, mounts.ErrCannotTell) || errors.Is(err, unix.ENOSYS) {
		err = errLacks
	}
	return id, err
}

// mountsByDescriptor asks for what no descriptor or flag can mean. move_mount(2) asks for
// CAP_SYS_ADMIN before (do_mount's may_mount in fs/namespace.c), and is unknown without.
func mountsByDescriptor(fs.FS) error {
	_, tree := unix.OpenTree(-1, "", unix.AT_EMPTY_PATH)
	move := unix.MoveMount(-1, "", -1, "", -1)
	var name byte
	_, _, set := unix.Syscall6(unix.SYS_MOUNT_SETATTR, ^uintptr(0),
		uintptr(unsafe.Pointer(&name)), 0, 0, 0, 0) // a size of 0
	return errors.Join(
		answer(tree, unix.EBADF), answer(move, unix.EINVAL), answer(set, unix.EINVAL))
}

func quotaCall(fs.FS) error {
	err := quota.Probe()
	if errors.Is(err, quota.ErrNoCall) {
		return errLacks
	}
	return err
}

// answer is what the error of a call without meaning tells.
func answer(err, want error) error {
	switch {
	case errors.Is(err, want):
		return nil
	case errors.Is(err, unix.ENOSYS):
		return errLacks
	}
	return fmt.Errorf("not known: %w", err)
}

// cgroupKill looks at a cgroup of version 2 below the first, which has no such file.
func cgroupKill(root fs.FS) error {
	for _, dir := range []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"} {
		if found, err := fs.Glob(root, dir+"/*/cgroup.type"); err == nil && len(found) > 0 {
			_, err := fs.Stat(root, path.Join(path.Dir(found[0]), "cgroup.kill"))
			if errors.Is(err, fs.ErrNotExist) {
				return errLacks
			}
			return err
		}
	}
	return errors.New("no cgroup of version 2 is seen")
}
