package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// limits turns quotas on in the configuration.
const limits = `sed -i 's/^filesystem = .*/&\nquota = "project"\ninodes_per_gib = 32768/' /etc/hostpath-provisioner/config.toml && ` +
	`restorecon /etc/hostpath-provisioner/config.toml && systemctl daemon-reload && systemctl restart hostpath-provisioner`

// quotaInodes are those of a claim of 10 MiB then; its directory takes one.
const quotaInodes = 322

// Commands that run another one as a process of a pod does: as an ordinary user, as root without
// CAP_SYS_RESOURCE, which containers do not have by default, as root with it, and as root of a user
// namespace of its own.
const (
	asUser      = "setpriv --reuid 1000 --regid 1000 --clear-groups --bounding-set -all --inh-caps -all "
	asRoot      = "setpriv --bounding-set -sys_resource --inh-caps -sys_resource "
	asResource  = "" // with it
	asNamespace = "setpriv --reuid 1000 --regid 1000 --clear-groups unshare -Ur "
)

// quota: the daemon limits volumes on ext4 and xfs, in a kernel that enforces that.
func (p *play) quota() {
	p.need("a machine with SELinux enforcing", func() (string, error) {
		must(p.fresh(baseConfig))
		return p.expect("echo 0 > /proc/sys/kernel/printk_ratelimit; getenforce", "Enforcing")
	})
	p.need("pools whose filesystems enforce no quotas, and the daemon", p.poolsAndStart)
	p.need("a claim is served, without a limit", func() (string, error) { return p.served("fast") })
	p.need("the configuration says that volumes are limited", func() (string, error) { return p.do(limits) })
	p.quotaTurnedOn()
	for _, pool := range []string{"fast", "big"} {
		p.limited(pool)
	}
	p.applied()
	p.reported()
	p.misconfigured()
	p.killedInTheMiddle()
	p.killedAtEachCall()
	p.inlineLimits()
	for _, pool := range []string{"fast", "big"} {
		p.switchedOff(pool)
	}
	p.step("in all of this nothing that the daemon needs was refused", p.noDenials)
	p.requestsMeasured()
}

// quotaTurnedOn does what the refusal says.
func (p *play) quotaTurnedOn() {
	var claims [2]string
	p.step("prepare refuses such a filesystem, and says the same", func() (string, error) {
		return p.expect("hostpath-provisioner prepare big", "does not keep volumes to their limits")
	})
	for i, pool := range []string{"fast", "big"} {
		p.need("pool "+pool+" is closed, and a claim's refusal says how quotas are turned on", func() (_ string, err error) {
			must(p.closes(pool, "QuotaUnavailable"))
			claims[i] = must(p.claim(pool, ofSize("10Mi")))
			said := must(p.refused(claims[i], "PoolClosed"))
			commands := regexp.MustCompile(`with: (umount .*?);`).FindStringSubmatch(said)
			if commands == nil {
				return "", fmt.Errorf("no commands in %q", said)
			}
			_, err = p.do(commands[1])
			return commands[1], err
		})
		p.need("pool "+pool+" opens by itself, and the claim is served", func() (string, error) {
			said, err := p.opens(pool)
			if err == nil {
				_, err = p.waitBound(claims[i])
			}
			return said, err
		})
	}
}

func ofSize(size string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
	}
}

