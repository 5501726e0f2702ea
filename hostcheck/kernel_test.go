package hostcheck

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"testing/fstest"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A call that the kernel does not know is what it lacks, and one that a filter refuses is not
// known. Nothing else that is told of the kernel changes by that.
func TestKernelLacks(t *testing.T) {
	for call, want := range map[uint32][]string{
		unix.SYS_STATX:         {"mount numbers", "unique mount numbers"},
		unix.SYS_QUOTACTL_FD:   {"quotactl_fd(2)"},
		unix.SYS_OPEN_TREE:     {"mounts by descriptor"},
		unix.SYS_MOVE_MOUNT:    {"mounts by descriptor"},
		unix.SYS_MOUNT_SETATTR: {"mounts by descriptor"},
	} {
		for errno, now := range map[unix.Errno]string{unix.ENOSYS: "lacks", unix.EPERM: "unknown"} {
			told := toldWithout(t, call, errno)
			for _, name := range want {
				if told[name] != now {
					t.Errorf("%s for call %d: %s: %s, want %s", errno, call, name, told[name], now)
				}
				told[name] = told["before: "+name]
			}
			for name := range told {
				if before, ok := told["before: "+name]; ok && before != told[name] {
					t.Errorf("%s for call %d: %s: %s, before %s",
						errno, call, name, told[name], before)
				}
			}
		}
	}
}

// toldWithout is what a thread is told of the kernel before and after it gets an error for a call.
// The thread ends with that.
func toldWithout(t *testing.T, call uint32, errno unix.Errno) map[string]string {
	told := map[string]string{}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		note(told, "before: ", Kernel(os.DirFS("/")))
		err := refuse(call, errno)
		note(told, "", Kernel(os.DirFS("/")))
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return told
}

func note(told map[string]string, prefix string, all []Feature) {
	for _, f := range all {
		switch {
		case f.Has == nil:
			told[prefix+f.Name] = "unknown"
		case *f.Has:
			told[prefix+f.Name] = "has"
		default:
			told[prefix+f.Name] = "lacks"
		}
	}
}

// refuse installs a filter for this thread.
func refuse(call uint32, errno unix.Errno) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	p := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0,
		uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		return fmt.Errorf("a filter of call %d: %w", call, failed)
	}
	return nil
}

// Where cgroups are of version 1 alone, whether the kernel has cgroup.kill is not known.
func TestCgroupKill(t *testing.T) {
	for name, of := range map[string]struct {
		files []string
		want  string
	}{
		"one hierarchy":       {[]string{"a/cgroup.type", "a/cgroup.kill", "cgroup.procs"}, "has"},
		"beside version 1":    {[]string{"pids/a/x", "unified/a/cgroup.type", "unified/a/cgroup.kill"}, "has"},
		"before Linux 5.14":   {[]string{"a/cgroup.type", "cgroup.procs"}, "lacks"},
		"version 1":           {[]string{"pids/cgroup.procs", "pids/a/cgroup.procs"}, "unknown"},
		"no cgroups are seen": {nil, "unknown"},
	} {
		root := fstest.MapFS{}
		for _, file := range of.files {
			root["sys/fs/cgroup/"+file] = &fstest.MapFile{}
		}
		told := map[string]string{}
		note(told, "", Kernel(root))
		if told["cgroup.kill"] != of.want {
			t.Errorf("%s: %s, want %s", name, told["cgroup.kill"], of.want)
		}
	}
}

func TestKernelTells(t *testing.T) {
	yes, no := true, false
	got := Lacking([]Feature{
		{Name: "one"}, {Name: "another", Has: &yes},
		{"quotactl_fd(2)", "5.14", &no, "pools stay closed"},
		{Name: "a third"}, {Name: "cgroup.kill"},
	})
	want := []string{
		"the kernel lacks quotactl_fd(2) (Linux 5.14): pools stay closed",
		"whether the kernel has one, a third is not known: this process may not ask",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
