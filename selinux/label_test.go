package selinux

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// A label that was set is read again, of whatever kind of file, and a link's target has none of it.
func TestSetAndOf(t *testing.T) {
	dir := hosttest.Dir(t)
	target, link, fifo := filepath.Join(dir, "target"), filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	for _, err := range []error{os.WriteFile(target, nil, 0o600), os.Symlink(target, link), unix.Mkfifo(fifo, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func(path string) int {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	for _, path := range []string{dir, link, fifo} {
		fd := open(path)
		if got, err := Of(fd); got != "" || err != nil {
			t.Errorf("%s at first: %q, %v", path, got, err)
		}
		if err := Set(fd, born); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if got, err := Of(fd); got != born || err != nil {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if got, err := Of(open(target)); got != "" || err != nil {
		t.Errorf("the link's target: %q, %v", got, err)
	}
	if _, err := Of(open("/proc/self/status")); err == nil {
		t.Error("a file of proc has a label")
	}
}

// What fits is what restorecon would leave alone; categories count only where no process gives
// them.
func TestWant(t *testing.T) {
	for _, c := range []struct {
		label     string
		any, fits bool
		mended    string
	}{
		{"system_u:object_r:container_file_t:s0", false, true, born},
		{"unconfined_u:object_r:container_file_t:s0", false, true, born},
		{"system_u:object_r:container_file_t", false, true, born}, // a policy without levels
		{"system_u:object_r:container_file_t:s0:c1,c2", false, false, born},
		{"system_u:object_r:container_file_t:s0:c1,c2", true, true, "system_u:object_r:container_file_t:s0:c1,c2"},
		{"unconfined_u:object_r:default_t:s0:c1,c2", true, false, "system_u:object_r:container_file_t:s0:c1,c2"},
		{"system_u:object_r:container_file_tt:s0", true, false, born},
		{"", true, false, born},
		{"container_file_t", true, false, born},
	} {
		w := Want{Type: DefaultType, AnyLevel: c.any}
		if w.Fits(c.label) != c.fits || w.Mended(c.label) != c.mended {
			t.Errorf("%q, any level %v: fits %v, mended %q", c.label, c.any, w.Fits(c.label), w.Mended(c.label))
		}
	}
}

// The words of a host without SELinux.
func TestOff(t *testing.T) {
	if Enabled() {
		t.Skip("SELinux is on: the virtual machine's tests prove this part")
	}
	t.Chdir(t.TempDir())
	if Mode() != "disabled" || Knows(DefaultType) || Lacks(DefaultType) {
		t.Errorf("%s, knows: %v", Mode(), Knows(DefaultType))
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// Each file context of the module is a pattern for its own pool and for nothing else, and a volume
// has its type wherever it lies.
func TestPoolsModule(t *testing.T) {
	const path = `/srv/a+b (c)/x"y`
	module := PoolsModule([]PoolLabels{{Path: path, Type: "container_file_t"}, {Path: "/srv/big", Type: "svirt_file_t"}, {Path: "/srv/c", Type: "container_file_t"}})
	lines := regexp.MustCompile(`(?m)^\(filecon "([^"]*)" (dir|any) \((?:system_u object_r (\w+) \(\(s0\) \(s0\)\))?\)\)$`).FindAllStringSubmatch(module, -1)
	if len(lines) != 15 || strings.Count(module, "typeattributeset") != 2 || strings.Count(module, "(") != strings.Count(module, ")")+strings.Count(module, `\(`)-strings.Count(module, `\)`) {
		t.Fatalf("%d file contexts in:\n%s", len(lines), module)
	}
	// Of those that match, libselinux takes the one with the longest part before its first
	// wildcard, and the last of equals (label_file.c).
	typeOf := func(name string) (found string) {
		best := -1
		for _, l := range lines {
			if stem := len(strings.SplitN(strings.ReplaceAll(l[1], `\`, ""), "(", 2)[0]); regexp.MustCompile("^"+l[1]+"$").MatchString(name) && stem >= best {
				found, best = l[3], stem
			}
		}
		return found
	}
	for name, want := range map[string]string{
		path: PoolType, path + "/pvc-1": "container_file_t", path + "/pvc-1/data/file": "container_file_t",
		path + "/.hostpath-provisioner":                    PoolType,
		path + "/lost+found":                               "",
		path + "/.hostpath-provisioner/volumes/pvc-1.json": PoolType,
		path + "/.hostpath-provisioner/trash":              PoolType,
		path + "/.hostpath-provisioner/trash/pvc-1/file":   "container_file_t",
		"/srv/big/pvc-2":                                   "svirt_file_t", "/srv/bigger": "", "/srv/aab (c)/xy": "", "/srv/c": PoolType,
	} {
		if got := typeOf(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
