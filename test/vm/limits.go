package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
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

// cost measures what a limit adds to a creation, in a machine that does nothing else, and how much
// slower that is than this host: there is no other kernel with quotas here.
func (p *play) cost() {
	p.need("a machine with SELinux enforcing", func() (string, error) {
		_, err := p.fresh(baseConfig)
		return "", err
	})
	p.need("test/prove in the machine", p.loadCrash)
	for _, fs := range limitedFilesystems {
		p.step("on "+fs.name+": what a limit costs", func() (string, error) {
			at := must(p.limitedMount(fs))
			return p.crash("-only none -limits "+at, `a volume takes .*`)
		})
	}
	p.step("how much slower the machine is than this host", p.slower)
}

var speedFigures = regexp.MustCompile(`a system call takes (\d+) ns, a checksum of 1 MiB (\d+) us`)

// slower runs the same program in the machine and on the host.
func (p *play) slower() (string, error) {
	here, err := exec.CommandContext(p.ctx, filepath.Join(p.dir, "prove"), "crash", "-speed").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, here)
	}
	there := must(p.crash("-speed", speedFigures.String()))
	host, guest := speedFigures.FindStringSubmatch(string(here)), speedFigures.FindStringSubmatch(there)
	if host == nil || guest == nil {
		return "", fmt.Errorf("no figures in %q and %q", here, there)
	}
	return fmt.Sprintf("on the host %s, in the machine %s: %.0f and %.0f times slower", host[0], guest[0], ratio(guest[1], host[1]), ratio(guest[2], host[2])), nil
}

func ratio(a, b string) float64 {
	x, _ := strconv.ParseFloat(a, 64)
	y, _ := strconv.ParseFloat(b, 64)
	return x / max(y, 1)
}
