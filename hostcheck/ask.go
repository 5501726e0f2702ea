package hostcheck

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// entry describes what opening a path with O_PATH returned. The descriptor stays open.
func entry(fd int, err error) Entry {
	var st unix.Statx_t
	if err == nil {
		err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE|unix.STATX_MODE, &st)
	}
	switch {
	case err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return Entry{Kind: NotDir}
	case err == nil:
		return directory(fd, uint32(st.Mode)&0o7777)
	case errors.Is(err, unix.ENOENT):
		return Entry{Kind: Missing}
	case errors.Is(err, unix.ENOTDIR):
		return Entry{Kind: NotDir}
	case errors.Is(err, unix.ELOOP):
		return Entry{Kind: Symlink}
	case errors.Is(err, unix.EXDEV):
		return Entry{Kind: OtherMount}
	}
	return Entry{Kind: Failing, Error: cause(err)}
}

func directory(fd int, mode uint32) Entry {
	id, err := mounts.IdentityOf(fd)
	if err != nil {
		return Entry{Kind: Failing, Error: cause(err)}
	}
	number, err := mounts.IDOf(fd)
	if err != nil {
		return Entry{Kind: Failing, Error: cause(err)}
	}
	return Entry{Kind: Directory, Identity: id, MountID: number, Mode: mode}
}

