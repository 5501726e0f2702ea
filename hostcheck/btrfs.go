package hostcheck

import (
	"bytes"
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
	if !ask(fd, btrfsFSInfo, unsafe.Pointer(&info)) {
		return "", nil
	}
	last := min(binary.NativeEndian.Uint64(info[:]), btrfsMaxDevices)
	for id := uint64(1); id <= last; id++ {
		var device [btrfsDevInfoSize]byte
		binary.NativeEndian.PutUint64(device[:], id)
		if !ask(fd, btrfsDevInfo, unsafe.Pointer(&device)) {
			continue // ENODEV: a device that was removed
		}
		path, _, _ := bytes.Cut(device[btrfsPath:], []byte{0})
		if number := deviceNumber(string(path)); number != "" {
			members = append(members, number)
		}
	}
	return formatUUID(info[btrfsFSID : btrfsFSID+16]), members
}

func ask(fd int, question uintptr, response unsafe.Pointer) bool {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), question, uintptr(response))
		if errno != unix.EINTR {
			return errno == 0
		}
	}
}
