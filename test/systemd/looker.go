package main

import (
	"fmt"
)

// looks is the service that looks under mount points, and its socket.
const looks = service + "-mountpoint"

// looker disturbs the service while the daemon asks it. It fails without Restart=, without
// Requires= (the service goes on without its socket) and without PartOf=.
func looker(e *environment) {
	e.killLooker()
	e.failingLooker()
	e.stoppedLooker()
	e.checkAsksToo()
}

// newLook makes the daemon look under a pool's mount point anew, by a change of the mounts.
const newLook = "mkdir -p /run/elsewhere; mount -t tmpfs elsewhere /run/elsewhere; umount /run/elsewhere; "

// killLooker: a daemon that lost its response sends the request again, and no pool closes.
func (e *environment) killLooker() {
	const closed = journal + "-o cat -u " + service + " | grep -c 'pool .* is closed' || true"
	before := e.sh(closed)
	for range 10 {
		e.try(newLook + "systemctl kill -s KILL " + looks)
	}
	e.sh(newLook)
	e.eventually("systemctl is-active "+looks+" || true", "active")
	e.status("2 of 2 pools open")
	e.is(closed, before)
}

// failingLooker: what fails at once is started again and again with a pause between, not given up,
// and the pools open by themselves when it works.
func (e *environment) failingLooker() {
	const dropIn = "/etc/systemd/system/" + looks + ".service.d"
	e.put(dropIn+"/fails.conf", "[Service]\nExecStart=\nExecStart=/bin/false\n")
	e.sh("systemctl daemon-reload; systemctl stop " + looks + ".service; " + newLook)
	e.status("pool fast is closed: asking " + looks + ".service what lies under /srv/fast: no response for ")
	e.eventually("test $(systemctl show -P NRestarts "+looks+") -ge 5 && echo so", "so")
	const starts = journal + "-o cat -u " + looks + " -b | grep -c '^Starting' || true"
	first := e.sh("date +%s%N; " + starts)
	e.sh("sleep 3")
	second := e.sh("date +%s%N; " + starts)
	if n := e.pace(first, second); n > 2 {
		e.Fatalf("%.1f starts a second: %q, %q", n, first, second)
	}
	e.sh("rm -r " + dropIn + "; systemctl daemon-reload")
	e.status("2 of 2 pools open")
	e.is("systemctl is-active "+looks+".socket", "active")
}

// pace is how often a second a count grew, of two lines each: nanoseconds, count.
func (e *environment) pace(first, second string) float64 {
	var t, n [2]int64
	for i, text := range []string{first, second} {
		if _, err := fmt.Sscan(text, &t[i], &n[i]); err != nil {
			e.Fatalf("%q: %v", text, err)
		}
	}
	return float64(n[1]-n[0]) / (float64(t[1]-t[0]) / 1e9)
}

// stoppedLooker: without its socket the pools are closed, and what is to be done is told. It can be
// started at once.
func (e *environment) stoppedLooker() {
	e.sh("systemctl stop " + looks + ".socket; " + newLook)
	e.status("this process has no CAP_SYS_ADMIN, and " + looks + ".socket does not listen")
	e.is("systemctl is-active "+looks+".service || true; ls /run/"+looks+".socket 2>/dev/null || true", "inactive")
	e.says(e.sh("hostpath-provisioner status || true"), "closed: LookNotPermitted", "systemctl start "+looks+".socket")
	e.sh("hostpath-provisioner check") // root looks itself
	e.sh("systemctl start " + looks + ".socket")
	e.status("2 of 2 pools open")
	e.sh("systemctl stop " + looks + ".socket; systemctl restart " + service) // which wants it
	e.status("2 of 2 pools open")
	pid := e.sh("systemctl show -P MainPID " + looks)
	e.sh("systemctl restart " + service)
	e.status("2 of 2 pools open")
	e.eventually("systemctl show -P MainPID "+looks+" | grep -vx "+pid+" | grep -vx 0 && echo another", "another")
}

// checkAsksToo: the check unit has no CAP_SYS_ADMIN either, also as root.
func (e *environment) checkAsksToo() {
	const dropIn = "/etc/systemd/system/" + service + "-check.service.d"
	e.sh("systemctl stop " + looks + ".socket; systemctl start " + service + "-check; systemctl stop " + service + "-check; systemctl is-active " + looks + ".socket")
	e.put(dropIn+"/root.conf", "[Service]\nUser=root\n")
	e.sh("systemctl daemon-reload; systemctl start " + service + "-check; systemctl stop " + service + "-check; rm -r " + dropIn + "; systemctl daemon-reload")
	e.unmount()
	e.sh("chattr -i /srv/fast; mount /srv/fast")
	e.fails("systemctl start "+service+"-check", "failed")
	e.says(e.sh(journal+"-b -u "+service+"-check"), "pool fast: NotImmutable")
	e.status("is closed: the directory under the mount point /srv/fast is not immutable")
	e.unmount()
	e.sh("chattr +i /srv/fast; mount /srv/fast; systemctl reset-failed")
	e.status("2 of 2 pools open")
}

// lookerGone: a removal leaves no process, no socket and no unit that is loaded.
func (e *environment) lookerGone() {
	e.is("find /proc -maxdepth 1 -user hostpath-mountpoint; ls /run/"+looks+".socket 2>/dev/null || true; systemctl list-units --all --no-legend '"+looks+"*'", "")
}
