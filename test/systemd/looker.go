package main

import (
	"fmt"
	"strconv"
)

// looks is the service that looks under mount points, and its socket.
const looks = service + "-mountpoint"

// looker disturbs the service while the daemon asks it. It fails without Restart=, without Requires= (the service
// goes on without its socket) and without PartOf=.
func looker(w *world) {
	w.killLooker()
	w.failingLooker()
	w.stoppedLooker()
	w.checkAsksToo()
}

// newLook makes the daemon look under a pool's mount point anew, by a change of the mounts.
const newLook = "mkdir -p /run/elsewhere; mount -t tmpfs elsewhere /run/elsewhere; umount /run/elsewhere; "

// killLooker: a daemon that lost its answer asks again, and no pool closes.
func (w *world) killLooker() {
	const closed = "journalctl --no-pager -o cat -u " + service + " | grep -c 'pool .* is closed' || true"
	before := w.sh(closed)
	for range 10 {
		w.try(newLook + "systemctl kill -s KILL " + looks)
	}
	w.sh(newLook)
	w.eventually("systemctl is-active "+looks+" || true", "active")
	w.status("2 of 2 pools open")
	w.is(closed, before)
}

// failingLooker: what fails at once is started again and again with a pause between, not given up, and the pools open by
// themselves when it works.
func (w *world) failingLooker() {
	const dropIn = "/etc/systemd/system/" + looks + ".service.d"
	w.put(dropIn+"/fails.conf", "[Service]\nExecStart=\nExecStart=/bin/false\n")
	w.sh("systemctl daemon-reload; systemctl stop " + looks + ".service; " + newLook)
	w.status("pool fast is closed: asking " + looks + ".service what lies under /srv/fast: no answer for ")
	w.eventually("test $(systemctl show -P NRestarts "+looks+") -ge 5 && echo so", "so")
	const starts = "journalctl --no-pager -o cat -u " + looks + " -b | grep -c '^Starting' || true"
	first := w.sh("date +%s%N; " + starts)
	w.sh("sleep 3")
	second := w.sh("date +%s%N; " + starts)
	if n := pace(first, second); n > 2 {
		w.failf("%.1f starts a second: %q, %q", n, first, second)
	}
	w.sh("rm -r " + dropIn + "; systemctl daemon-reload")
	w.status("2 of 2 pools open")
	w.is("systemctl is-active "+looks+".socket", "active")
}

// pace is how often a second a count grew, of two lines each: nanoseconds, count.
func pace(first, second string) float64 {
	var t, n [2]int64
	for i, text := range []string{first, second} {
		if _, err := fmt.Sscan(text, &t[i], &n[i]); err != nil {
			panic(failure(strconv.Quote(text) + ": " + err.Error()))
		}
	}
	return float64(n[1]-n[0]) / (float64(t[1]-t[0]) / 1e9)
}

// stoppedLooker: without its socket the pools are closed, and what is to be done is told. It can be started at once.
func (w *world) stoppedLooker() {
	w.sh("systemctl stop " + looks + ".socket; " + newLook)
	w.status("this process has no CAP_SYS_ADMIN, and " + looks + ".socket does not listen")
	w.is("systemctl is-active "+looks+".service || true; ls /run/"+looks+".socket 2>/dev/null || true", "inactive")
	w.says(w.sh("hostpath-provisioner status || true"), "closed: LookNotPermitted", "systemctl start "+looks+".socket")
	w.sh("hostpath-provisioner check") // root looks itself
	w.sh("systemctl start " + looks + ".socket")
	w.status("2 of 2 pools open")
	w.sh("systemctl stop " + looks + ".socket; systemctl restart " + service) // which wants it
	w.status("2 of 2 pools open")
	pid := w.sh("systemctl show -P MainPID " + looks)
	w.sh("systemctl restart " + service)
	w.status("2 of 2 pools open")
	w.eventually("systemctl show -P MainPID "+looks+" | grep -vx "+pid+" | grep -vx 0 && echo another", "another")
}

// checkAsksToo: the check unit has no CAP_SYS_ADMIN either, also as root.
func (w *world) checkAsksToo() {
	const dropIn = "/etc/systemd/system/" + service + "-check.service.d"
	w.sh("systemctl stop " + looks + ".socket; systemctl start " + service + "-check; systemctl stop " + service + "-check; systemctl is-active " + looks + ".socket")
	w.put(dropIn+"/root.conf", "[Service]\nUser=root\n")
	w.sh("systemctl daemon-reload; systemctl start " + service + "-check; systemctl stop " + service + "-check; rm -r " + dropIn + "; systemctl daemon-reload")
	w.sh("umount /srv/fast; chattr -i /srv/fast; mount /srv/fast")
	w.fails("systemctl start "+service+"-check", "failed")
	w.says(w.sh("journalctl --no-pager -b -u "+service+"-check"), "pool fast: NotImmutable")
	w.status("is closed: the directory under the mount point /srv/fast is not immutable")
	w.sh("umount /srv/fast; chattr +i /srv/fast; mount /srv/fast; systemctl reset-failed")
	w.status("2 of 2 pools open")
}

// lookerGone: a removal leaves no process, no socket and no unit that is loaded.
func (w *world) lookerGone() {
	w.is("find /proc -maxdepth 1 -user hostpath-mountpoint; ls /run/"+looks+".socket 2>/dev/null || true; systemctl list-units --all --no-legend '"+looks+"*'", "")
}
