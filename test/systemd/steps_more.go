package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

func badStart(w *world) {
	w.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "provisionerr = 5\n")
	w.fails("systemctl restart "+service, "")
	w.is("systemctl show -P ExecMainStatus -P SubState -P NRestarts "+service+" | tr '\\n' ' '", "0 78 failed")
	w.sh("rm /etc/hostpath-provisioner/conf.d/50-site.toml; mv /etc/hostpath-provisioner/kubeconfig /etc/hostpath-provisioner/away")
	w.sh("systemctl reset-failed " + service)
	w.fails("systemctl restart "+service, "")
	w.eventually("systemctl show -P SubState "+service, "auto-restart")
	w.sh("mv /etc/hostpath-provisioner/away /etc/hostpath-provisioner/kubeconfig")
	w.status("2 of 2 pools open")
}

// get asks the metrics' address, which the container shares.
func (w *world) get(path string) string {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9812"+path, nil)
	w.must(err, "a request")
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	w.must(err, "asking for "+path)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	w.must(err, "reading "+path)
	return string(body)
}

// scrape wants an open pool. Before its first check a pool has no metric, and systemd 252 does not wait
// for the end of a reload.
func (w *world) scrape() {
	const open = `hostpath_provisioner_pool_open{pool="fast"} 1`
	last := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if last = w.get("/metrics"); strings.Contains(last, open) {
			return
		}
	}
	w.failf("still no %s in\n%s", open, last)
}

func socket(w *world) {
	w.scrape()
	w.docs("install.md", "systemd holds the metrics' address")
	for _, between := range []string{"", "systemctl reload " + service, "systemctl restart " + service} {
		if between != "" {
			w.sh(between)
		}
		w.scrape()
	}
	w.sh("systemctl stop " + service)
	w.get("/healthz") // starts it again
	w.status("2 of 2 pools open")
	w.badConfigurationBehindTheSocket()
	w.sh("systemctl disable --now " + service + "-metrics.socket; systemctl restart " + service)
	w.says(w.get("/healthz"), "ok")
}

// badConfigurationBehindTheSocket: a scrape is refused by one start of the service, which fails; without
// that systemd starts it nine times a second. The first scrape after the file is mended is served.
func (w *world) badConfigurationBehindTheSocket() {
	const starts = "journalctl --no-pager -o cat -u " + service + " -b | grep -c ^Starting || true"
	w.sh("systemctl stop " + service)
	w.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "provisionerr = 5\n")
	before := w.sh(starts)
	for range 3 {
		w.says(w.get("/metrics"), "the configuration has errors", "provisionerr")
	}
	w.sh("rm /etc/hostpath-provisioner/conf.d/50-site.toml")
	w.eventually("systemctl is-active "+service+" || true", "failed")
	w.is("echo $(($("+starts+") - "+before+"))", "1")
	w.scrape()
	w.status("2 of 2 pools open")
}

func credential(w *world) {
	w.docs("install.md", "A kubeconfig that is not in /etc in plain")
	w.sh("mv /etc/hostpath-provisioner/kubeconfig /etc/hostpath-provisioner/away; systemctl restart " + service)
	w.status("2 of 2 pools open")
	w.sh("mv /etc/hostpath-provisioner/away /etc/hostpath-provisioner/kubeconfig; rm /etc/credstore/*; systemctl restart " + service)
	w.status("2 of 2 pools open")
}

// It fails with RequiresMountsFor= in what the generator writes: starting kubelet then mounts again what
// was unmounted on purpose.
func checkUnit(w *world) {
	w.put("/etc/systemd/system/kubelet.service", "[Service]\nExecStart=/bin/sleep infinity\n")
	w.docs("install.md", "Kubelet waits for the pools")
	w.sh("systemctl start kubelet")
	w.is("systemctl is-active kubelet "+service+"-check | tr '\\n' ' '", "active active")
	w.sh("systemctl stop kubelet " + service + "-check; umount /srv/fast")
	w.fails("systemctl start kubelet", "dependency")
	w.is("systemctl is-active kubelet || true", "inactive")
	w.says(w.sh("journalctl --no-pager -p err -u "+service+"-check"), "pool fast: NotMounted")
	w.says(w.sh("journalctl --no-pager -x -u "+service), "Defined-By: "+service, "The claim got its volume.", "The daemon starts;")
	w.sh("mount /srv/fast; systemctl start kubelet; systemctl stop kubelet; systemctl disable " + service + "-check; systemctl reset-failed")
}

