package freeze

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// newBoth is a world on a host with cgroups of both versions: one of version 1 with a name, as
// systemd has, beside that of version 2.
func newBoth(t *testing.T) *world {
	w := newWorld(t)
	both := hosttest.Dir(t)
	for _, dir := range []string{"unified", "named"} {
		w.must(os.Mkdir(filepath.Join(both, dir), 0o755))
	}
	hosttest.Mount(t, "--bind", w.Root, both+"/unified")
	t.Cleanup(func() { hosttest.Unmount(t, both+"/unified") })
	mount := func() { hosttest.Mount(t, "-t", "cgroup", "-o", "none,name="+w.name, "none", both+"/named") }
	mount()
	t.Cleanup(func() { w.end(both+"/named", mount) })
	w.Root = both
	return w
}

// end ends a hierarchy. The kernel keeps one that is unmounted before a cgroup that was removed is
// gone, until it is mounted and unmounted again; else it goes a moment later.
func (w *world) end(at string, mount func()) {
	w.Helper()
	for range 20 {
		hosttest.Unmount(w, at)
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			text, err := os.ReadFile("/proc/self/cgroup")
			if w.must(err); !strings.Contains(string(text), ":name="+w.name+":") {
				return
			}
		}
		mount()
	}
	w.Error("the hierarchy stays")
}

// named makes a cgroup of version 1, which goes with the processes in it.
func (w *world) named(dir string) string {
	w.Helper()
	at := filepath.Join(w.Root, "named", dir)
	w.must(os.MkdirAll(at, 0o755))
	w.Cleanup(func() {
		err := unix.Rmdir(at)
		for end := time.Now().Add(time.Minute); errors.Is(err, unix.EBUSY) && time.Now().Before(end); err = unix.Rmdir(at) {
			time.Sleep(time.Millisecond) // a process that was killed leaves a moment later
		}
		for err == nil && filepath.Dir(at) != filepath.Join(w.Root, "named") {
			at = filepath.Dir(at)
			if err = unix.Rmdir(at); errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOENT) { // has another one
				return
			}
		}
		if err != nil {
			w.Error(err)
		}
	})
	return at
}

func (w *world) join(cgroup string, pid int) {
	w.Helper()
	w.must(os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0))
}

// start starts a script in a cgroup of version 1 alone.
func (w *world) start(cgroup, script string) *process.Child {
	w.Helper()
	child, err := process.Start(exec.Command("sh", "-c", "echo $$ > "+cgroup+"/cgroup.procs; "+script))
	w.must(err)
	w.Cleanup(func() { _ = child.Kill() })
	for end := time.Now().Add(time.Minute); !w.has(cgroup) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return child
}

func (w *world) has(cgroup string) bool {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
	w.must(err)
	return len(text) > 0
}

// outside is a pause that is refused, for a process in this cgroup.
func (w *world) outside(cgroup string, pods ...string) {
	w.Helper()
	if f, err := w.Freeze(soon(w.T), pods); !errors.Is(err, ErrOutside) || f != nil || !strings.HasPrefix(err.Error(), cgroup+": the pod has a process that cannot be stopped") {
		w.Errorf("%v, %v", f, err)
	}
	w.want("")
}

// A pod is not taken for one that stands still while a process of it is in a cgroup of version 1
// alone, in whichever it is, and also one that is another process each moment. Then none is
// stopped. Processes in both stand still.
func TestFreezeOutside(t *testing.T) {
	w := newBoth(t)
	w.pod("11-22", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11_22.slice")
	w.pod("b", "kubepods/podb")
	container := w.named("kubepods.slice/kubepods-pod11_22.slice/c")
	other := w.named("kubepods/podother")
	child := w.start(container, "exec sleep infinity")
	w.start(other, "exec sleep infinity")

	w.outside("named/kubepods.slice/kubepods-pod11_22.slice", "11-22")
	w.outside("named/kubepods.slice/kubepods-pod11_22.slice", "b", "11-22")
	w.join(filepath.Join(w.pods["11-22"], "c"), child.PID())
	f, err := w.Freeze(soon(t), []string{"11-22", "b"})
	w.must(err)
	w.want("11-22 b")
	w.must(f.Thaw())

	chain := w.chain(w.named("kubepods/podb/c"))
	for range 5 {
		w.outside("named/kubepods/podb", "11-22", "b")
	}
	chain()
}

// chain has a process in a cgroup of version 1 that starts its successor and ends, until the test
// does. Each is a program of its own: a shell function that starts itself is ended by dash after
// 1,000 calls. It returns what waits for one more successor, so that a chain that ended by itself
// is no proof.
func (w *world) chain(cgroup string) (goesOn func()) {
	w.Helper()
	dir := w.TempDir()
	end, last, link := filepath.Join(dir, "end"), filepath.Join(dir, "last"), filepath.Join(dir, "link")
	w.must(os.WriteFile(link, []byte("#!/bin/sh\n[ -e "+end+" ] && exit\necho $$ > "+last+"\n"+link+" &\n"), 0o700))
	w.Cleanup(func() {
		w.must(os.WriteFile(end, nil, 0o600))
		for end := time.Now().Add(time.Minute); w.has(cgroup) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	})
	w.start(cgroup, "exec "+link)
	return func() {
		w.Helper()
		w.must(os.WriteFile(last, nil, 0o600))
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if text, err := os.ReadFile(last); err == nil && len(text) > 0 {
				return
			}
		}
		w.Error("the chain of processes ended by itself")
	}
}

// lookedAt returns what waits, for a minute at most, until a file was read once more: inotify(7)
// tells that of cgroups, too.
func (w *world) lookedAt(file string) (wait func()) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	w.must(err)
	_, err = unix.InotifyAddWatch(fd, file, unix.IN_CLOSE_NOWRITE)
	w.must(err)
	return func() {
		defer unix.Close(fd)
		for {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000); err != unix.EINTR {
				return
			}
		}
	}
}

// A process that is on its way into its cgroups is waited for, for a moment: it arrives when it was
// missed once.
func TestFreezeOnItsWay(t *testing.T) {
	w := newBoth(t)
	w.pod("a", "kubepods/poda")
	for try := range 20 { // the processors may be busy for longer than the moment
		child := w.start(w.named(fmt.Sprintf("kubepods/poda/c%d", try)), "exec sleep infinity")
		arrived, missed := make(chan struct{}), w.lookedAt(filepath.Join(w.pods["a"], "c", "cgroup.procs"))
		go func() {
			defer close(arrived)
			missed()
			w.join(filepath.Join(w.pods["a"], "c"), child.PID())
		}()
		f, err := w.Freeze(soon(t), []string{"a"})
		<-arrived
		if err == nil {
			w.must(f.Thaw())
			return
		}
		if !errors.Is(err, ErrOutside) || try == 19 {
			t.Fatal(err)
		}
	}
}

// Of processes all in cgroups below, and of those in cgroups of threads, none is missed, and a
// cgroup that is gone has none.
func TestProcesses(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "kubepods/poda")
	w.pod("b", "kubepods/podb")
	threads := filepath.Join(w.pods["a"], "c", "threads")
	w.must(os.Mkdir(threads, 0o755))
	t.Cleanup(func() { w.must(unix.Rmdir(threads)) })
	w.must(os.WriteFile(threads+"/cgroup.type", []byte("threaded"), 0))
	found := map[int]bool{}
	for _, dir := range []string{"kubepods", "gone"} {
		w.must(w.processes(dir, func(pid int) { found[pid] = true }))
	}
	if len(found) != 2 || found[0] {
		t.Error(found)
	}
}
