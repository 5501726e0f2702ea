package hostcheck

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A disk that was copied block for block has its original's UUID and label, and udev's link leads
// to whichever of the two was seen last. So every block device of the host is asked for its names:
// udev's database has them, for a service that may not open disks, and where it has not, the
// superblock.

// disk is a block device with what it is told from others by.
type disk struct {
	name   string            // below /dev
	number string            // "major:minor"
	tags   map[string]string // "UUID" and so on, as in a configured device
	member string            // of a filesystem on several devices: which of them it is
	lower  bool              // another device is made of it, which shows the same content
	wwid   string            // paths to one disk have it in common
	file   string            // what a loop device shows
}

// twinsEvery is how old the result may be: a disk that sleeps should not be woken for it.
const twinsEvery = 5 * time.Minute

// scanner looks at the host's block devices, apart from the pools: one that hangs keeps no pool
// waiting.
type scanner struct {
	sys, udev, dev string // where these are

	mu    sync.Mutex
	known map[string]seen
	busy  chan struct{} // closed when the scan under way ends; nil: none is
	disks []disk
}

// seen is a device whose superblock was read.
type seen struct {
	disk disk
	at   time.Time
}

var host = &scanner{sys: "/sys", udev: "/run/udev/data", dev: devDir}

// AskDisks has the host's block devices asked for their names now, by a process that will give up
// the right to read them. What is attached later is then known by udev alone.
func AskDisks() { host.latest(twinsPatience) }

// latest is what a scan finds that begins now, or what the last one found if it takes long.
func (s *scanner) latest(timeout time.Duration) []disk {
	s.mu.Lock()
	if s.busy == nil {
		s.busy = make(chan struct{})
		go s.scan()
	}
	busy := s.busy
	s.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-busy:
	case <-timer.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.disks
}

func (s *scanner) scan() {
	s.mu.Lock()
	known := s.known
	s.mu.Unlock()
	fresh, disks := map[string]seen{}, []disk{}
	entries, _ := os.ReadDir(filepath.Join(s.sys, "class/block"))
	for _, e := range entries {
		dir := filepath.Join(s.sys, "class/block", e.Name())
		// A device that was taken away and one that came in its place differ in diskseq (Linux 5.15).
		key := e.Name() + " " + line(dir, "dev") + " " + line(dir, "diskseq") + " " + line(dir, "loop/backing_file") + " " + line(dir, "size")
		one, have := known[key]
		if !have || time.Since(one.at) >= twinsEvery {
			now, told := s.look(e.Name(), dir)
			if told || !have { // what was read before this process gave its rights up is still so
				one.disk = now
			}
			one.at = time.Now()
		}
		holders, _ := os.ReadDir(filepath.Join(dir, "holders"))
		one.disk.lower = len(holders) > 0
		fresh[key] = one
		disks = append(disks, one.disk)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.disks = fresh, disks
	close(s.busy)
	s.busy = nil
}

func line(dir, name string) string {
	text, _ := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(text))
}

// look asks udev, and the device itself if udev has not looked at it. Drives with media that can be
// taken out are not opened, nor is what has no size: a loop device without a file. told is false
// where neither could be asked.
func (s *scanner) look(name, dir string) (d disk, told bool) {
	d = disk{name: name, number: line(dir, "dev"), wwid: line(dir, "device/wwid"), file: line(dir, "loop/backing_file"), tags: map[string]string{}}
	if d.wwid == "" {
		d.wwid = line(dir, "wwid")
	}
	if size := line(dir, "size"); size == "" || size == "0" || d.number == "" {
		return d, true
	}
	if text, err := os.ReadFile(filepath.Join(s.udev, "b"+d.number)); err == nil {
		d.fromUdev(string(text))
	}
	removable := line(dir, "removable") == "1" && d.file == ""
	if d.tags["UUID"] == "" && !removable {
		return d, d.fromSuperblock(filepath.Join(s.dev, name))
	}
	return d, true
}

