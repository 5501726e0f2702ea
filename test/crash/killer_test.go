package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const childEnv = "HOSTPATH_CRASH_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(socketEnv) != "" {
		fmt.Fprintln(os.Stderr, become(os.Args))
		os.Exit(1)
	}
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

// child makes three changes, in this order, with a call in between that the killer does not know, and maps
// its own program.
func child(dir string) int {
	if os.Mkdir(dir+"/a", 0o700) != nil || os.Rename(dir+"/a", dir+"/b") != nil {
		return 1
	}
	unix.Symlinkat("x", unix.AT_FDCWD, dir+"/nowhere/x")
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
	return 0
}

// Killed at a point, the child has done all that is before it, and not the call itself.
func TestKiller(t *testing.T) {
	for _, c := range []struct {
		point string
		want  []string
	}{
		{"", []string{"b", "c"}},
		{"mkdir pool/a #1", nil},
		{"rename pool/a to pool/b #1", []string{"a"}},
		{"mkdir pool/c #1", []string{"b"}},
	} {
		pool := t.TempDir()
		k, err := newKiller(filepath.Join(t.TempDir(), "s"), scope{pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		hit := k.arm(c.point, 0)
		cmd := exec.Command("/proc/self/exe", "run")
		cmd.Env = append(os.Environ(), append(k.env("/proc/self/exe"), childEnv+"="+pool)...)
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
				t.Errorf("never came to %q: %q", c.point, k.disarm())
			}
		}
		if c.point == "" || c.point == "mkdir pool/c #1" {
			want := []string{fmt.Sprintf("system call %d, 1 times", unix.SYS_SYMLINKAT), fmt.Sprintf("system call %d, 1 times", unix.SYS_MMAP)}
			slices.Sort(want)
			if got := k.strangers(); !slices.Equal(got, want) {
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