func generator(w *world) {
	for _, unit := range []string{service, service + "-check"} {
		w.says(" "+w.sh("systemctl show -P After "+unit)+" ", " srv-fast.mount ", " data.mount ")
		for _, kind := range []string{"Requires", "BindsTo", "Wants"} {
			if pulled := w.sh("systemctl show -P " + kind + " " + unit); strings.Contains(pulled, "srv-fast.mount") {
				w.failf("%s of %s pulls the pool in: %s", kind, unit, pulled)
			}
		}
	}
	w.is("systemctl show -P User "+service, service)
	w.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "[pool.net]\npath = \"/srv/net\"\ndevice = \"server:/export\"\n[pool.home]\npath = \"/home/volumes\"\nrequire_mount = false\n")
	const files = "/var/lib/hostpath-provisioner/volumes"
	w.sh("mkdir -p " + files + "; touch " + files + "/pgdata; chown 1000:1000 " + files + "/pgdata; chmod 4755 " + files + "/pgdata; systemctl daemon-reload; systemctl restart " + service)
	w.is("systemctl show -P User -P ProtectHome "+service+" | sort | tr '\\n' ' '", "no root")
	w.is("stat -c '%u:%g %a' "+files+"/pgdata", "1000:1000 4755") // an earlier unit's StateDirectory= made it root's
	w.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "this is = = nothing\n")
	w.fails("hostpath-provisioner check", "50-site.toml")
	w.sh("systemctl daemon-reload")
	w.is("systemctl show -P User "+service, "root") // of the configuration before
	w.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "")
	w.sh("systemctl daemon-reload; systemctl restart " + service)
	w.sh("mkdir -p /home/volumes")
	w.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "[pool.home]\npath = \"/home/volumes\"\nrequire_mount = false\n")
	w.sh("hostpath-provisioner prepare home; systemctl restart " + service)
	w.says(w.sh("hostpath-provisioner check home"), "warning UnitOutdated: "+service+".service does not have ProtectHome=no", "systemctl daemon-reload")
	w.status("pool home is closed: " + service + ".service does not have ProtectHome=no")
	w.says(w.sh("hostpath-provisioner status || true"), "closed: UnitOutdated", "hint: run: systemctl daemon-reload")
	w.sh("systemctl daemon-reload; systemctl restart " + service)
	w.status("3 of 3 pools open")
	w.sh("rm /etc/hostpath-provisioner/conf.d/50-site.toml; systemctl daemon-reload; systemctl restart " + service)
	w.is("stat -c '%u:%g %a' "+files+"/pgdata; rm -r "+files, "1000:1000 4755")
	w.status("2 of 2 pools open")
}

func reboot(w *world) {
	// No udev here: a disk with this label never comes.
	w.sh("sed -i '/ \\/data /d' /etc/fstab; echo 'LABEL=data /data ext4 x-systemd.device-timeout=2s,nofail 0 2' >> /etc/fstab")
	took, err := w.m.halt(w.ctx)
	w.must(err, "shutting down")
	if took > 20*time.Second { // systemd waits 90 s for what does not stop
		w.failf("shutting down took %s", took)
	}
	w.must(w.m.boot(w.ctx), "booting again")
	w.status("pool data is closed: /data is not a mount point")
	w.says(w.sh("systemctl show -P StatusText "+service), "1 of 2 pools open")
	w.bound("one")
	w.claim("after-boot", "fast")
	w.sh("mount -o loop /images/data /data")
	w.linkDisk()
	w.status("2 of 2 pools open")
	w.claim("after-mount", "data")
	for _, unit := range []string{"srv-fast.mount", service + ".service"} {
		w.sh("systemctl is-active " + unit)
	}
	mounted := w.sh("systemctl show -P ActiveEnterTimestampMonotonic srv-fast.mount")
	started := w.sh("systemctl show -P ExecMainStartTimestampMonotonic " + service)
	if len(started) < len(mounted) || len(started) == len(mounted) && started < mounted {
		w.failf("the daemon started at %s, before the pool was mounted at %s", started, mounted)
	}
}

