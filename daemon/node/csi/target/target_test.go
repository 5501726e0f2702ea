package target

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// kubelet is kubelet's directory with one pod's, and a volume on a filesystem of its own.
type kubelet struct {
	*testing.T
	root   Root
	volume string // a directory with a file
	fd     int
}

const inPod = "pods/u-1/volumes/kubernetes.io~csi/pvc-1"

func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	dir := hosttest.Dir(t)
	k := &kubelet{T: t, root: Root(filepath.Join(dir, "kubelet")), volume: filepath.Join(dir, "pool", "pvc-1")}
	k.mkdir(filepath.Join(dir, "pool"))
	k.run("mount", "-t", "tmpfs", "pool", filepath.Join(dir, "pool"))
	k.mkdir(k.volume, k.at(inPod))
	k.write(filepath.Join(k.volume, "data"))
	k.fd = k.open(k.volume)
	return k
}

func (k *kubelet) at(path string) string { return filepath.Join(string(k.root), path) }

func (k *kubelet) mkdir(all ...string) {
	k.Helper()
	for _, dir := range all {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			k.Fatal(err)
		}
	}
}

func (k *kubelet) write(file string) {
	k.Helper()
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		k.Fatal(err)
	}
}

func (k *kubelet) run(args ...string) {
	k.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		k.Fatalf("%q: %v\n%s", args, err, out)
	}
}

func (k *kubelet) open(dir string) int {
	k.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { unix.Close(fd) })
	return fd
}

func (k *kubelet) publish(target string, o Options) error {
	t, err := k.root.Open(target)
	if err != nil {
		return err
	}
	defer t.Close()
	return t.Publish(k.fd, o)
}

func (k *kubelet) unpublish(target string) error {
	t, err := k.root.Open(target)
	if err != nil {
		return err
	}
	defer t.Close()
	return t.Unpublish()
}

// mounted are the points below kubelet's directory, with their options and propagation.
func (k *kubelet) mounted() (all []string) {
	k.Helper()
	table, err := mounts.Read()
	if err != nil {
		k.Fatal(err)
	}
	for _, m := range table {
		if rest, below := strings.CutPrefix(m.Point, string(k.root)+"/"); below {
			all = append(all, rest+" "+m.Options)
		}
	}
	return all
}

func (k *kubelet) want(err, is error) {
	k.Helper()
	if !errors.Is(err, is) {
		k.Errorf("%v, want %v", err, is)
	}
}

// The whole life: mounted, again, its data there, unmounted, again.
func TestPublish(t *testing.T) {
	k := newKubelet(t)
	target := k.at(inPod + "/mount")
	for range 2 {
		k.want(k.publish(target, Options{}), nil)
	}
	if all := k.mounted(); len(all) != 1 || all[0] != inPod+"/mount rw,relatime" {
		t.Fatalf("%q", all)
	}
	if _, err := os.Stat(target + "/data"); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(target+"/more", nil, 0o600); err != nil {
		t.Error(err)
	}
	for range 2 {
		k.want(k.unpublish(target), nil)
	}
	entries, err := os.ReadDir(k.at(inPod))
	if err != nil || len(entries) != 0 || len(k.mounted()) != 0 {
		t.Errorf("left: %v, %v, %q", entries, err, k.mounted())
	}
	if _, err := os.Stat(k.volume + "/more"); err != nil {
		t.Error("what was written is not in the volume:", err)
	}
}

func TestReadOnly(t *testing.T) {
	k := newKubelet(t)
	target := k.at(inPod + "/mount")
	for range 2 {
		k.want(k.publish(target, Options{ReadOnly: true}), nil)
	}
	k.want(os.WriteFile(target+"/more", nil, 0o600), unix.EROFS)
	k.want(os.WriteFile(k.volume+"/more", nil, 0o600), nil)
	k.want(k.publish(target, Options{}), ErrOccupied)
	k.want(k.unpublish(target), nil)
}

// What is mounted in the volume, before or after, is not seen in the pod's directory, and the other
// way round.
func TestMountsStayApart(t *testing.T) {
	k := newKubelet(t)
	target := k.at(inPod + "/mount")
	k.mkdir(k.volume+"/before", k.volume+"/after", k.volume+"/inside")
	k.run("mount", "-t", "tmpfs", "before", k.volume+"/before")
	k.run("mount", "--make-shared", filepath.Dir(k.volume))
	k.want(k.publish(target, Options{}), nil)
	k.run("mount", "-t", "tmpfs", "after", k.volume+"/after")
	k.run("mount", "-t", "tmpfs", "inside", target+"/inside")
	if all := k.mounted(); len(all) != 2 || !strings.Contains(strings.Join(all, "\n"), "/mount/inside") {
		t.Errorf("%q", all)
	}
	if out, _ := exec.Command("findmnt", "-n", "-M", k.volume+"/inside").Output(); len(out) > 0 {
		t.Errorf("the volume's directory has the pod's mount: %s", out)
	}
	k.want(k.unpublish(target), nil)
}

