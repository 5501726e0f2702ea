package main

import (
	"fmt"
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
		if err := remove(claim); err != nil {
			return 0, err
		}
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
	info, err := os.Stat(base)
	if err != nil {
		return err
	}
	if err := copyFile(base, image, info.Size()); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
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
