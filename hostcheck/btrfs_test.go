package hostcheck

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// twoDevices is a prepared pool on a btrfs of two loop devices, mounted by one of them.
func twoDevices(t *testing.T) (p *pool, devices [2]string) {
	t.Helper()
	base := hosttest.Dir(t)
	for i := range devices {
		file := filepath.Join(base, fmt.Sprint("disk", i))
		must(t, os.WriteFile(file, nil, 0o600))
		must(t, os.Truncate(file, 160<<20))
		devices[i] = hosttest.Loop(t, file)
	}
	hosttest.Run(t, "mkfs.btrfs", "-q", "-L", "twins", "-d", "raid0", "-m", "raid1", devices[0], devices[1])
	dir := filepath.Join(base, "pool")
	must(t, os.Mkdir(dir, 0o700))
	hosttest.SetImmutable(t, dir, true)
	hosttest.Mount(t, "-t", "btrfs", "-o", "device="+devices[0]+",device="+devices[1], devices[0], dir)
	must(t, os.Chmod(dir, 0o700))
	m := prepare(t, dir, "fast")
	p = &pool{dir: dir, expect: expectPool(dir)}
	p.expect.Remembered = m.ID
	return p, devices
}

// A btrfs on two devices is the configured one by its UUID, by its label and by each of its
// devices, whichever of them the mount table names and udev's link leads to.
func TestProbeBtrfsOnTwoDevices(t *testing.T) {
	p, devices := twoDevices(t)
	uuid := hosttest.Run(t, "blkid", "-p", "-s", "UUID", "-o", "value", devices[0])
	stranger := hosttest.Loop(t, hosttest.Mkfs(t, "btrfs", 128).File)
	hosttest.Mount(t, "-t", "tmpfs", "none", "/run")
	defer hosttest.Unmount(t, "/run")
	link := func(dir, name, to string) {
		t.Helper()
		number := deviceNumber(to)
		node := ShownDev + "/" + filepath.Base(to)
		var major, minor uint32
		_, err := fmt.Sscanf(number, "%d:%d", &major, &minor)
		must(t, err)
		if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		must(t, os.Symlink(node, filepath.Join(ShownDev, "disk", dir, name)))
	}
	for _, dir := range []string{"by-label", "by-uuid"} {
		must(t, os.MkdirAll(filepath.Join(ShownDev, "disk", dir), 0o755))
	}
	link("by-label", "twins-0", devices[0])
	link("by-label", "twins-1", devices[1])
	link("by-label", "twins-of-another", stranger)
	link("by-uuid", uuid, devices[1])
	for device, want := range map[string]string{
		"UUID=" + uuid:                  "",
		"UUID=" + strings.ToUpper(uuid): "",
		devices[0]:                      "",
		devices[1]:                      "",
		"LABEL=twins-0":                 "",
		"LABEL=twins-1":                 "",
		stranger:                        ReasonWrongDevice,
		"LABEL=twins-of-another":        ReasonWrongDevice,
		"UUID=00000000-0000-0000-0000-000000000001": ReasonWrongDevice,
		"/dev/none": ReasonDeviceMissing,
	} {
		e := p.expect
		e.Device = device
		if got := strings.Join(reasons(NewProber(e).Probe(t.Context())), " "); got != want {
			t.Errorf("%s: %q, want %q", device, got, want)
		}
	}
}

func TestBtrfsOf(t *testing.T) {
	p, devices := twoDevices(t)
	fd, err := mounts.Open(p.dir, unix.O_RDONLY|unix.O_DIRECTORY)
	must(t, err)
	defer unix.Close(fd)
	want := []string{deviceNumber(devices[0]), deviceNumber(devices[1])}
	if _, members := btrfsOf(fd); !slices.Equal(members, want) {
		t.Errorf("members %v, want %v", members, want)
	}
	hosttest.Run(t, "btrfs", "balance", "start", "-f", "-dconvert=single", "-mconvert=single", p.dir)
	hosttest.Run(t, "btrfs", "device", "remove", devices[0], p.dir)
	if _, members := btrfsOf(fd); !slices.Equal(members, want[1:]) {
		t.Errorf("after one was removed: %v, want %v", members, want[1:])
	}
	other, err := mounts.Open(hosttest.Dir(t), unix.O_RDONLY|unix.O_DIRECTORY)
	must(t, err)
	defer unix.Close(other)
	if uuid, members := btrfsOf(other); uuid != "" || members != nil {
		t.Errorf("of a tmpfs: %q, %v", uuid, members)
	}
}
