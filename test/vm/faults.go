package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// disabled: the same machine, booted with AppArmor in SELinux's place.
func (p *play) disabled() {
	p.need("a machine with SELinux off", func() (string, error) {
		must(p.cold(baseConfig, "apparmor=1"))
		return p.expect("getenforce", "Disabled")
	})
	p.need("pools and daemon", p.poolsAndStart)
	p.step("check says that it is off, and warns of nothing", func() (string, error) {
		return p.expect("hostpath-provisioner check", "SELinux is disabled", "!warning")
	})
	p.step("a claim is served, and its directory has no label", func() (string, error) {
		_, dir := must2(p.bound("big"))
		return p.expect("getfattr -n security.selinux "+dir, "No such attribute")
	})
}

func (p *play) poolsAndStart() (string, error) {
	must(p.pools())
	return p.start()
}

// served makes a claim in a pool that works and says how long that took.
func (p *play) served(pool string) (string, error) {
	begin := time.Now()
	_, _, err := p.bound(pool)
	return fmt.Sprintf("a claim on %s took %.1fs", pool, time.Since(begin).Seconds()), err
}

// closes waits until the pool of that name is closed for one of these reasons and returns which,
// and how long it took. reasons are a regular expression.
func (p *play) closes(pool, reasons string) (string, error) {
	begin := time.Now()
	out, err := p.machine.until(p.ctx, limit, `hostpath-provisioner status | grep -E '^`+pool+` .*closed: (`+reasons+`) '`)
	return fmt.Sprintf("%s, seen after %.1fs", strings.Join(strings.Fields(out), " "), time.Since(begin).Seconds()), err
}

func (p *play) opens(pool string) (string, error) {
	begin := time.Now()
	_, err := p.machine.until(p.ctx, limit, `hostpath-provisioner status | grep -E '^`+pool+` .* open '`)
	return fmt.Sprintf("open again after %.1fs", time.Since(begin).Seconds()), err
}

// hung is what has to hold while a pool does not respond: other pools are served, looking at it
// again and again costs no more threads, and the daemon can be stopped. The last holds where the
// kernel lets a waiting thread be killed (NFS, FUSE); one that waits for a block device stays until
// that responds.
func (p *play) hung(pool string, killable bool) {
	const threads = "ls /proc/$(systemctl show -P MainPID hostpath-provisioner)/task | wc -l"
	p.step("meanwhile other pools are served", func() (string, error) { return p.served("fast") })
	p.step("it costs no more threads the longer it lasts", func() (string, error) {
		before := must(p.number(threads))
		for range 20 { // each is a look of its own, beside the daemon's
			must(p.expect("hostpath-provisioner status", pool))
		}
		must(p.served("fast"))
		after, err := p.number(threads)
		if err == nil && after > before+4 {
			err = fmt.Errorf("%d threads, then %d", before, after)
		}
		return fmt.Sprintf("%d threads, then %d", before, after), err
	})
	p.step("the watchdog is fed all the time", func() (string, error) {
		must(p.expect("systemctl show -P NRestarts hostpath-provisioner", "0"))
		// Longer than WatchdogSec of the unit, in the guest's time.
		return p.expect("s=$(systemctl show -P WatchdogTimestampMonotonic hostpath-provisioner); sleep 32; test $(systemctl show -P WatchdogTimestampMonotonic hostpath-provisioner) -gt $s && systemctl is-active hostpath-provisioner", "active")
	})
	if !killable {
		return
	}
	p.step("the daemon ends on SIGTERM", func() (string, error) {
		ms, err := p.number("s=$(date +%s%3N); systemctl stop hostpath-provisioner; echo $(( $(date +%s%3N) - s ))")
		if err == nil && ms > 5000 {
			err = fmt.Errorf("it took %d ms", ms)
		}
		if err != nil {
			return "", err
		}
		_, err = p.start()
		return fmt.Sprintf("stopped in %d ms", ms), err
	})
}

func (p *play) number(command string) (int, error) {
	out := must(p.do(command))
	return strconv.Atoi(strings.TrimSpace(out))
}

const nfsConfig = baseConfig + `[pool.net]
path = "/srv/net"
exclusive = true
filesystem = "nfs4"
device = "127.0.0.1:/"
`

