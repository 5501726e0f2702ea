package freeze

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// freezeEnv has this program freeze a pod and wait to be killed.
const freezeEnv = "HOSTPATH_TEST_FREEZE"

func TestMain(m *testing.M) {
	if pod := os.Getenv(freezeEnv); pod != "" {
		_, err := Cgroups{Root: os.Getenv("ROOT"), List: os.Getenv("LIST")}.Freeze(context.Background(), []string{pod})
		fmt.Println("frozen", err)
		select {}
	}
	os.Exit(hosttest.Main(m))
}

// world is a hierarchy with a process in it that counts.
type world struct {
	*testing.T
	Cgroups
	name string
	pods map[string]string // by UID: the cgroup's directory
}

func newWorld(t *testing.T) *world {
	if os.Getuid() != 0 {
		t.Fatal("this makes cgroups and needs root")
	}
	w := &world{T: t, name: fmt.Sprintf("hostpath-freeze-%d", os.Getpid()), pods: map[string]string{}}
	w.Root = hosttest.Cgroup(t, w.name)
	w.List = filepath.Join(t.TempDir(), "paused.json")
	return w
}

func (w *world) must(errs ...error) {
	w.Helper()
	if err := errors.Join(errs...); err != nil {
		w.Fatal(err)
	}
}

// pod makes a pod's cgroup with a process in a cgroup below it, as a container has one.
func (w *world) pod(uid, dir string) {
	w.Helper()
	w.pods[uid] = hosttest.Cgroup(w.T, filepath.Join(w.name, dir))
	container := hosttest.Cgroup(w.T, filepath.Join(w.name, dir, "c"))
	child, err := process.Start(hosttest.InCgroup(w.T, container, exec.Command("sleep", "infinity")))
	w.must(err)
	w.Cleanup(func() { _ = child.Kill() })
}

func (w *world) frozen() (all []string) {
	w.Helper()
	for uid, dir := range w.pods {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.freeze"))
		w.must(err)
		if strings.TrimSpace(string(text)) == "1" {
			all = append(all, uid)
		}
	}
	slices.Sort(all)
	return all
}

func (w *world) want(frozen string) {
	w.Helper()
	if got := strings.Join(w.frozen(), " "); got != frozen {
		w.Errorf("frozen: %q, want %q", got, frozen)
	}
	if _, err := os.Stat(w.List); (err == nil) != (frozen != "") {
		w.Errorf("with %q frozen, the list: %v", frozen, err)
	}
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Pods are found by either driver of cgroups, in each class of quality, and below kubelets of any
// root; others are not touched.
func TestFreeze(t *testing.T) {
	w := newWorld(t)
	w.pod("11-22", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11_22.slice")
	w.pod("11-33", "kubepods.slice/kubepods-pod11_33.slice")
	w.pod("aa-bb", "kubepods/besteffort/podaa-bb")
	w.pod("cc", "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podcc.slice")
	w.pod("other", "kubepods/podother")
	w.pod("user's", "user.slice/podaa-bb")
	f, err := w.Freeze(soon(t), []string{"11-22", "11-33", "aa-bb", "cc"})
	w.must(err)
	w.want("11-22 11-33 aa-bb cc")
	for _, uid := range []string{"11-22", "aa-bb"} {
		if text, err := os.ReadFile(filepath.Join(w.pods[uid], "cgroup.events")); err != nil || valueOf(text, "frozen") != "1" {
			t.Errorf("%s: %s %v", uid, text, err)
		}
	}
	w.must(f.Thaw())
	w.want("")
}

// A pod whose cgroup is not found, or has no process, is not taken for one that stands still, and
// the others are not stopped.
func TestFreezeUnknown(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "kubepods/poda")
	w.pods["empty"] = hosttest.Cgroup(t, w.name+"/kubepods/podempty")
	for _, uid := range []string{"b", "empty"} {
		if _, err := w.Freeze(soon(t), []string{"a", uid}); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "pod "+uid) {
			t.Errorf("%s: %v", uid, err)
		}
		w.want("")
	}
}