// limited fills a volume of 10 MiB as processes of pods can be.
func (p *play) limited(pool string) {
	dir, neighbour := "/run/pods/"+pool+"/volume", "/run/pods/"+pool+"/neighbour"
	p.need("on "+pool+": two claims of 10 MiB, mounted as kubelet does", func() (string, error) {
		return "", errors.Join(p.mounted(pool, "10Mi", dir), p.mounted(pool, "10Mi", neighbour))
	})
	p.step("on "+pool+": df shows the claim's size, and its inodes", func() (string, error) {
		return p.expect("df -B1 "+dir+" | tail -n 1; df -i "+dir+" | tail -n 1", " 10485760 ", fmt.Sprintf(" %d ", quotaInodes))
	})
	type writer struct{ name, as string }
	writers := []writer{{"an ordinary process", asUser}, {"root without CAP_SYS_RESOURCE", asRoot}, {"root of a user namespace", asNamespace}}
	if pool == "big" {
		writers = append(writers, writer{"root with CAP_SYS_RESOURCE", asResource})
	}
	for _, w := range writers {
		p.step("on "+pool+": "+w.name+" writes 10 MiB and no more", func() (string, error) { return p.fills(w.as, dir) })
	}
	if pool == "fast" {
		p.step("on ext4 root with CAP_SYS_RESOURCE is not stopped, as docs/dev/proofs.md says", func() (string, error) {
			defer p.do("rm -f " + dir + "/file")
			return p.expect("dd if=/dev/zero of="+dir+"/file bs=1M count=20 2>&1", "20+0 records out")
		})
	}
	p.step("on "+pool+": the neighbour goes on while it is full", func() (string, error) {
		defer p.do("rm -f " + dir + "/file")
		return p.doAll(asUser+"dd if=/dev/zero of="+dir+"/file bs=64k count=400 2>/dev/null; true",
			asUser+"sh -c 'echo data > "+neighbour+"/file && sync "+neighbour+"/file'")
	})
	p.step("on "+pool+": inodes are limited, too", func() (string, error) {
		defer p.do("rm -rf " + dir + "/many")
		n, err := p.number(asUser + "sh -c 'mkdir " + dir + "/many; cd " + dir + "/many; i=0; while touch $i 2>/dev/null; do i=$((i+1)); done; echo $i'")
		if err == nil && n != quotaInodes-2 {
			err = fmt.Errorf("%d files, want %d", n, quotaInodes-2)
		}
		return fmt.Sprintf("%d files beside two directories", n), err
	})
	p.step("on "+pool+": in a user namespace a project cannot be changed", func() (string, error) {
		return p.expect(asNamespace+"sh -c 'touch "+dir+"/mine && chattr -p 0 "+dir+"/mine || echo refused'", "refused")
	})
	p.step("on "+pool+": outside of one the owner of a file can, as docs/dev/proofs.md says", func() (string, error) {
		return p.expect(asUser+"sh -c 'chattr -p 0 "+dir+"/mine && echo changed'", "changed")
	})
	p.step("on "+pool+": or count it to another volume, which is full then, as docs/dev/proofs.md says", func() (string, error) {
		defer p.do("rm -f " + dir + "/theirs " + neighbour + "/file")
		refusal := map[string]string{"fast": "Disk quota exceeded", "big": "No space left on device"}[pool]
		return p.expect("project=$(lsattr -pd "+neighbour+" | awk '{print $1}'); "+asUser+"dd if=/dev/zero of="+dir+"/theirs bs=64k count=144 2>/dev/null; "+
			asUser+"chattr -p $project "+dir+"/theirs && "+asUser+"dd if=/dev/zero of="+neighbour+"/file bs=64k count=64 2>&1; true", refusal)
	})
}

// mounted makes a claim of a size and binds its directory where other users than root reach it.
func (p *play) mounted(pool, size, at string) error {
	claim := must(p.claim(pool, ofSize(size)))
	dir, err := p.waitBound(claim)
	if err == nil {
		_, err = p.do("mkdir -p " + at + " && mount --bind " + dir + " " + at)
	}
	return err
}

// fills has a process write 20 MiB into a directory that is limited to 10 MiB.
func (p *play) fills(as, dir string) (string, error) {
	defer p.do("rm -f " + dir + "/file")
	out, _ := must2(p.machine.ask(p.ctx, as+"dd if=/dev/zero of="+dir+"/file bs=64k count=320 2>&1; stat -c 'size %s' "+dir+"/file"))
	refusal := regexp.MustCompile(`Disk quota exceeded|No space left on device`).FindString(out)
	size := regexp.MustCompile(`size (\d+)`).FindStringSubmatch(out)
	if refusal == "" || size == nil {
		return "", fmt.Errorf("no refusal in %s", out)
	}
	n, err := strconv.Atoi(size[1])
	if err == nil && (n > 10<<20 || n < 9<<20) {
		err = fmt.Errorf("%d bytes were written", n)
	}
	return fmt.Sprintf("%s after %d bytes", refusal, n), err
}

// killedInTheMiddle kills the daemon under claims that come and go, and compares the limits that
// another program sees with the records.
func (p *play) killedInTheMiddle() {
	var claims []string
	p.step("killed while claims are made and removed: each volume has its limit", func() (string, error) {
		for round := range 4 {
			for i := range 6 {
				claim := must(p.claim([]string{"fast", "big"}[i%2], ofSize("2Mi")))
				claims = append(claims, claim)
			}
			must(p.do(fmt.Sprintf("sleep 0.%d; systemctl kill -s KILL hostpath-provisioner; systemctl reset-failed hostpath-provisioner; systemctl start hostpath-provisioner", round*2+1)))
		}
		for _, claim := range claims {
			must(p.waitBound(claim))
		}
		return p.compareLimits()
	})
	p.step("killed while they are removed: no limit is left over", func() (string, error) {
		for i, claim := range claims {
			check(p.drop(claim))
			if i%8 == 3 {
				must(p.do("systemctl kill -s KILL hostpath-provisioner; systemctl reset-failed hostpath-provisioner; systemctl start hostpath-provisioner"))
			}
		}
		must(p.machine.until(p.ctx, limit, "! ls -A /srv/fast/.hostpath-provisioner/trash /srv/big/.hostpath-provisioner/trash | grep pvc"))
		return p.compareLimits()
	})
}

