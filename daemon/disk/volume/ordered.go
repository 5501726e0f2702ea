package volume

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// ordered remembers, for the filesystem that was seen last, whether it keeps the order of changes.
type ordered struct {
	mu  sync.Mutex
	id  mounts.Identity
	yes bool
}

// of reports whether a filesystem makes changes of names, owners and modes durable in the order in
// which they were made, so that fsync of the last one is fsync of all. That holds for xfs and for
// ext4 with a journal: each has one log, and an fsync forces it up to the inode's last change with
// all that is before (fs/xfs/xfs_log_cil.c, xlog_cil_force_seq; fs/ext4/fsync.c, i_sync_tid). btrfs
// logs single inodes, and nothing is known of the others. TestPowerCut shows both.
func (o *ordered) of(id mounts.Identity, fd int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.id != id {
		o.id, o.yes = id, keepsOrder(id, fd)
	}
	return o.yes
}

func keepsOrder(id mounts.Identity, fd int) bool {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return false
	}
	switch st.Type {
	case unix.XFS_SUPER_MAGIC:
		return true
	case unix.EXT4_SUPER_MAGIC: // ext2 and ext3 have the same number
		return hasJournal(id)
	default:
		return false
	}
}

// hasJournal: an ext4 with a journal shows the task that writes it, in
// /sys/fs/ext4/<device>/journal_task (fs/ext4/sysfs.c).
func hasJournal(id mounts.Identity) bool {
	device := strconv.FormatUint(uint64(id.DevMajor), 10) + ":" + strconv.FormatUint(uint64(id.DevMinor), 10)
	link, err := os.Readlink("/sys/dev/block/" + device)
	if err != nil {
		return false
	}
	task, err := os.ReadFile("/sys/fs/ext4/" + filepath.Base(link) + "/journal_task")
	return err == nil && len(task) > 0 && task[0] != '<' // "<none>"
}

// beginWriteOut starts what writeOut waits for. It may do nothing: writeOut returns the error.
func beginWriteOut(fd int) { _ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE) }

// writeOut writes a file's data and waits for it, without a journal commit and without flushing the
// device's cache: both come with the next fsync. With the data written, the filesystem has put the
// file's size and blocks into its log, so that no later change can be durable without them.
func writeOut(fd int) error {
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	return openat.Retry(func() error { return unix.SyncFileRange(fd, 0, 0, all) })
}
