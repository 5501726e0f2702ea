package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

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
