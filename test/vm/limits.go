package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// proveProgram is test/prove in the machine.
const proveProgram = "/root/prove"

// limitedFilesystem is made on a disk of the machine that nothing else uses.
type limitedFilesystem struct{ name, disk, mkfs string }

var limitedFilesystems = []limitedFilesystem{
	{"ext4", "/dev/vde", "mkfs.ext4 -q -O project,quota"}, {"xfs", "/dev/vdf", "mkfs.xfs -q"},
}

// limitedMount mounts a new filesystem that enforces project quotas.
func (p *play) limitedMount(fs limitedFilesystem) (at string, err error) {
	at = "/mnt/" + fs.name
	_, err = p.do(fmt.Sprintf("%s %s && mkdir -p %s && mount -o prjquota %[2]s %[3]s", fs.mkfs, fs.disk, at))
	return at, err
}

// killedAtEachCall has test/crash kill a process before each system call with which it makes,
// removes, expands and limits volumes, on an ext4 and an xfs with nothing else.
func (p *play) killedAtEachCall() {
	if !p.step("test/prove in the machine", p.loadCrash) {
		return
	}
	for _, fs := range limitedFilesystems {
		p.step("on "+fs.name+": killed at each system call, each volume has its limit and nothing else has one", func() (string, error) {
			at := must(p.limitedMount(fs))
			return p.crash("-limits "+at, `(?m)^all .*$`)
		})
	}
}

// misconfigured ends the service that sets limits while the configuration has errors. The next
// request starts it again.
func (p *play) misconfigured() {
	const file = "/etc/hostpath-provisioner/config.toml"
	p.step("beside a configuration with errors the service starts again, and a volume has its limit", func() (string, error) {
		must(p.doAll("cp -a "+file+" /root/valid.toml && echo 'nonsense = 1' >> "+file, "systemctl stop hostpath-provisioner-mountpoint.service"))
		defer p.do("cat /root/valid.toml > " + file)
		claim := must(p.claim("fast", ofSize("10Mi")))
		dir := must(p.waitBound(claim))
		must(p.expect("hostpath-provisioner check 2>&1", "nonsense"))
		return p.expect("df -B1 "+dir+" | tail -n 1", " 10485760 ")
	})
}

// requestsMeasured comes last: the policy has the service respond to the daemon's domain alone, so
// it is not enforced here.
func (p *play) requestsMeasured() {
	p.step("what a request to the service that sets limits takes", func() (string, error) {
		must(p.do("setenforce 0"))
		defer p.do("setenforce 1")
		return p.crash("-requests /srv/fast", `a request about .*`)
	})
}

// loadCrash builds the program here.
func (p *play) loadCrash() (string, error) {
	file := filepath.Join(p.dir, "prove")
	build := exec.CommandContext(p.ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "./test/prove")
	build.Dir, build.Env = rig.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	data := must(os.ReadFile(file))
	check(p.machine.opt.load(map[string]archived{proveProgram[1:]: {0o755, data}}))
	return p.do("blockdev --flushbufs /dev/vdb; " + unpacked)
}

// crash runs the trial, and returns what of its output matches.
func (p *play) crash(flags, shown string) (string, error) {
	ctx, cancel := context.WithTimeout(p.ctx, 15*time.Minute)
	defer cancel()
	out := must(p.machine.do(ctx, proveProgram+" crash "+flags+" 2>&1"))
	return fmt.Sprintf("%q", regexp.MustCompile(shown).FindAllString(out, -1)), nil
}