// A volume for one pod alone is not mounted for a second one, and again when the first one is gone.
func TestAlone(t *testing.T) {
	k := newKubelet(t)
	second := "pods/u-2/volumes/kubernetes.io~csi/pvc-1"
	k.mkdir(k.at(second))
	first, next := k.at(inPod+"/mount"), k.at(second+"/mount")
	k.want(k.publish(first, Options{Alone: true}), nil)
	k.want(k.publish(first, Options{Alone: true}), nil)
	k.want(k.publish(next, Options{Alone: true}), ErrInUse)
	if _, err := os.Lstat(next); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the second target: %v", err)
	}
	k.want(k.publish(next, Options{}), nil)
	k.want(k.unpublish(next), nil)
	k.want(k.unpublish(first), nil)
	k.want(k.publish(next, Options{Alone: true}), nil)
	k.want(k.unpublish(next), nil)
}

// Only a path of kubelet's form is opened.
func TestForm(t *testing.T) {
	k := newKubelet(t)
	k.mkdir(k.at("pods/u-1/volumes/kubernetes.io~empty-dir/x"), k.at("plugins/x"), k.at("pods/u-1/etc"))
	for _, target := range []string{
		"", "mount", "/etc", string(k.root), k.at("pods"), k.at("pods/u-1"), k.at(inPod), k.at(inPod + "/mount/deeper"), k.at(inPod) + "/",
		k.at(inPod) + "/../pvc-1/mount", k.at(inPod) + "/./mount", k.at(inPod) + "//mount", k.at(inPod) + "/..", k.at("pods/../pods") + "/../" + inPod + "/mount",
		k.at("pods/u-1/volumes/kubernetes.io~empty-dir/x/mount"), k.at("plugins/x/y/z/volumes/mount"), k.at(inPod) + "/mo\x00unt",
		strings.ToUpper(k.at(inPod + "/mount")), "/proc/self/root" + k.at(inPod+"/mount"),
	} {
		k.want(k.publish(target, Options{}), ErrForm)
		k.want(k.unpublish(target), ErrForm)
	}
	k.want(k.publish(k.at("pods/u-9/volumes/kubernetes.io~csi/pvc-1/mount"), Options{}), ErrAbsent)
	if all := k.mounted(); len(all) != 0 {
		t.Errorf("%q", all)
	}
}

// No link below the directory of the pods is followed, whoever made it.
func TestLinks(t *testing.T) {
	for _, link := range []string{"pods", "pods/u-1", "pods/u-1/volumes", "pods/u-1/volumes/kubernetes.io~csi", inPod, inPod + "/mount"} {
		t.Run(filepath.Base(link), func(t *testing.T) {
			k := newKubelet(t)
			elsewhere := hosttest.Dir(t)
			k.mkdir(k.at(inPod + "/mount"))
			if err := errors.Join(os.Rename(k.at(link), elsewhere+"/moved"), os.Symlink(elsewhere+"/moved", k.at(link))); err != nil {
				t.Fatal(err)
			}
			target := k.at(inPod + "/mount")
			if err := k.publish(target, Options{}); !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
				t.Errorf("published: %v", err)
			}
			if err := k.unpublish(target); !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
				t.Errorf("unpublished: %v", err)
			}
			if _, err := os.Stat(elsewhere + "/moved"); err != nil || len(k.mounted()) != 0 {
				t.Errorf("%v, %q", err, k.mounted())
			}
		})
	}
}

// A link in the path of kubelet's directory itself is the administrator's.
func TestLinkedRoot(t *testing.T) {
	k := newKubelet(t)
	link := hosttest.Dir(t) + "/kubelet"
	if err := os.Symlink(string(k.root), link); err != nil {
		t.Fatal(err)
	}
	real := k.root
	k.root = Root(link)
	target := k.at(inPod + "/mount")
	for range 2 {
		k.want(k.publish(target, Options{}), nil)
	}
	k.root = real
	if all := k.mounted(); len(all) != 1 {
		t.Errorf("%q", all)
	}
	k.root = Root(link)
	k.want(k.unpublish(target), nil)
}

