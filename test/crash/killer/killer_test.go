package killer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const childEnv = "HOSTPATH_CRASH_TEST_CHILD"

func TestMain(m *testing.M) {
	if Asked() {
		fmt.Fprintln(os.Stderr, Become(os.Args))
		os.Exit(1)
	}
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

// child makes three changes, in this order, with a call in between that the killer does not know,
// and maps its own program.
func child(dir string) int {
	if os.Mkdir(dir+"/a", 0o700) != nil || os.Rename(dir+"/a", dir+"/b") != nil {
		return 1
	}
	_ = unix.Truncate(dir+"/nowhere/x", 0)
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return 1
	}
	if _, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return 1
	}
	if os.Mkdir(dir+"/c", 0o700) != nil {
		return 1
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		return 1
	}
	if _, err := unix.Write(pair[0], []byte("x")); err != nil || os.Mkdir(dir+"/told", 0o700) != nil {
		return 1
	}
	return 0
}

// watchedChild is the child, with a killer that watches it in a pool.
func watchedChild(t *testing.T, s Scope) (k *Killer, pool string, cmd *exec.Cmd) {
	t.Helper()
	s.Pool = t.TempDir()
	k, err := New(filepath.Join(t.TempDir(), "s"), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	cmd = exec.Command("/proc/self/exe", "run")
	cmd.Env = append(os.Environ(), append(k.Env("/proc/self/exe"), childEnv+"="+s.Pool)...)
	return k, s.Pool, cmd
}

// Killed at a point, the child has done all that is before it, and not the call itself.
func TestKiller(t *testing.T) {
	for _, c := range []struct {
		point string
		want  []string
	}{
		{"", []string{"b", "c", "told"}},
		{"mkdir pool/a #1", nil},
		{"rename pool/a to pool/b #1", []string{"a"}},
		{"mkdir pool/c #1", []string{"b"}},
	} {
		k, pool, cmd := watchedChild(t, Scope{})
		hit := k.Arm(c.point, 0)
		timer := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
		out, err := cmd.CombinedOutput()
		timer.Stop()
		if (err != nil) != (c.point != "") {
			t.Fatalf("%q: %v\n%s", c.point, err, out)
		}
		if c.point != "" {
			select {
			case got := <-hit:
				if got != c.point {
					t.Errorf("killed at %q, want %q", got, c.point)
				}
			default:
				t.Errorf("never came to %q: %q", c.point, k.Disarm())
			}
		}
		if c.point == "" || c.point == "mkdir pool/c #1" {
			want := []string{fmt.Sprintf("system call %d, 1 times", unix.SYS_TRUNCATE), fmt.Sprintf("system call %d, 1 times", unix.SYS_MMAP)}
			slices.Sort(want)
			if got := k.Strangers(); !slices.Equal(got, want) {
				t.Errorf("strangers %q, want %q", got, want)
			}
		}
		var got []string
		entries, _ := os.ReadDir(pool)
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("killed at %q: the directory has %q, want %q", c.point, got, c.want)
		}
	}
}

const volumeUID = "11111111-2222-3333-4444-555555555555"

func TestNames(t *testing.T) {
	s := Scope{Pool: "/p", State: "/s", Locks: "/l", Runtime: "/r", Cgroup: "/c"}
	for path, want := range map[string]string{
		"/p": "pool", "/p/pvc-" + volumeUID: "pool/PV", "/p/.hostpath-provisioner/volumes/pvc-" + volumeUID + ".json.new": "volumes/PV.json.new",
		"/p/.hostpath-provisioner/trash": "trash", "/s/lock": "state/lock", "/l/ABCDEFGHIJKLMNOPQRSTUVWX23.lock": "locks/ID.lock",
		"/p/.hostpath-provisioner/staging/pvc-" + volumeUID + "/.links-ABCDEFGHIJKLMNOPQRSTUVWX23/7-1-12-1700000000-5-1700000000-6": "staging/PV/.links-ID/KEY",
		"/p/csi-" + strings.Repeat("0a", 32): "pool/PV", "/r/paused.json": "run/paused.json", "/c/cgroup.freeze": "cgroup/cgroup.freeze",
		"/p/.hostpath-provisioner/staging/pvc-" + volumeUID + "/.stale-ABCDEFGHIJKLMNOPQRSTUVWX23/12": "staging/PV/.stale-ID/N",
		"/px": "", "/": "", "": "",
	} {
		if got := s.name(path); got != want {
			t.Errorf("%q is %q, want %q", path, got, want)
		}
	}
	if got := (Scope{Pool: "/p"}).name("/x"); got != "" {
		t.Errorf("%q, without a state directory", got)
	}
	if got := (Scope{Pool: "/p", Exact: true}).name("/p/pvc-" + volumeUID); got != "pool/pvc-"+volumeUID {
		t.Errorf("%q, with names as they are", got)
	}
}

// A message on a pair of sockets is a point where such count, and elsewhere none.
func TestLocal(t *testing.T) {
	for _, local := range []bool{true, false} {
		k, pool, cmd := watchedChild(t, Scope{Local: local})
		k.Arm(Message+" #1", 0)
		killed := cmd.Run() != nil
		if _, err := os.Stat(filepath.Join(pool, "told")); killed != local || (err != nil) != local {
			t.Errorf("local %t: killed %t, %v", local, killed, err)
		}
	}
}

// A call that is held was not begun, and is made when it is let go.
func TestHold(t *testing.T) {
	k, pool, cmd := watchedChild(t, Scope{})
	held, release := make(chan struct{}), make(chan struct{})
	k.Hold(func(point string) <-chan struct{} {
		if point != "rename pool/a to pool/b" {
			return nil
		}
		close(held)
		return release
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-held
	if _, err := os.Stat(filepath.Join(pool, "b")); err == nil {
		t.Error("what is held was done")
	}
	close(release)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(pool, "c")); err != nil {
		t.Error(err)
	}
}
