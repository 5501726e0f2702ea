package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// A process that goes on writing does not keep purge: without root's rights it is shut out, with
// them what it holds is reported after some passes.
func TestPurgeWhileWriting(t *testing.T) {
	for _, c := range [][2]string{
		{"tmpfs", "65534"}, {"tmpfs", "0"}, {"btrfs", "65534"}, {"btrfs", "0"},
	} {
		t.Run(c[0]+" uid "+c[1], func(t *testing.T) {
			who, r := c[1], onTmpfs(t)
			if c[0] == "btrfs" {
				r = onDisk(t, mounted(t, "btrfs", 256))
			}
			dir := r.create(t, pv)
			must(t, os.Mkdir(filepath.Join(dir, "d"), 0o777))
			must(t, os.Chmod(filepath.Join(dir, "d"), 0o777))
			writer := exec.Command("setpriv", "--reuid", who, "--clear-groups", "sh", "-c",
				`exec 9>held; echo ready; i=0; while i=$((i+1)); do : > f$i; mkdir -p d/$i; : > d/$i/f; echo x >&9; done 2>/dev/null`)
			writer.Dir = dir
			out, err := writer.StdoutPipe()
			must(t, err)
			must(t, writer.Start())
			t.Cleanup(func() { _ = writer.Process.Kill(); _ = writer.Wait() })
			_, err = out.Read(make([]byte, 6))
			must(t, err)
			must(t, r.Trash(t.Context(), r.id, pv))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = r.Purge(ctx, r.id, pv)
			if who != "0" {
				must(t, err)
			} else if err != nil && !errors.Is(err, ErrLeft) {
				t.Fatal(err)
			}
			must(t, writer.Process.Kill())
			_ = writer.Wait()
			_, err = r.Purge(ctx, r.id, pv)
			must(t, err)
		})
	}
}

// A directory that its owner removes while a purge reads it is nothing that is left.
func TestPurgeRemovedMeanwhile(t *testing.T) {
	r := onTmpfs(t)
	before := contents(t, r.path)
	dir := r.create(t, pv)
	write(t, filepath.Join(dir, "d", "1"), "x")
	write(t, filepath.Join(dir, "d", "2"), "x")
	must(t, r.Trash(t.Context(), r.id, pv))
	d := r.meta("trash", pv+"~", "d")
	purged, err := r.Purge(&meanwhile{Context: t.Context(), do: func() {
		if all, err := os.ReadDir(d); err == nil && len(all) == 1 {
			must(t, os.RemoveAll(d))
		}
	}}, r.id, pv)
	must(t, err)
	if after := contents(t, r.path); after != before || !purged.Forgotten {
		t.Errorf("%+v; left:\n%s", purged, after)
	}
}

// meanwhile is a context that does something whenever it is asked.
type meanwhile struct {
	context.Context
	do func()
}

func (m *meanwhile) Err() error { m.do(); return m.Context.Err() }

// The owner of a directory that takes long to empty is shut out meanwhile, of those above it as
// well.
func TestPurgeShutsOutMeanwhile(t *testing.T) {
	r := onTmpfs(t)
	dir := r.create(t, pv)
	for i := range 2 * shutOutEvery {
		write(t, filepath.Join(dir, "d", "below", strconv.Itoa(i)), "")
	}
	for _, path := range []string{"", "d", "d/below"} {
		path = filepath.Join(dir, path)
		must(t, errors.Join(os.Chmod(path, 0o777), os.Chown(path, 7, 7)))
	}
	must(t, r.Trash(t.Context(), r.id, pv))
	_, err := r.Purge(&countdown{Context: t.Context(), left: 3 * shutOutEvery / 2}, r.id, pv)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for _, path := range []string{"", "d", "d/below"} {
		var st unix.Stat_t
		must(t, unix.Stat(r.meta("trash", pv+"~", path), &st))
		if st.Uid != 0 || st.Mode&0o777 != 0o700 {
			t.Errorf("%q: %d %o", path, st.Uid, st.Mode)
		}
	}
}