// The directory of all pods may be a mount; what is mounted below it is not entered.
func TestMountsInTheWay(t *testing.T) {
	k := newKubelet(t)
	k.run("mount", "-t", "tmpfs", "pods", k.at("pods"))
	k.mkdir(k.at(inPod))
	target := k.at(inPod + "/mount")
	k.want(k.publish(target, Options{}), nil)
	k.want(k.unpublish(target), nil)
	k.run("mount", "-t", "tmpfs", "pod", k.at("pods/u-1"))
	k.mkdir(k.at(inPod))
	k.want(k.publish(target, Options{}), unix.EXDEV)
	k.want(k.unpublish(target), unix.EXDEV)
}

// What else is mounted on the target stays while something is to be published, and goes when it is
// unpublished.
func TestOccupied(t *testing.T) {
	k := newKubelet(t)
	target := k.at(inPod + "/mount")
	k.mkdir(target)
	k.run("mount", "-t", "tmpfs", "other", target)
	k.want(k.publish(target, Options{}), ErrOccupied)
	k.run("mount", "--bind", k.volume, target)
	k.want(k.publish(target, Options{}), nil)
	k.want(k.unpublish(target), nil)
	if all := k.mounted(); len(all) != 0 {
		t.Errorf("%q", all)
	}
}

// A target that has files is not removed, and neither are they; nor a file in its place.
func TestUnpublishRemovesNothingElse(t *testing.T) {
	k := newKubelet(t)
	target := k.at(inPod + "/mount")
	k.mkdir(target + "/sub")
	k.write(target + "/sub/file")
	k.want(k.unpublish(target), ErrContent)
	if _, err := os.Stat(target + "/sub/file"); err != nil {
		t.Error(err)
	}
	k.write(k.at(inPod + "/file"))
	k.want(k.unpublish(k.at(inPod+"/file")), unix.ENOTDIR)
	k.want(k.publish(k.at(inPod+"/file"), Options{}), unix.ENOTDIR)
}

// Nothing is mounted over files. Where that is so, it is unmounted, and
// the files stay.
func TestContent(t *testing.T) {
	k := newKubelet(t)
	target := k.at(inPod + "/mount")
	k.mkdir(target + "/sub")
	k.want(k.publish(target, Options{}), ErrContent)
	k.run("mount", "--bind", k.volume, target)
	k.want(k.publish(target, Options{}), nil)
	for range 2 {
		k.want(k.unpublish(target), ErrContent)
	}
	if _, err := os.Stat(target + "/sub"); err != nil || len(k.mounted()) != 0 {
		t.Errorf("%v, mounted %q", err, k.mounted())
	}
	if err := os.Remove(target + "/sub"); err != nil {
		t.Fatal(err)
	}
	k.want(k.publish(target, Options{}), nil)
	k.want(k.unpublish(target), nil)
}

// A directory that was removed, or hidden by another mount, is not published.
func TestSourceGone(t *testing.T) {
	k := newKubelet(t)
	target := k.at(inPod + "/mount")
	if err := os.RemoveAll(k.volume); err != nil {
		t.Fatal(err)
	}
	if err := k.publish(target, Options{}); err == nil {
		t.Errorf("a removed directory was published: %q", k.mounted())
	}
	k.mkdir(k.volume)
	k.fd = k.open(k.volume)
	k.run("mount", "-t", "tmpfs", "over", filepath.Dir(k.volume))
	if err := k.publish(target, Options{}); !errors.Is(err, ErrChanged) {
		t.Errorf("a hidden directory: %v, %q", err, k.mounted())
	}
	k.want(k.unpublish(target), nil)
}

// The pool may be unmounted at any moment after its directory was opened. What lies on a mount that
// left the table cannot be cloned, and a directory that had none under it looks as if it lay
// elsewhere: kubelet is to ask again.
func TestUnmountedMeanwhile(t *testing.T) {
	k := newKubelet(t)
	k.run("umount", "-l", filepath.Dir(k.volume))
	k.want(k.publish(k.at(inPod+"/mount"), Options{}), ErrChanged)
	k.want(changed(k.fd, unix.EINVAL), ErrChanged)
	if _, err := clone(k.fd, false); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a clone of what is mounted nowhere: %v", err)
	}
	if all := k.mounted(); len(all) != 0 {
		t.Errorf("%q", all)
	}
}

// What the kernel refuses for another reason is told as it is: the pool may be unbindable.
func TestUnbindable(t *testing.T) {
	k := newKubelet(t)
	k.run("mount", "--make-unbindable", filepath.Dir(k.volume))
	k.want(k.publish(k.at(inPod+"/mount"), Options{}), unix.EINVAL)
	if left, err := os.ReadDir(k.at(inPod)); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}