func upgrade(w *world) {
	version := func() string { return w.sh("dpkg-query -W -f '${Version}' hostpath-provisioner") }
	before, pid := version(), w.sh("systemctl show -P MainPID "+service)
	w.docs("upgrade.md", "Upgrade on Debian and Ubuntu", newer...)
	w.says(w.sh("hostpath-provisioner version"), "+after.")
	w.eventually("systemctl show -P MainPID "+service+" | grep -vx "+pid+" | grep -vx 0 && systemctl is-active "+service, "active")
	w.status("2 of 2 pools open")
	w.says(w.sh("journalctl --no-pager -u "+service+" -o cat"), "ready")
	w.eventually("readlink /proc/$(systemctl show -P MainPID "+looks+")/exe", "/usr/bin/hostpath-provisioner\n") // not the deleted one
	w.bound("one")
	w.earlierState()
	w.claim("after-upgrade", "fast")
	w.is("cat /etc/hostpath-provisioner/config.toml | head -1", `node = "node-a"`)
	w.block(0, "README.md", "Install on a node", "make packages\ndpkg -i .build/", "dpkg -i /shared/") // the older one
	if version() != before {
		w.failf("version %s, want %s", version(), before)
	}
	w.eventually("hostpath-provisioner status", "2 of 2 pools open")
	w.sh("dpkg --add-architecture arm64")
	w.dpkg("--force-depends " + strings.ReplaceAll(deb[1], "amd64", "arm64"))
	w.is("dpkg-query -W -f '${Architecture}' hostpath-provisioner:arm64", "arm64")
	w.dpkg(deb[1])
	w.sh("dpkg --remove-architecture arm64; systemctl reset-failed " + service + "; systemctl restart " + service)
	w.status("2 of 2 pools open")
	w.drop("after-upgrade")
	w.bound("one")
}

// earlierState starts the service where an earlier version left its state: in the directory above, which
// was the service's own. What it remembered counts, and moves.
func (w *world) earlierState() {
	const lib = "/var/lib/hostpath-provisioner"
	w.sh("systemctl stop " + service + "; mv " + lib + "/state/pools " + lib + "/pools; rm -r " + lib + "/state; chown -R hostpath-provisioner: " + lib)
	w.sh("sed -i 's/\"id\": *\"[^\"]*\"/\"id\": \"another\"/' " + lib + "/pools/data.json; systemctl start " + service)
	w.status("pool data is closed: /data/volumes has marker ")
	w.is("ls "+lib+" "+lib+"/pools "+lib+"/state/pools | tr '\\n' ' '", lib+": pools state  "+lib+"/pools:  "+lib+"/state/pools: data.json fast.json home.json more.json")
	w.sh("hostpath-provisioner prepare data --replace")
	w.status("2 of 2 pools open")
}

// dpkg answers no question about configuration files: there may be none.
func (w *world) dpkg(what string) { w.sh("dpkg -i " + what + " </dev/null") }

