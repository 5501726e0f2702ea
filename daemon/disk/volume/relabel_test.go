package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

var wanted = selinux.Want{Type: selinux.DefaultType}

func setLabel(t *testing.T, path, label string) {
	t.Helper()
	must(t, unix.Lsetxattr(path, "security.selinux", []byte(label), 0))
}

func labelOf(t *testing.T, path string) string {
	t.Helper()
	buffer := make([]byte, 256)
	n, err := unix.Lgetxattr(path, "security.selinux", buffer)
	if errors.Is(err, unix.ENODATA) {
		return ""
	}
	must(t, err)
	return string(buffer[:n])
}

// nasty makes what an owner can put into his volume, and returns what must not be relabelled: what
// links lead to, and what is mounted inside.
func nasty(t *testing.T, r *rig, dir string) (spared []string) {
	t.Helper()
	outside := filepath.Join(r.path, "outside")
	must(t, os.WriteFile(outside, nil, 0o600))
	must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(t, unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("data"), 0o600))
	must(t, os.MkdirAll(filepath.Join(dir, metaDir, "mine"), 0o700)) // the name means nothing in here
	mounted := filepath.Join(dir, "mounted")
	must(t, os.Mkdir(mounted, 0o700))
	hosttest.Mount(t, "-t", "tmpfs", "tmpfs", mounted)
	t.Cleanup(func() { hosttest.Unmount(t, mounted) })
	must(t, os.WriteFile(filepath.Join(mounted, "theirs"), nil, 0o600))
	return []string{outside, mounted, filepath.Join(mounted, "theirs")}
}

// Everything in a volume gets the label, whatever it is, and nothing outside it does.
func TestRelabel(t *testing.T) {
	r := onTmpfs(t)
	dir := r.create(t, pvName(1))
	spared := nasty(t, r, dir)
	other := r.create(t, pvName(2))
	ctx := context.Background()

	dry, err := r.Relabel(ctx, r.id, pvName(1), Relabelling{Want: wanted, DryRun: true})
	must(t, err)
	want := Relabelled{Visited{Seen: 8, Changed: 8, Mounts: 1}}
	if fmt.Sprint(dry) != fmt.Sprint(want) || labelOf(t, dir) != "" {
		t.Errorf("dry run: %+v, want %+v; label %q", dry, want, labelOf(t, dir))
	}
	done, err := r.Relabel(ctx, r.id, pvName(1), Relabelling{Want: wanted})
	must(t, err)
	if fmt.Sprint(done) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", done, want)
	}
	for _, name := range []string{"", "link", "dangling", "fifo", "null", "file", metaDir, metaDir + "/mine"} {
		if got := labelOf(t, filepath.Join(dir, name)); got != selinux.Label(selinux.DefaultType) {
			t.Errorf("%q: label %q", name, got)
		}
	}
	for _, path := range append(spared, other) {
		if got := labelOf(t, path); got != "" {
			t.Errorf("%s was given label %q", path, got)
		}
	}
	again, err := r.Relabel(ctx, r.id, pvName(1), Relabelling{Want: wanted})
	must(t, err)
	if again.Changed != 0 || again.Seen != want.Seen {
		t.Errorf("again: %+v", again)
	}
}

// Only what does not fit is changed; categories are left to kubelet where it gives them.
func TestRelabelLevels(t *testing.T) {
	r := onTmpfs(t)
	dir := r.create(t, pvName(1))
	const own = "system_u:object_r:container_file_t:s0:c1,c2"
	for _, c := range []struct {
		any           bool
		before, after string
	}{
		{false, own, selinux.Label("container_file_t")},
		{true, own, own},
		{true, "unconfined_u:object_r:default_t:s0:c1,c2", own},
		{true, "", selinux.Label("container_file_t")},
		{false, "unconfined_u:object_r:container_file_t:s0", "unconfined_u:object_r:container_file_t:s0"},
	} {
		if c.before == "" {
			must(t, unix.Removexattr(dir, "security.selinux"))
		} else {
			setLabel(t, dir, c.before)
		}
		_, err := r.Relabel(t.Context(), r.id, pvName(1), Relabelling{Want: selinux.Want{Type: "container_file_t", AnyLevel: c.any}})
		must(t, err)
		if got := labelOf(t, dir); got != c.after {
			t.Errorf("%q, any level %v: %q, want %q", c.before, c.any, got, c.after)
		}
	}
}

// A tree that is deeper than descriptors reach is walked whole, and a call that was cut off is made
// again.
func TestRelabelDeep(t *testing.T) {
	const depth = 3000
	r := onTmpfs(t)
	dir := r.create(t, pvName(1))
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range depth {
		must(t, unix.Mkdirat(fd, "d", 0o700))
		must(t, unix.Mkdirat(fd, "e", 0o700))
		below, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		unix.Close(fd)
		fd = below
	}
	unix.Close(fd)

	ctx, cancel := context.WithCancel(t.Context())
	cut := Relabelling{Want: wanted, Progress: func(r Relabelled) {
		if r.Changed >= depth/2 {
			cancel()
		}
	}}
	first, err := r.Relabel(ctx, r.id, pvName(1), cut)
	if !errors.Is(err, context.Canceled) || first.Changed < depth/2 || first.Changed > depth {
		t.Fatalf("cut off: %+v, %v", first, err)
	}
	second, err := r.Relabel(t.Context(), r.id, pvName(1), Relabelling{Want: wanted})
	must(t, err)
	if second.Seen != 2*depth+1 || first.Changed+second.Changed != 2*depth+1 {
		t.Errorf("first %+v, second %+v", first, second)
	}
	_, err = r.Purge(t.Context(), r.id, pvName(1)) // in the pool it is not purged
	if !errors.Is(err, ErrPlace) {
		t.Errorf("purge: %v", err)
	}
}