// When the time is over, what was frozen goes on.
func TestFreezeTime(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "kubepods/poda")
	w.pod("b", "kubepods/podb")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Freeze(over, []string{"a", "b"}); !errors.Is(err, ErrTime) {
		t.Error(err)
	}
	w.want("")
}

// What another program froze stays frozen.
func TestFrozenBefore(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "kubepods/poda")
	w.pod("b", "kubepods/podb")
	w.must(os.WriteFile(filepath.Join(w.pods["b"], "cgroup.freeze"), []byte("1"), 0))
	f, err := w.Freeze(soon(t), []string{"a", "b"})
	w.must(err)
	w.want("a b")
	w.must(f.Thaw())
	if got := w.frozen(); !slices.Equal(got, []string{"b"}) {
		t.Error(got)
	}
}

// A process that is killed while pods stand still leaves a list, by which the next one has them go
// on.
func TestRecover(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "kubepods/poda")
	child := process.Self(freezeEnv+"=a", "ROOT="+w.Root, "LIST="+w.List)
	child.Stdout = nil
	out, err := child.StdoutPipe()
	w.must(err)
	w.must(child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	line := make([]byte, 100)
	n, err := out.Read(line)
	w.must(err)
	if string(line[:n]) != "frozen <nil>\n" {
		t.Fatalf("%q", line[:n])
	}
	w.must(child.Process.Kill())
	_ = child.Wait()
	w.want("a")
	thawed, err := w.Recover()
	if err != nil || !slices.Equal(thawed, []string{"kubepods/poda"}) {
		t.Errorf("%q %v", thawed, err)
	}
	w.want("")
	if thawed, err := w.Recover(); err != nil || thawed != nil {
		t.Errorf("once more: %q %v", thawed, err)
	}
}

// A list is thawed whatever became of its pods, and nothing that is no pod's.
func TestRecoverList(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "kubepods/poda")
	w.pods["kubepods"] = filepath.Join(w.Root, "kubepods")
	w.must(os.WriteFile(filepath.Join(w.pods["kubepods"], "cgroup.freeze"), []byte("1"), 0))
	w.must(os.WriteFile(w.List, []byte(`["kubepods/podgone","kubepods","../`+w.name+`/kubepods/poda","kubepods/poda"]`), 0o600))
	thawed, err := w.Recover()
	if err != nil || !slices.Equal(thawed, []string{"kubepods/podgone", "kubepods/poda"}) || !slices.Equal(w.frozen(), []string{"kubepods"}) {
		t.Errorf("%q %v, frozen %q", thawed, err, w.frozen())
	}
}

// What a call could not thaw goes on before the next one freezes others, whose list takes the place
// of its own.
func TestFreezeAfterFailedThaw(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "kubepods/poda")
	w.pod("b", "kubepods/podb")
	_, err := w.Freeze(soon(t), []string{"a"})
	w.must(err)
	f, err := w.Freeze(soon(t), []string{"b"})
	w.must(err)
	w.want("b")
	w.must(f.Thaw())
	w.want("")
}

// What does not hold a list of cgroups is an error that leaves the file as it is, and thaws
// nothing.
func TestRecoverMalformed(t *testing.T) {
	w := newWorld(t)
	for _, text := range []string{"", "{", `{"a":1}`, `[1]`, `["kubepods/poda"`} {
		w.must(os.WriteFile(w.List, []byte(text), 0o600))
		thawed, err := w.Recover()
		left, wrong := os.ReadFile(w.List)
		if err == nil || thawed != nil || wrong != nil || string(left) != text {
			t.Errorf("%q: thawed %q, %v; left is %q", text, thawed, err, left)
		}
	}
}

// No pod is frozen that the list could not name.
func TestFreezeUnlisted(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "kubepods/poda")
	w.List = filepath.Join(t.TempDir(), "none", "paused.json")
	if f, err := w.Freeze(soon(t), []string{"a"}); !errors.Is(err, os.ErrNotExist) || f != nil {
		t.Errorf("%v, %v", f, err)
	}
	w.want("")
}