// The same for a writer that is always faster: after each pass there is a new file. It is reported,
// and the directory is root's alone by then.
func TestPurgeNeverEmpty(t *testing.T) {
	r := onTmpfs(t)
	held, err := unix.Open(r.create(t, pv), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(held)
	must(t, r.Trash(t.Context(), r.id, pv))
	passes := 0
	r.atCrashPoint = func(step string) {
		if step == "directory emptied" {
			passes++
			must(t, unix.Mknodat(held, strconv.Itoa(passes), unix.S_IFREG, 0))
		}
	}
	must(t, unix.Mknodat(held, "0", unix.S_IFREG, 0))
	purged, err := r.Purge(t.Context(), r.id, pv)
	want := `pool "fast": volume "pvc-1": not everything could be removed: 8 removed, 1 left: "pvc-1~": directory not empty`
	if !errors.Is(err, ErrLeft) || err.Error() != want || purged.Removed != passMax || passes != passMax {
		t.Errorf("%d passes, got %v\nwant %s", passes, err, want)
	}
	if got := contents(t, r.meta("trash", pv+"~")); !strings.HasPrefix(got, `"." drwx------ 0:0`) {
		t.Errorf("not shut out:\n%s", got)
	}
}

// A directory that is moved away, or replaced, after it was found not to be empty is no reason to
// report a volume: what is there when the directory above is to be removed goes with the next pass.
func TestPurgeMovedMeanwhile(t *testing.T) {
	for name, replace := range map[string]func(from string) error{
		"moved":              func(string) error { return nil },
		"replaced by a file": func(from string) error { return os.WriteFile(from, nil, 0o600) },
		"replaced by a link": func(from string) error { return os.Symlink("/", from) },
	} {
		t.Run(name, func(t *testing.T) {
			r := onTmpfs(t)
			before := contents(t, r.path)
			write(t, filepath.Join(r.create(t, pv), "a", "b", "file"), "x")
			must(t, r.Trash(t.Context(), r.id, pv))
			b, aside := r.meta("trash", pv+"~", "a", "b"), filepath.Join(r.path, "aside")
			found, emptied := 0, 0
			r.atCrashPoint = func(step string) {
				switch step {
				case "directory found":
					if found++; found == 3 { // the volume, a, b
						must(t, errors.Join(os.Rename(b, aside), replace(b)))
					}
				case "directory emptied":
					if emptied++; emptied == 1 {
						must(t, errors.Join(os.RemoveAll(b), os.Rename(aside, b)))
					}
				}
			}
			purged, err := r.Purge(t.Context(), r.id, pv)
			must(t, err)
			if after := contents(t, r.path); after != before || !purged.Forgotten || found < 4 || emptied < 2 {
				t.Errorf("%+v; %d found, %d emptied; left:\n%swas:\n%s", purged, found, emptied, after, before)
			}
		})
	}
}

// Purge stops between two entries when it is told to, and the next one goes on.
func TestPurgeCanceled(t *testing.T) {
	r := onTmpfs(t)
	dir := r.create(t, pv)
	for i := range 500 {
		must(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600))
	}
	must(t, r.Trash(t.Context(), r.id, pv))
	purged, err := r.Purge(&countdown{Context: t.Context(), left: 100}, r.id, pv)
	if !errors.Is(err, context.Canceled) || purged.Removed == 0 || purged.Removed > 100 {
		t.Fatalf("%v, %+v", err, purged)
	}
	again, err := r.Purge(t.Context(), r.id, pv)
	if err != nil || purged.Removed+again.Removed != 501 {
		t.Fatalf("%v, %+v then %+v", err, purged, again)
	}
}

// countdown is a context that ends when it was asked so many times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// btrfs subvolumes, which any user can make, are other filesystems by device and none by mount.
func TestPurgeSubvolumes(t *testing.T) {
	r := onDisk(t, mounted(t, "btrfs", 160))
	before := contents(t, r.path)
	dir := r.create(t, pv)
	for _, sub := range []string{"s", "s/t"} {
		if out, err := exec.Command("btrfs", "subvolume", "create", filepath.Join(dir, sub)).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	write(t, filepath.Join(dir, "s", "t", "text"), "x")
	deep(t, filepath.Join(dir, "s", "t"), 200)
	must(t, r.Trash(t.Context(), r.id, pv))
	_, err := r.Purge(t.Context(), r.id, pv)
	must(t, err)
	if after := contents(t, r.path); after != before {
		t.Errorf("left:\n%s", after)
	}
}

// BenchmarkCreateDuringPurge is Create's latency while a volume of 200,000 files is purged, beside
// that of a quiet pool.
func BenchmarkCreateDuringPurge(b *testing.B) {
	for _, purging := range []bool{false, true} {
		b.Run(fmt.Sprint("purging=", purging), func(b *testing.B) {
			path := hosttest.PoolMount(b, hosttest.Mkfs(b, "ext4", 1024, "-N", "300000"))
			b.Cleanup(func() { hosttest.Unmount(b, path) })
			r := onDisk(b, path)
			dir := r.create(b, pv)
			for i := range 200_000 {
				if i%1000 == 0 {
					must(b, os.Mkdir(filepath.Join(dir, strconv.Itoa(i/1000)), 0o755))
				}
				must(b, os.WriteFile(filepath.Join(dir, strconv.Itoa(i/1000), strconv.Itoa(i)), nil, 0o600))
			}
			must(b, r.Trash(b.Context(), r.id, pv))
			ctx, cancel := context.WithCancel(b.Context())
			var wait sync.WaitGroup
			began, took := time.Now(), time.Duration(0)
			if purging {
				wait.Go(func() { _, _ = r.Purge(ctx, r.id, pv); took = time.Since(began) })
			}
			measure(b, 1, func(i int) error { _, err := r.Create(b.Context(), r.id, spec(pvName(i))); return err })
			created := time.Since(began)
			if purging && os.Getenv("PURGE_WHOLE") == "" {
				cancel()
			}
			wait.Wait()
			cancel()
			b.ReportMetric(took.Seconds(), "purge-s")
			b.ReportMetric(created.Seconds(), "creating-s")
		})
	}
}
