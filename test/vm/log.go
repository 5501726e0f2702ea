package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const logConfig = `node = "machine"
metrics = ""
[pool.fast]
path = "/srv/fast"
`

// logWrites: every request to a pool's device is logged while claims come and go, and the device is
// rebuilt as a power cut would have left it after each flush there was. What the API had
// acknowledged by then is marked in the log.
func (p *play) logWrites() {
	for _, fs := range []struct {
		name string
		mib  int
		mkfs string
	}{{"ext4", 96, "mkfs.ext4 -q -F"}, {"xfs", 320, "mkfs.xfs -q -f"}} {
		base := filepath.Join(p.dir, "base-"+fs.name)
		p.need("on "+fs.name+": claims come and go on a logged device", func() (string, error) {
			return p.record(fs.mkfs, fs.mib, base)
		})
		p.step("on "+fs.name+": after each flush, what was acknowledged is there", func() (string, error) {
			return p.verify(fs.name, base)
		})
		p.machine.kill()
		p.machine = nil
		os.RemoveAll(filepath.Join(p.dir, p.name))
	}
}

// record leaves the device as it was when the log begins in base, and the log on the log disk.
func (p *play) record(mkfs string, mib int, base string) (string, error) {
	must(p.fresh(logConfig))
	sectors := mib << 11
	must(p.doAll(
		fmt.Sprintf("modprobe dm-log-writes; echo '0 %d linear /dev/vde 0' | dmsetup create logged && %s /dev/mapper/logged", sectors, mkfs),
		"hostpath-provisioner prepare fast && mount /dev/mapper/logged /srv/fast && hostpath-provisioner prepare fast",
		"umount /srv/fast && dmsetup remove logged && sync && blockdev --flushbufs /dev/vde",
	))
	check(copyFile(p.machine.opt.disk("spare"), base, int64(mib)<<20))
	must(p.doAll(
		fmt.Sprintf("echo '0 %d log-writes /dev/vde /dev/vdf' | dmsetup create logged && mount /dev/mapper/logged /srv/fast", sectors),
		"systemctl start hostpath-provisioner",
	))
	n := must(p.comeAndGo())
	_, err := p.do("systemctl stop hostpath-provisioner && umount /srv/fast && dmsetup remove logged && sync && blockdev --flushbufs /dev/vdf")
	return fmt.Sprintf("%d claims", n), err
}

// comeAndGo makes claims and deletes some of them, and marks each change that the API acknowledged.
func (p *play) comeAndGo() (int, error) {
	mark := func(what, dir string) error {
		_, err := p.do("dmsetup message logged 0 mark " + what + ":" + filepath.Base(dir))
		return err
	}
	claims := map[string]string{}
	remove := func(claim string) error {
		dir := claims[claim]
		delete(claims, claim)
		if err := mark("going", dir); err != nil {
			return err
		}
		if err := p.drop(claim); err != nil {
			return err
		}
		return mark("gone", dir)
	}
	for i := range 12 {
		claim, dir, err := p.bound("fast")
		if err != nil {
			return i, err
		}
		claims[claim] = dir
		if err := mark("exists", dir); err != nil {
			return i, err
		}
		if i%3 == 0 {
			continue
		}
		for victim := range claims {
			if err := remove(victim); err != nil {
				return i, err
			}
			break
		}
	}
	for claim := range claims { // the next filesystem is another pool
		check(remove(claim))
	}
	return 12, nil
}

// verify rebuilds the device and looks at it after each flush.
func (p *play) verify(fstype, base string) (string, error) {
	log := must(os.Open(p.machine.opt.disk("log")))
	defer log.Close()
	disk := must(os.OpenFile(base, os.O_RDWR, 0))
	defer disk.Close()
	state := map[string]string{} // of a volume: the last mark
	entries, flushes, marks := 0, 0, 0
	err := replay(log, func(e logEntry, size int64) error {
		entries++
		if e.Mark != "" {
			what, volume, _ := strings.Cut(e.Mark, ":")
			state[volume] = what
			marks++
		}
		if err := e.apply(disk, size); err != nil {
			return err
		}
		if !e.durable() && e.Mark == "" {
			return nil
		}
		flushes++
		return p.inspect(fstype, base, state)
	})
	if err == nil && (flushes < 20 || marks < 20) {
		err = fmt.Errorf("the log says too little: %d flushes, %d marks", flushes, marks)
	}
	return fmt.Sprintf("%d requests, mounted and compared at %d points, %d changes acknowledged", entries, flushes, marks), err
}