// It fails when the postrm removes the state directory as a whole: an earlier version took pools in it.
func purge(w *world) {
	w.sh("mkdir -p /var/lib/hostpath-provisioner/volumes; touch /var/lib/hostpath-provisioner/volumes/file")
	w.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "[pool.near]\npath = \"/var/lib/near\"\nrequire_mount = false\n")
	w.sh("hostpath-provisioner prepare near; systemctl restart " + service)
	w.status("3 of 3 pools open")
	w.class("near", "near")
	volumes := []string{w.bound("one"), w.bound("after-mount"), w.claim("near", "near")}
	for _, dir := range volumes {
		w.sh("echo data > " + dir + "/file")
	}
	keep := func(what string, files ...string) {
		for _, dir := range volumes {
			files = append(files, dir+"/file")
		}
		if out, code := w.try("ls " + strings.Join(files, " ")); code != 0 {
			w.failf("after %s:\n%s", what, out)
		}
	}
	w.docs("upgrade.md", "Remove on Debian and Ubuntu", "apt-get", "apt-get -y")
	w.is("systemctl is-active "+service+" || true", "inactive")
	w.lookerGone()
	keep("removal", "/etc/hostpath-provisioner/config.toml", "/etc/hostpath-provisioner/kubeconfig", "/var/lib/hostpath-provisioner/state/pools/fast.json")
	// Installed again, the service is disabled, because the removal did that; a masked one is told as that.
	w.sh("ln -s /dev/null /etc/systemd/system/" + service + ".service")
	w.says(w.sh("dpkg -i /shared/packages/hostpath-provisioner_*_amd64.deb </dev/null"), "the service is masked")
	w.sh("rm /etc/systemd/system/" + service + ".service; apt-get -y remove hostpath-provisioner")
	w.says(w.sh("dpkg -i /shared/packages/hostpath-provisioner_*_amd64.deb </dev/null"), "the service is not enabled")
	w.sh("mkdir -p /etc/credstore; touch /etc/credstore/hostpath-provisioner.kubeconfig /etc/credstore/other")
	w.docs("upgrade.md", "Purge on Debian and Ubuntu", "apt-get", "apt-get -y")
	w.is("ls /etc/credstore", "other")
	keep("purge", "/var/lib/hostpath-provisioner/volumes/file")
	w.is("ls -A /etc/hostpath-provisioner /var/lib/hostpath-provisioner /usr/lib/systemd/system/hostpath* /etc/systemd/system/*/hostpath* 2>/dev/null || true", "/var/lib/hostpath-provisioner:\nvolumes")
}

func rpm(w *world) {
	// This rpm's database is empty: it knows nothing of the systemd that is there.
	said := w.docs("install.md", "Fedora and RHEL", "rpm -U hostpath-provisioner-*.x86_64.rpm", "rpm -U --nodeps /shared/packages/hostpath-provisioner-*.x86_64.rpm")
	w.says(said, "installed and not started")
	w.is("systemctl is-enabled "+service+" || true", "disabled")
	w.sh("rpm -e hostpath-provisioner")
	dir := w.readme()
	w.docs("upgrade.md", "Upgrade on Fedora and RHEL", "rpm -U hostpath-provisioner-*.x86_64.rpm", "rpm -U --nodeps /shared/packages-newer/hostpath-provisioner-*.x86_64.rpm")
	w.says(w.sh("hostpath-provisioner version; cat /etc/hostpath-provisioner/config.toml"), "+after.", `kubeconfig = "/etc/hostpath-provisioner/kubeconfig"`)
	w.eventually("hostpath-provisioner status", "+after.")
	w.status("1 of 1 pool open")
	w.sh("rpm -U --nodeps --oldpackage /shared/packages/hostpath-provisioner-*.x86_64.rpm")
	w.eventually("hostpath-provisioner status || true", "1 of 1 pool open")
	w.bound("data")
	w.sh("echo data > " + dir + "/file")
	w.docs("upgrade.md", "Remove on Fedora and RHEL")
	w.is("systemctl is-active "+service+" || true", "inactive")
	w.lookerGone()
	w.is("cat "+dir+"/file; ls -A /etc/hostpath-provisioner /var/lib/hostpath-provisioner 2>/dev/null || true", "data\n/var/lib/hostpath-provisioner:\nvolumes")
	w.docs("upgrade.md", "What stays")
	w.is("ls -d /srv/fast 2>/dev/null || true; ls -A /srv", "")
}