// nfsd starts the server. A client takes up its state again in the grace period, in which the server of a
// kernel without legacy client tracking (6.12) answers nobody else, and in a lease's time at the latest:
// 90 s by default, and 10 s is the least that the kernel takes (fs/nfsd/nfsctl.c, __nfsd4_write_time).
const nfsd = "rpc.nfsd -N 3 -V 4.2 -G 10 -L 10 2"

// nfsServer are the commands that start one, with no export yet.
var nfsServer = []string{
	// The policy keeps an administrator's shell from starting the server's programs.
	"setenforce 0",
	"systemctl show -P User hostpath-provisioner | grep -x root",
	"modprobe nfsd && (mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd)",
	"mkdir -p /export && chmod 0700 /export",
	"rpc.mountd -N 3 && " + nfsd,
}

// nfs: a server that goes away, over this machine's own loopback, which the API's traffic does not
// use.
func (p *play) nfs() {
	p.need("a machine", func() (string, error) { return p.fresh(nfsConfig) })
	p.need("an NFS server and its pool", func() (string, error) {
		return p.doAll(append(slices.Clone(nfsServer),
			"exportfs -o rw,sync,no_root_squash,fsid=0,no_subtree_check 127.0.0.1:/export",
			"hostpath-provisioner prepare net",
			"mount -t nfs4 -o vers=4.2,hard,timeo=50,retrans=2 127.0.0.1:/ /srv/net",
			"hostpath-provisioner prepare net",
		)...)
	})
	p.need("pools and daemon", p.poolsAndStart)
	var claim, dir string
	p.need("a claim is served from NFS", func() (_ string, err error) {
		claim, dir, err = p.bound("net")
		return dir, err
	})
	p.step("check has no word about labels there, and relabel says that there are none", func() (string, error) {
		must(p.expect("hostpath-provisioner check net", "SELinux is permissive", "!WrongLabel"))
		return p.expect("hostpath-provisioner relabel net", "the filesystem keeps no SELinux labels")
	})
	p.step("a volume on NFS is removed", func() (string, error) {
		check(p.drop(claim))
		return p.machine.until(p.ctx, limit, "test ! -e "+dir)
	})
	p.away("the network to the server is cut", "ip link set lo down", "ip link set lo up", true)
	p.away("the server is stopped", "rpc.nfsd 0", nfsd, false)
	p.step("the export is withdrawn: an error, not a hang", func() (string, error) {
		must(p.do("exportfs -u 127.0.0.1:/export"))
		return p.closes("net", "Unreadable|PathUnreadable|NotAnswering")
	})
	p.step("and given back", func() (string, error) {
		must(p.do("exportfs -o rw,sync,no_root_squash,fsid=0,no_subtree_check 127.0.0.1:/export"))
		return p.opens("net")
	})
}

// away plays one way in which the server of pool net goes, and comes back.
func (p *play) away(how, go_, back string, whole bool) {
	p.step(how+": the pool closes within its deadline", func() (string, error) {
		must(p.do(go_))
		return p.closes("net", "NotAnswering|Unreadable")
	})
	var claim string
	p.step("a claim for it is refused with the reason", func() (_ string, err error) {
		claim = must(p.claim("net"))
		return p.refused(claim, "PoolClosed")
	})
	if whole {
		p.hung("net", true)
	}
	p.step("the server is back: the pool opens by itself, and the claim is served", func() (string, error) {
		must(p.do(back))
		said, err := p.opens("net")
		if err == nil {
			_, err = p.waitBound(claim)
		}
		return said, err
	})
}

const dmConfig = baseConfig + `[pool.dm]
path = "/srv/dm"
`