// inspect mounts a copy, because mounting replays the journal, and compares it with what was
// acknowledged.
func (p *play) inspect(fstype, base string, state map[string]string) error {
	image, dir := filepath.Join(p.dir, "copy"), filepath.Join(p.dir, "mounted")
	info := must(os.Stat(base))
	check(copyFile(base, image, info.Size()))
	check(os.MkdirAll(dir, 0o700))
	if out, err := exec.Command("mount", "-t", fstype, "-o", "loop", image, dir).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	defer unix.Unmount(dir, 0)
	for volume, is := range state {
		_, err := os.Stat(filepath.Join(dir, volume))
		records := filepath.Join(dir, ".hostpath-provisioner", "volumes", volume+".json")
		record, recordErr := os.ReadFile(records)
		if os.IsNotExist(recordErr) {
			record, recordErr = os.ReadFile(records + ".new")
		}
		switch {
		case is == "exists" && err != nil:
			return fmt.Errorf("volume %s is lost: %w", volume, err)
		case is == "exists" && (recordErr != nil || !strings.Contains(string(record), volume) || !strings.HasSuffix(string(record), "}\n")):
			return fmt.Errorf("volume %s has lost its record: %q, %v", volume, record, recordErr)
		case is == "gone" && err == nil:
			return fmt.Errorf("volume %s came back", volume)
		}
	}
	return nil
}

// copyFile copies the first bytes of a file, without its holes.
func copyFile(from, to string, size int64) error {
	out, err := exec.Command("dd", "if="+from, "of="+to, "bs=1M", fmt.Sprintf("count=%d", size>>20), "conv=sparse", "status=none").CombinedOutput()
	if err != nil {
		return fmt.Errorf("dd: %w: %s", err, out)
	}
	return os.Truncate(to, size)
}

// The format of dm-log-writes (Linux, drivers/md/dm-log-writes.c): a superblock, then entries, each
// a sector with a header and, unless it is a discard, the sectors that were written. Numbers are
// little-endian, and count in sectors of the size in the superblock.
const (
	logMagic = 0x6a736677736872

	flagFlush   = 1
	flagFUA     = 2
	flagDiscard = 4
	flagMark    = 8
)

// logEntry is one request that the device had completed, in the order in which a power cut could
// have kept them.
type logEntry struct {
	Sector, Sectors uint64
	Flags           uint64
	Mark            string // of a mark: its text
	Data            []byte
}

// durable says that everything up to this entry was on stable storage: a client that has the
// acknowledgement then must find it.
func (e logEntry) durable() bool { return e.Flags&(flagFlush|flagFUA) != 0 }

// replay reads a log and calls each for one entry after the other, in order.
func replay(log io.ReaderAt, each func(e logEntry, sectorSize int64) error) error {
	var super struct {
		Magic, Version, Entries uint64
		SectorSize              uint32
	}
	header := make([]byte, 512)
	if _, err := log.ReadAt(header, 0); err != nil {
		return fmt.Errorf("superblock: %w", err)
	}
	if err := binary.Read(bytes.NewReader(header), binary.LittleEndian, &super); err != nil {
		return err
	}
	if super.Magic != logMagic || super.Version != 1 || super.SectorSize < 512 || super.SectorSize > 64<<10 {
		return fmt.Errorf("no log of dm-log-writes: magic %#x, version %d, sectors of %d bytes", super.Magic, super.Version, super.SectorSize)
	}
	size := int64(super.SectorSize)
	at := size
	for n := range super.Entries {
		e, length, err := readEntry(log, at, size)
		if err != nil {
			return fmt.Errorf("entry %d of %d: %w", n, super.Entries, err)
		}
		if err := each(e, size); err != nil {
			return fmt.Errorf("entry %d of %d: %w", n, super.Entries, err)
		}
		at += length
	}
	return nil
}

// readEntry reads the entry at a place and says how long it is in the log.
func readEntry(log io.ReaderAt, at, size int64) (e logEntry, length int64, err error) {
	sector := make([]byte, size)
	if _, err := log.ReadAt(sector, at); err != nil {
		return e, 0, err
	}
	var head struct{ Sector, Sectors, Flags, DataLength uint64 }
	if err := binary.Read(bytes.NewReader(sector), binary.LittleEndian, &head); err != nil {
		return e, 0, err
	}
	e = logEntry{Sector: head.Sector, Sectors: head.Sectors, Flags: head.Flags}
	if e.Flags&flagMark != 0 {
		const after = 32 // the header's length
		if head.DataLength > uint64(size-after) {
			return e, 0, errors.New("a mark is longer than its sector")
		}
		e.Mark = strings.TrimRight(string(sector[after:after+int64(head.DataLength)]), "\x00\n")
		return e, size, nil
	}
	if e.Flags&flagDiscard != 0 || e.Sectors == 0 {
		return e, size, nil
	}
	if e.Sectors > 1<<20 {
		return e, 0, fmt.Errorf("it has %d sectors", e.Sectors)
	}
	e.Data = make([]byte, int64(e.Sectors)*size)
	_, err = log.ReadAt(e.Data, at+size)
	return e, size + int64(len(e.Data)), err
}

// apply writes an entry to a disk. A discarded range reads as zeros, which is the worst it may be.
func (e logEntry) apply(disk io.WriterAt, size int64) error {
	data := e.Data
	if e.Flags&flagDiscard != 0 {
		data = make([]byte, int64(e.Sectors)*size)
	}
	if len(data) == 0 {
		return nil
	}
	_, err := disk.WriteAt(data, int64(e.Sector)*size)
	return err
}