// compareLimits compares what xfs_quota(8) reports, which works on ext4 as well (-f), with the
// records.
func (p *play) compareLimits() (string, error) {
	var all []string
	for _, pool := range []string{"fast", "big"} {
		of := must(p.limitsOf(pool))
		all = append(all, pool+": "+of)
	}
	return strings.Join(all, ", "), nil
}

// limitsOf is compareLimits of one pool.
func (p *play) limitsOf(pool string) (string, error) {
	const command = `cd /srv/%s; xfs_quota -f -x -c 'report -p -N -n -b' /srv/%[1]s | awk '$4 > 0 {print substr($1, 2)}' | sort; echo --; sed -n 's/.*"projectID": \([0-9]*\),*/\1/p' .hostpath-provisioner/volumes/*.json | sort`
	out := must(p.do(fmt.Sprintf(command, pool)))
	limits, records, _ := strings.Cut(strings.TrimSpace(out), "--")
	l, r := strings.Fields(limits), strings.Fields(records)
	if strings.Join(l, " ") != strings.Join(r, " ") || len(l) == 0 {
		return "", fmt.Errorf("pool %s: limits of %v, records of %v", pool, l, r)
	}
	for i := 1; i < len(r); i++ {
		if r[i] == r[i-1] {
			return "", fmt.Errorf("pool %s: project %s twice", pool, r[i])
		}
	}
	return fmt.Sprintf("%d volumes, %[1]d limits", len(l)), nil
}

// switchedOff switches enforcement off beneath the daemon. An ext4 is mounted without the option,
// because Debian's kernel has no other way for one whose quotas are a feature.
func (p *play) switchedOff(pool string) {
	off, on := "xfs_quota -x -c 'disable -p' /srv/big", "xfs_quota -x -c 'enable -p' /srv/big"
	if pool == "fast" {
		off, on = "umount /run/pods/fast/* /srv/fast && mount /dev/vdc /srv/fast", "umount /srv/fast && mount -o prjquota /dev/vdc /srv/fast"
	}
	p.step("limits are not enforced any more on "+pool+": the pool closes", func() (string, error) {
		must(p.do(off))
		return p.closes(pool, "QuotaUnavailable")
	})
	p.step("and again: it opens", func() (string, error) {
		must(p.do(on))
		return p.opens(pool)
	})
}

// applied gives a limit to the volume of pool fast that was made before there were any.
func (p *play) applied() {
	const find = "dir=$(hostpath-provisioner quota fast | awk '$NF == \"none\" {print \"/srv/fast/\" $1}'); "
	p.need("a volume that was made before has no limit, and files", func() (string, error) {
		return p.expect(find+"mkdir -p $dir/sub/deep && dd if=/dev/zero of=$dir/sub/deep/file bs=64k count=8 2>/dev/null && mkfifo $dir/fifo && echo $dir > /root/before; hostpath-provisioner quota fast", " none\n")
	})
	p.step("quota --apply gives it one, and counts what it has", func() (string, error) {
		must(p.expect("hostpath-provisioner quota fast --apply", "limited to 1.0 MiB, 4 entries counted; 1 inode of links", "1 got a limit"))
		return p.expect("hostpath-provisioner quota fast; df -B1 $(cat /root/before) | tail -n 1", "!none", " 1048576 ")
	})
	p.step("then it is kept to that", func() (string, error) {
		return p.expect(asRoot+"dd if=/dev/zero of=$(cat /root/before)/more bs=64k count=32 2>&1", "Disk quota exceeded")
	})
}

// reported fills a new volume of pool big, and has files escape from it: each in two looks, half a
// minute apart. That a volume is nearly full is told once, at the look that may come while it is
// filled.
func (p *play) reported() {
	const dir = "/run/pods/big/reported"
	p.step("a claim whose volume is nearly full has an event, and volumes shows it", func() (string, error) {
		check(p.mounted("big", "10Mi", dir))
		must(p.do(asUser + "dd if=/dev/zero of=" + dir + "/file bs=64k count=150 2>/dev/null"))
		must(p.machine.until(p.ctx, limit, "journalctl -u hostpath-provisioner -o cat --no-pager | grep \"volume $(basename $(findmnt -n -o FSROOT "+dir+")) takes 9[.][0-9] MiB of 10.0 MiB\""))
		return p.expect("hostpath-provisioner volumes big", "USED", "9.4 MiB")
	})
	p.step("files that are not counted to a volume any more are reported on the node", func() (string, error) {
		for i := range 4 {
			file := fmt.Sprintf("%s/escaped%d", dir, i)
			must(p.do("rm -f " + dir + "/file; " + asUser + "sh -c 'dd if=/dev/zero of=" + file + " bs=64k count=150 2>/dev/null && chattr -p 0 " + file + "'"))
		}
		return p.machine.until(p.ctx, 2*limit, "journalctl -u hostpath-provisioner -o cat --no-pager | grep -o 'files of .* are counted to projects that no volume has (0)'")
	})
}
