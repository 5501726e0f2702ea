package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/alerts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/prometheus"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// metricsPort is the daemon's in the machine.
const metricsPort = "9812"

// alertsConfig has a pool for ten volumes, and metrics that can be read from this host.
const alertsConfig = `node = "machine"
metrics = "10.0.2.15:` + metricsPort + `"
[pool.fast]
path = "/srv/fast"
filesystem = "ext4"
default = true
quota = "project"
quota_ids = [1000, 1009]
inodes_per_gib = 1048576
`

// scraped is the address on this host at which the machine's metrics are.
type scraped struct {
	*play
	address string
}

// alerts: what the daemon serves in the states of alerts that take project quotas or a clock of
// its own, and what Prometheus has for the dashboard of them.
func (p *play) alerts() {
	p.need("a machine with SELinux enforcing", func() (string, error) { return p.fresh(alertsConfig) })
	p.need("a pool whose filesystem enforces quotas, and the daemon", func() (string, error) {
		return p.doAll(
			"mkfs.ext4 -q -O project,quota -L fast /dev/vdc && hostpath-provisioner prepare fast",
			"mount -o nosuid,nodev,prjquota /dev/vdc /srv/fast && hostpath-provisioner prepare fast",
			"systemctl start hostpath-provisioner")
	})
	s := &scraped{play: p}
	p.need("its metrics can be read from this host", func() (_ string, err error) {
		s.address, err = p.forward(metricsPort)
		return s.address, err
	})
	dir := "/run/pods/fast/alerts"
	p.need("a claim of 10 MiB, mounted as kubelet does", func() (string, error) {
		return "", p.mounted("fast", "10Mi", dir)
	})
	p.step("a volume that is nearly full, and full", func() (string, error) { return s.filled(dir) })
	p.step("the dashboard's panels of quotas", s.panels)
	p.step("a pool that has few projects left", s.scarce)
	p.step("a clock that is an hour ahead", s.ahead)
	p.step("what part of a volume is removed, by its quota", s.percent)
	p.step("in all of this nothing that the daemon needs was refused", p.noDenials)
}

// forward has qemu listen on this host for a port of the machine.
func (p *play) forward(port string) (address string, err error) {
	address = must(rig.FreeAddress())
	q := must(p.machine.monitor())
	defer q.Close()
	rule := fmt.Sprintf("hostfwd_add net tcp:%s-10.0.2.15:%s", address, port)
	_, err = q.call("human-monitor-command", map[string]any{"command-line": rule})
	return address, err
}

// page is what the daemon serves, "" if nothing.
func (s *scraped) page() string {
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get("http://" + s.address + "/metrics")
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}

// value is that of the first series whose name begins so.
func (s *scraped) value(series string) (number float64, is bool) {
	for line := range strings.Lines(s.page()) {
		if at := strings.LastIndexByte(line, ' '); strings.HasPrefix(line, series) && at > 0 {
			number, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
			return number, err == nil
		}
	}
	return 0, false
}

// records begins with a daemon that is well, and serves this series.
func (s *scraped) records(alert, series string) *alerts.Watch {
	const by = "Chapter alerts (test/vm) records both: make test-vm VMFLAGS='-only alerts -update'"
	return alerts.NewWatch(s, by, rig.Root(), alert, s.page, func(now alerts.Samples) bool {
		for name := range now {
			if strings.HasPrefix(name, series) {
				return true
			}
		}
		return false
	})
}

// Helper, Eventually, Fatalf and Logf are alerts.Test, within a step.
func (s *scraped) Helper() {}

// Eventually looks again and again, until the limit.
func (s *scraped) Eventually(what string, is func() bool) {
	for end := time.Now().Add(2 * limit); !is(); time.Sleep(200 * time.Millisecond) {
		if check(s.ctx.Err()); time.Now().After(end) {
			s.Fatalf("not within %s: %s", 2*limit, what)
		}
	}
}

// Fatalf ends the step.
func (s *scraped) Fatalf(format string, args ...any) { check(fmt.Errorf(format, args...)) }