// cause is the error of the kernel alone: the message names the path already.
func cause(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

func space(fd int) (Space, error) {
	var st unix.Statfs_t
	if err := openat.Retry(func() error { return unix.Fstatfs(fd, &st) }); err != nil {
		return Space{}, err
	}
	unit := uint64(st.Frsize)
	if unit == 0 {
		unit = uint64(st.Bsize)
	}
	return Space{
		Asked: true, ReadOnly: st.Flags&unix.ST_RDONLY != 0,
		Size: st.Blocks * unit, Available: st.Bavail * unit, RootOnly: (st.Bfree - min(st.Bfree, st.Bavail)) * unit,
		Inodes: st.Files, InodesFree: st.Ffree,
	}, nil
}

// marker reads the marker; an error is the filesystem's, not the marker's.
func marker(fd int, expensive bool) (MarkerFact, error) {
	read := ReadMarker
	if expensive {
		read = readMarkerDirect
	}
	m, err := read(fd)
	switch {
	case err == nil, errors.Is(err, ErrNoMarker):
		return MarkerFact{Looked: true, Marker: m}, nil
	case errors.Is(err, ErrMarkerDamaged):
		return MarkerFact{Looked: true, Error: err.Error()}, nil
	}
	return MarkerFact{}, err
}

// tagDirs are where udev has its links to devices by what they hold (60-persistent-storage.rules).
var tagDirs = map[string]string{
	"UUID=": "by-uuid", "LABEL=": "by-label", "PARTUUID=": "by-partuuid", "PARTLABEL=": "by-partlabel",
}

// deviceNode is the node in /dev that stands for a configured device, as udev names it; "" for
// whatever is not a device there ("server:/export").
func deviceNode(device string) string {
	for prefix, dir := range tagDirs {
		if name, ok := strings.CutPrefix(device, prefix); ok {
			return devDir + "/disk/" + dir + "/" + udevName(name)
		}
	}
	if strings.HasPrefix(device, "/dev/") {
		return device
	}
	return ""
}

// tagged is a configured device with a link of udev by UUID or label written as that UUID or label:
// a copy of the disk has the same one, and the link leads to either.
func tagged(device string) string {
	for prefix, dir := range tagDirs {
		if name, ok := strings.CutPrefix(device, devDir+"/disk/"+dir+"/"); ok {
			return prefix + plainName(name)
		}
	}
	return device
}

const devDir = "/dev"

// twinsPatience is how long a look waits for other disks to be asked. What is not known by then is
// in the report of the next look.
const twinsPatience = time.Second

// ShownDev is where the host's /dev stands in the service, whose own has no disks (PrivateDevices=
// and BindReadOnlyPaths= of hostpath-provisioner.service). What is there can be named and not
// opened.
const ShownDev = "/run/hostpath-provisioner/dev"

// udevName encodes a label as udev does for its links (encode_devnode_name in systemd's
// device-nodes.c): bytes of ASCII that are not letters, digits or one of #+-.:=@_ become \xNN.
func udevName(label string) string {
	var b strings.Builder
	for i := range len(label) {
		c := label[i]
		plain := c >= 0x80 || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' ||
			strings.IndexByte("#+-.:=@_", c) >= 0
		if plain {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String()
}

// plainName is the label that udevName encoded.
func plainName(encoded string) string {
	var b strings.Builder
	for rest := encoded; rest != ""; {
		if code, ok := strings.CutPrefix(rest, `\x`); ok && len(code) >= 2 {
			if c, err := hex.DecodeString(code[:2]); err == nil {
				b.Write(c)
				rest = code[2:]
				continue
			}
		}
		b.WriteByte(rest[0])
		rest = rest[1:]
	}
	return b.String()
}

func (g *gatherer) lookAtDevice(f *Facts, v view) {
	if f.Device.Path = deviceNode(v.want.Device); f.Device.Path == "" {
		return
	}
	f.Device.Expected = deviceNumber(f.Device.Path)
	if device := tagged(v.want.Device); strings.Contains(device, "=") {
		f.Device.Twins = twins(device, host.latest(twinsPatience))
	}
	if strings.HasPrefix(v.on.Source, "/dev/") {
		f.Device.Source = deviceNumber(v.on.Source)
	}
}

// deviceNumber is "major:minor" of a block device node below /dev, "" if there is none.
func deviceNumber(path string) string {
	for _, name := range []string{path, ShownDev + strings.TrimPrefix(path, devDir)} {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
			return number(unix.Major(st.Rdev), unix.Minor(st.Rdev))
		}
	}
	return ""
}

// askDevice asks the filesystem itself for its UUID, which no stale link of udev can get wrong, and
// a btrfs for its devices. Before Linux 6.9, and where a filesystem has none, it stays unknown.
func (g *gatherer) askDevice(f *Facts, fd int, e enter) {
	btrfs := newView(g.expect, *f).on.FSType == "btrfs"
	byUUID := strings.HasPrefix(tagged(g.expect.Device), "UUID=")
	if g.expect.Device == "" || !btrfs && !byUUID {
		return
	}
	e("asking "+g.expect.Path+" for its device", *f)
	dir, err := mounts.OpenBeneath(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	if !btrfs {
		f.Device.UUID = filesystemUUID(dir)
		return
	}
	uuid, members := btrfsOf(dir)
	if f.Device.Members = members; byUUID {
		f.Device.UUID = uuid
	}
}

// filesystemUUID is FS_IOC_GETFSUUID (linux/fs.h): struct fsuuid2 { __u8 len; __u8 uuid[16]; }.
func filesystemUUID(fd int) string {
	const getUUID = 0x80111500
	var response [17]byte
	if openat.Ioctl(fd, getUUID, unsafe.Pointer(&response)) != nil || response[0] != 16 {
		return ""
	}
	return formatUUID(response[1:])
}

func formatUUID(raw []byte) string {
	u := hex.EncodeToString(raw)
	return u[:8] + "-" + u[8:12] + "-" + u[12:16] + "-" + u[16:20] + "-" + u[20:]
}

// A btrfs may lie on several devices, all with the same UUID and label. Which of them the mount
// table names, and to which one udev's links lead, is chance; and the kernel's general question for
// a UUID is none of btrfs (ENOTTY, up to Linux 6.18). Its own two questions need no privilege
// (linux/btrfs.h).
const (
	btrfsFSInfo  = 0x8400941f // BTRFS_IOC_FS_INFO: struct btrfs_ioctl_fs_info_args
	btrfsDevInfo = 0xd000941e // BTRFS_IOC_DEV_INFO: struct btrfs_ioctl_dev_info_args

	btrfsFSInfoSize, btrfsDevInfoSize = 1024, 4096
	btrfsFSID                         = 16   // offset of fsid in the first
	btrfsPath                         = 3072 // offset of path in the second
	btrfsMaxDevices                   = 4096 // numbers of devices that are asked for: they grow with each one that is added
)

// btrfsOf asks a btrfs, of which a file is open at fd, for its UUID and for the numbers
// ("major:minor") of the devices that it lies on. It is "" on any other filesystem.
func btrfsOf(fd int) (uuid string, members []string) {
	var info [btrfsFSInfoSize]byte
	if openat.Ioctl(fd, btrfsFSInfo, unsafe.Pointer(&info)) != nil {
		return "", nil
	}
	last := min(binary.NativeEndian.Uint64(info[:]), btrfsMaxDevices)
	for id := uint64(1); id <= last; id++ {
		var device [btrfsDevInfoSize]byte
		binary.NativeEndian.PutUint64(device[:], id)
		if openat.Ioctl(fd, btrfsDevInfo, unsafe.Pointer(&device)) != nil {
			continue // ENODEV: a device that was removed
		}
		path, _, _ := bytes.Cut(device[btrfsPath:], []byte{0})
		if number := deviceNumber(string(path)); number != "" {
			members = append(members, number)
		}
	}
	return formatUUID(info[btrfsFSID : btrfsFSID+16]), members
}

// label asks for the pool's label. What cannot be read is "".
func label(on mounts.Mount, fileType string, fd int) LabelFact {
	if !slices.Contains(strings.Split(on.Options, ","), seclabel) && !slices.Contains(strings.Split(on.SuperOptions, ","), seclabel) {
		return LabelFact{}
	}
	got, _ := selinux.Of(fd)
	return LabelFact{
		Looked: true, Type: selinux.Type(got),
		Unknown: fileType != "" && selinux.Lacks(fileType), PoolKnown: selinux.Knows(selinux.PoolType),
	}
}

// seclabel is what SELinux shows among the options of a mount whose files have labels of their own
// (selinux_sb_show_options in security/selinux/hooks.c). NFS without labels has it not: all its
// files have one type, which cannot be set.
const seclabel = "seclabel"

// CheckSELinux looks at what SELinux, in this mode, does with the daemon itself: whether our policy
// module is loaded. Where SELinux is off there is nothing to say.
func CheckSELinux(mode string, loaded bool) []Finding {
	if mode == "disabled" || loaded {
		return nil
	}
	f, _ := when(true, Warn, ReasonUnconfined,
		"SELinux is %s and the policy module of hostpath-provisioner is not loaded, so that nothing confines the daemon", mode)
	return []Finding{f}
}