// udevKeys are the properties of udev's database that hold what a configured device names.
var udevKeys = map[string]string{
	"E:ID_FS_UUID": "UUID", "E:ID_FS_LABEL_ENC": "LABEL", "E:ID_PART_ENTRY_UUID": "PARTUUID", "E:ID_PART_ENTRY_NAME": "PARTLABEL",
}

func (d *disk) fromUdev(text string) {
	for property := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(property), "=")
		if tag, known := udevKeys[key]; known {
			d.tags[tag] = value
		}
		if key == "E:ID_FS_UUID_SUB" {
			d.member = value
		}
	}
}

// fromSuperblock knows the filesystems that pools usually have. It reports whether the device could
// be read. What may be in the place of its node, what refuses it, and the case of
// TestNodesThatAreNotTheDisk:
//
//	a link                              O_NOFOLLOW: ELOOP              "a link"
//	a FIFO                              O_NONBLOCK, and S_IFBLK after  "a FIFO"
//	a character device of that number   S_IFBLK, before it is read     "a character device"
//	another disk                        its number                     "another disk"
func (d *disk) fromSuperblock(node string) bool {
	fd, err := unix.Open(node, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return false
	}
	if number(unix.Major(st.Rdev), unix.Minor(st.Rdev)) != d.number {
		return false
	}
	block := make([]byte, 4096)
	if n, _ := unix.Pread(fd, block, 0); n == len(block) {
		d.fromStart(block)
	}
	if n, _ := unix.Pread(fd, block, 64<<10); n == len(block) && string(block[64:72]) == "_BHRfS_M" { // fs/btrfs: struct btrfs_super_block
		d.tags["UUID"], d.tags["LABEL"] = formatUUID(block[32:48]), encoded(block[299:299+256])
		d.member = hex.EncodeToString(binary.BigEndian.AppendUint64(nil, binary.LittleEndian.Uint64(block[201:209]))) // dev_item.devid
	}
	return true
}

func (d *disk) fromStart(block []byte) {
	switch {
	case string(block[:4]) == "XFSB": // struct xfs_dsb
		d.tags["UUID"], d.tags["LABEL"] = formatUUID(block[32:48]), encoded(block[108:120])
	case block[1024+56] == 0x53 && block[1024+57] == 0xEF: // struct ext4_super_block
		d.tags["UUID"], d.tags["LABEL"] = formatUUID(block[1024+104:1024+120]), encoded(block[1024+120:1024+136])
	}
}

func encoded(label []byte) string {
	label, _, _ = bytes.Cut(label, []byte{0})
	return udevName(string(label))
}

// twins are the nodes of the devices that a configured device means, if there is more than one and
// they are not parts of one whole: members of a filesystem on several devices, paths to one disk, a
// device and what is made of it.
func twins(device string, disks []disk) []string {
	tag, value, found := strings.Cut(device, "=")
	if !found || value == "" {
		return nil
	}
	if tag != "UUID" && tag != "PARTUUID" {
		value = udevName(value)
	}
	var alike []disk
	for _, d := range disks {
		if strings.EqualFold(d.tags[tag], value) && (tag == "UUID" || tag == "PARTUUID" || d.tags[tag] == value) && !d.lower && !shownBy(d, disks) {
			alike = append(alike, d)
		}
	}
	var all []string
	for i, d := range alike {
		for j, other := range alike {
			if i != j && !d.partOfOne(other) {
				all = append(all, devDir+"/"+d.name)
				break
			}
		}
	}
	slices.Sort(all)
	return all
}

func (d disk) partOfOne(other disk) bool {
	return d.member != other.member || d.wwid != "" && d.wwid == other.wwid && !d.partition(other) || d.file != "" && d.file == other.file
}

// partition reports whether the two are different partitions, which may be of one disk.
func (d disk) partition(other disk) bool { return d.tags["PARTUUID"] != other.tags["PARTUUID"] }

// shownBy reports whether a loop device shows this one.
func shownBy(d disk, disks []disk) bool {
	return slices.ContainsFunc(disks, func(o disk) bool { return o.file == devDir+"/"+d.name })
}