// If a directory is moved while the walk is below it, what is not relabelled is named, and the rest
// is done.
func TestRelabelMovedMeanwhile(t *testing.T) {
	const levels, moved = tree.Held + 8, tree.Held + 3
	r := onTmpfs(t)
	dir := r.create(t, pvName(1))
	must(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", levels)), 0o700))
	must(t, os.Mkdir(filepath.Join(dir, "z"), 0o700))
	change := Relabelling{Want: wanted, Progress: func(r Relabelled) {
		if deep := filepath.Join(dir, strings.Repeat("d/", moved)); r.Seen >= levels {
			_ = os.Rename(deep, filepath.Join(dir, "moved"))
		}
	}}
	done, err := r.Relabel(t.Context(), r.id, pvName(1), change)
	must(t, err)
	want := fmt.Sprintf(`: 1 left: "%s": directories in it were moved meanwhile: another directory is above`, strings.TrimSuffix(strings.Repeat("d/", tree.Held), "/"))
	if !strings.HasSuffix(strings.ReplaceAll(fmt.Sprint(done.Err()), fmt.Sprintf("%d relabelled, ", done.Changed), ""), want) || labelOf(t, filepath.Join(dir, "z")) == "" {
		t.Errorf("%v\nwant %s; %+v", done.Err(), want, done)
	}
	again, err := r.Relabel(t.Context(), r.id, pvName(1), Relabelling{Want: wanted})
	if must(t, err); again.Left != 0 || again.Seen != levels+2 {
		t.Errorf("again: %+v", again)
	}
}

// What cannot be relabelled is named, and the rest is done.
func TestRelabelLeft(t *testing.T) {
	r := onDisk(t, hosttest.PoolMount(t, hosttest.Mkfs(t, "ext4", 64)))
	dir := r.create(t, pvName(1))
	fixed := filepath.Join(dir, "fixed")
	must(t, os.WriteFile(fixed, nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "other"), nil, 0o600))
	hosttest.SetImmutable(t, fixed, true)
	defer hosttest.SetImmutable(t, fixed, false)
	done, err := r.Relabel(t.Context(), r.id, pvName(1), Relabelling{Want: wanted})
	must(t, err)
	if done.Changed != 2 || done.Left != 1 || !errors.Is(done.Err(), ErrUnlabelled) || !strings.Contains(done.Err().Error(), `"fixed": `) {
		t.Errorf("%+v: %v", done, done.Err())
	}
}

// A volume without a record, a closed pool and a volume that does not exist are refused.
func TestRelabelRefuses(t *testing.T) {
	r := onTmpfs(t)
	r.create(t, pvName(1))
	must(t, os.Mkdir(filepath.Join(r.path, "foreign"), 0o700))
	for _, pv := range []string{"foreign", "..", "", pvName(7)} {
		if _, err := r.Relabel(t.Context(), r.id, pv, Relabelling{Want: wanted}); err == nil {
			t.Errorf("%q was relabelled", pv)
		}
	}
	other := r.id
	other.Inode++
	if _, err := r.Relabel(t.Context(), other, pvName(1), Relabelling{Want: wanted}); !errors.Is(err, ErrDirectoryReplaced) {
		t.Errorf("another directory in its place: %v", err)
	}
}

// The pool's own directory and records get a label of their own; volumes in it keep theirs.
func TestRelabelOwn(t *testing.T) {
	r := onTmpfs(t)
	dir := r.create(t, pvName(1))
	done, err := r.RelabelOwn(t.Context(), r.id, Relabelling{Want: selinux.Want{Type: selinux.PoolType}})
	must(t, err)
	if done.Changed != 8 || done.Err() != nil {
		t.Errorf("%+v", done)
	}
	for _, path := range []string{r.path, r.meta(), r.meta("volumes"), r.meta("trash"), r.meta("pool.json"), r.meta("volumes", pvName(1)+".json")} {
		if got := labelOf(t, path); got != selinux.Label(selinux.PoolType) {
			t.Errorf("%s: label %q", path, got)
		}
	}
	if got := labelOf(t, dir); got != "" {
		t.Errorf("the volume was given label %q", got)
	}
}

// Labels sees each volume's directory, and says which do not fit.
func TestLabels(t *testing.T) {
	r := onTmpfs(t)
	setLabel(t, r.create(t, pvName(1)), selinux.Label("container_file_t"))
	setLabel(t, r.create(t, pvName(2)), "system_u:object_r:default_t:s0")
	r.create(t, pvName(3))
	seen, wrong, err := r.Labels(t.Context(), r.id, wanted)
	must(t, err)
	want := []Mislabelled{{pvName(2), "system_u:object_r:default_t:s0"}, {pvName(3), ""}}
	if seen != 3 || fmt.Sprint(wrong) != fmt.Sprint(want) {
		t.Errorf("%d, %v; want %v", seen, wrong, want)
	}
}