// devices: a disk that is yanked (every request fails), and one that hangs.
func (p *play) devices() {
	const linear = "echo \"0 $(blockdev --getsz /dev/vde) linear /dev/vde 0\""
	p.need("a machine", func() (string, error) { return p.fresh(dmConfig) })
	p.need("a pool on a device-mapper device", func() (string, error) {
		return p.doAll(
			"modprobe dm-mod; "+linear+" | dmsetup create pooldm && mkfs.ext4 -q /dev/mapper/pooldm",
			"hostpath-provisioner prepare dm && mount /dev/mapper/pooldm /srv/dm && hostpath-provisioner prepare dm",
		)
	})
	p.need("pools and daemon", p.poolsAndStart)
	p.need("a claim is served from it", func() (string, error) { return p.served("dm") })
	p.step("the device is suspended: the pool closes within its deadline", func() (string, error) {
		must(p.do("dmsetup suspend --nolockfs --noflush pooldm"))
		return p.closes("dm", "NotAnswering")
	})
	p.hung("dm", false)
	p.step("resumed: the pool opens by itself", func() (string, error) {
		must(p.do("dmsetup resume pooldm"))
		return p.opens("dm")
	})
	p.step("every request of the device fails, as of a yanked disk: the pool closes", func() (string, error) {
		must(p.do("dmsetup suspend --nolockfs --noflush pooldm; echo \"0 $(blockdev --getsz /dev/vde) error\" | dmsetup load pooldm && dmsetup resume pooldm"))
		said := must(p.closes("dm", "Unreadable|ReadOnly|PathUnreadable"))
		// Why a plain look is not enough, and real I/O is asked for.
		cached, code, err := p.machine.ask(p.ctx, "ls /srv/dm >/dev/null && cat /srv/dm/.hostpath-provisioner/pool.json")
		if code == 0 && strings.Contains(cached, `"dm"`) {
			said += "; the marker could still be read from the page cache"
		}
		return said, err
	})
	p.step("meanwhile other pools are served", func() (string, error) { return p.served("big") })
	p.step("mounted again on a good device, the pool opens and is served", func() (string, error) {
		must(p.doAll(
			"umount -l /srv/dm; dmsetup suspend --nolockfs --noflush pooldm; "+linear+" | dmsetup load pooldm && dmsetup resume pooldm",
			"e2fsck -fp /dev/mapper/pooldm >/dev/null; test $? -le 1 && mount /dev/mapper/pooldm /srv/dm",
		))
		must(p.opens("dm"))
		return p.served("dm")
	})
}

// bootWithoutAPool: three boots of one machine; at the second, the xfs disk is an empty one.
func (p *play) bootWithoutAPool() {
	var fast, big string
	p.need("a machine with two pools and the service enabled", func() (string, error) {
		must(p.fresh(baseConfig))
		must(p.poolsAndStart())
		_, err := p.do("systemctl enable hostpath-provisioner")
		return "", err
	})
	p.need("a volume in each", func() (_ string, err error) {
		if _, fast, err = p.bound("fast"); err == nil {
			_, big, err = p.bound("big")
		}
		return "", err
	})
	disk := p.machine.opt.disk("xfs")
	var claim string
	p.need("rebooted without the xfs disk: the daemon starts and serves the other pool", func() (string, error) {
		check(p.reboot(func() error { return os.Rename(disk, disk+".kept") }))
		must(p.machine.until(p.ctx, limit, "systemctl is-active hostpath-provisioner"))
		must(p.expect("ls -d "+fast, fast))
		return p.served("fast")
	})
	p.step("claims for the missing one are refused, and its bare mount point stays empty", func() (_ string, err error) {
		claim = must(p.claim("big"))
		said := must(p.refused(claim, "PoolClosed"))
		_, err = p.expect("ls -A /srv/big | wc -l; mkdir /srv/big/x; touch /srv/big/y", "0\n", "Operation not permitted")
		return said, err
	})
	p.step("rebooted with it: its volume is there, and the claim that waited is served", func() (string, error) {
		check(p.reboot(func() error { return os.Rename(disk+".kept", disk) }))
		must(p.waitBound(claim))
		return p.expect("ls -d "+big, big)
	})
}

// reboot shuts the machine down, changes something, and boots it from its disks.
func (p *play) reboot(change func() error) error {
	check(p.machine.powerOff(p.ctx))
	check(change())
	return p.bootAgain()
}

// bootAgain boots from the disks as they are.
func (p *play) bootAgain() error {
	o := p.machine.opt
	o.State = ""
	m, err := boot(p.ctx, o)
	if err != nil {
		return errors.Join(err, context.Cause(p.ctx))
	}
	p.machine = m
	return p.reportHost()
}