// Logf prints a line.
func (s *scraped) Logf(format string, args ...any) { s.say(format, args...) }

// filled fills the volume in two steps, each by one call: no look sees a part of it.
func (s *scraped) filled(dir string) (string, error) {
	const used, size = "hostpath_provisioner_volume_used_bytes", 10 << 20
	nearly := s.records("VolumeNearlyFull", "hostpath_provisioner_volume_limit_bytes")
	full := s.records("VolumeFull", "hostpath_provisioner_volume_limit_bytes")
	reaches := func(percent float64) float64 {
		must(s.do(fmt.Sprintf("%sfallocate -l %d %s/file", asUser, int(size*percent/100)&^0xfff, dir)))
		var now float64
		s.Eventually("that is told", func() bool {
			now, _ = s.value(used)
			return now > size*(percent-1)/100
		})
		return now
	}
	one := reaches(95)
	nearly.Fires()
	two := reaches(99.6)
	full.Fires()
	must(s.do("rm " + dir + "/file"))
	nearly.Resolves()
	full.Resolves()
	return fmt.Sprintf("%.0f and %.0f of %d bytes", one, two, size), nil
}

// panels has a real Prometheus scrape the daemon.
func (s *scraped) panels() (string, error) {
	dir := filepath.Join(s.dir, "prometheus")
	check(os.MkdirAll(dir, 0o700))
	server := must(prometheus.Start(dir, 5*time.Second, s.address))
	defer server.Stop()
	s.Eventually("prometheus is ready", func() bool { return must(server.Ready()) })
	for _, title := range prometheus.OfQuotas {
		s.Eventually("it has numbers for "+title, func() bool {
			asked, _, err := server.Asked()
			check(err)
			for _, query := range asked[title] {
				if len(must(server.Query(query))) == 0 {
					return false
				}
			}
			return len(asked[title]) > 0
		})
	}
	return strings.Join(prometheus.OfQuotas, ", "), nil
}

// scarce has volumes take all projects that there are.
func (s *scraped) scarce() (string, error) {
	const taken = "hostpath_provisioner_pool_projects_taken"
	scarce := s.records("ProjectsScarce", taken)
	var claims []string
	for range 9 {
		claims = append(claims, must(s.claim("fast")))
	}
	for _, claim := range claims {
		must(s.waitBound(claim))
	}
	s.Eventually("all are taken", func() bool { now, _ := s.value(taken); return now == 10 })
	scarce.Fires()
	for _, claim := range claims {
		check(s.drop(claim))
	}
	scarce.Resolves()
	return "10 of 10", nil
}

// ahead moves the machine's clock: not Prometheus', and not the API server's.
func (s *scraped) ahead() (string, error) {
	const last = "hostpath_provisioner_api_last_success_timestamp_seconds"
	off := s.records("ClockOff", last)
	must(s.do("date -s '+1 hour'"))
	s.Eventually("it has heard of the API server since", func() bool {
		at, _ := s.value(last)
		return at > float64(time.Now().Unix()+3500)
	})
	off.Fires()
	must(s.do("date -s '-1 hour'"))
	off.Resolves()
	return "", nil
}

// percent removes a volume of many files, and asks meanwhile.
func (s *scraped) percent() (string, error) {
	const files, dir = 30_000, "/run/pods/fast/many" // their removal takes seconds
	check(s.mounted("fast", "40Mi", dir))
	claim := fmt.Sprintf("claim-%d", s.claims)
	must(s.do(fmt.Sprintf("(cd %s && seq %d | xargs touch) && umount %[1]s", dir, files)))
	gone := make(chan error, 1)
	go func() { gone <- harness.Outcome(func() error { return s.drop(claim) }) }()
	said := must(s.machine.until(s.ctx, limit, "hostpath-provisioner status --json | "+
		`sed -n 's/.*"sentence": "\(.* of .* files, [1-9][0-9]*%.*\)".*/\1/p' | grep .`))
	if !strings.Contains(said, fmt.Sprintf(" of %d files, ", files+1)) {
		return "", fmt.Errorf("%s", said)
	}
	return said, <-gone
}
