package main

import (
	"io"
	"net/http"
	"strings"
	"time"
)

func badStart(e *environment) {
	e.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "provisionerr = 5\n")
	e.fails("systemctl restart "+service, "")
	e.is("systemctl show -P ExecMainStatus -P SubState -P NRestarts "+service+" | tr '\\n' ' '", "0 78 failed")
	e.sh("rm /etc/hostpath-provisioner/conf.d/50-site.toml; mv /etc/hostpath-provisioner/kubeconfig /etc/hostpath-provisioner/away")
	e.sh("systemctl reset-failed " + service)
	e.fails("systemctl restart "+service, "")
	e.eventually("systemctl show -P SubState "+service, "auto-restart")
	e.sh("mv /etc/hostpath-provisioner/away /etc/hostpath-provisioner/kubeconfig")
	e.status("2 of 2 pools open")
}

// get asks the metrics' address, which the container shares.
func (e *environment) get(path string) string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: timeout}
	response, err := client.Get("http://127.0.0.1:9812" + path)
	e.Must(err, "asking for "+path)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	e.Must(err, "reading "+path)
	return string(body)
}

// scrape wants an open pool. Before its first check a pool has no metric, and systemd 252 does not
// wait for the end of a reload.
func (e *environment) scrape() {
	const open = `hostpath_provisioner_pool_open{pool="fast"} 1`
	last := ""
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if last = e.get("/metrics"); strings.Contains(last, open) {
			return
		}
	}
	e.Fatalf("still no %s in\n%s", open, last)
}

func socket(e *environment) {
	e.scrape()
	e.docs("install.md", "systemd holds the metrics' address")
	for _, between := range []string{"", "systemctl reload " + service, "systemctl restart " + service} {
		if between != "" {
			e.sh(between)
		}
		e.scrape()
	}
	e.sh("systemctl stop " + service)
	e.get("/healthz") // starts it again
	e.status("2 of 2 pools open")
	e.badConfigurationBehindTheSocket()
	e.sh("systemctl disable --now " + service + "-metrics.socket; systemctl restart " + service)
	e.says(e.get("/healthz"), "ok")
}

// badConfigurationBehindTheSocket: a scrape is refused by one start of the service, which fails;
// without that systemd starts it nine times a second. The first scrape after the file is mended is
// served.
func (e *environment) badConfigurationBehindTheSocket() {
	const starts = journal + "-o cat -u " + service + " -b | grep -c ^Starting || true"
	e.sh("systemctl stop " + service)
	e.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "provisionerr = 5\n")
	before := e.sh(starts)
	for range 3 {
		e.says(e.get("/metrics"), "the configuration has errors", "provisionerr")
	}
	e.sh("rm /etc/hostpath-provisioner/conf.d/50-site.toml")
	e.eventually("systemctl is-active "+service+" || true", "failed")
	e.is("echo $(($("+starts+") - "+before+"))", "1")
	e.scrape()
	e.status("2 of 2 pools open")
}

func credential(e *environment) {
	e.docs("install.md", "A kubeconfig that is not in /etc in plain")
	e.sh("mv /etc/hostpath-provisioner/kubeconfig /etc/hostpath-provisioner/away; systemctl restart " + service)
	e.status("2 of 2 pools open")
	e.sh("mv /etc/hostpath-provisioner/away /etc/hostpath-provisioner/kubeconfig; rm /etc/credstore/*; systemctl restart " + service)
	e.status("2 of 2 pools open")
}

// It fails if the daemon cannot read, in its sandbox, what the command wrote as root. The node's
// kubeconfig is put back at the end.
func enroll(e *environment) {
	const kubeconfig = "/etc/hostpath-provisioner/kubeconfig"
	e.sh("systemctl stop " + service + "; mv " + kubeconfig + " /root/away")
	const heading = "A kubeconfig by one command"
	e.says(e.block(0, "install.md", heading, "admin.conf", "/root/.kube/config"), "node "+node+" is enrolled until ", "it has every right that it needs")
	e.is("stat -c '%a %U' "+kubeconfig, "600 root")
	e.sh("systemctl start " + service)
	e.status("2 of 2 pools open")
	e.says(e.block(1, "install.md", heading), "rights")
	e.says(e.sh("hostpath-provisioner enroll"), "nothing was changed")
	e.sh("systemctl stop " + service + "; mv /root/away " + kubeconfig + "; systemctl start " + service)
	e.status("2 of 2 pools open")
}

// It fails with RequiresMountsFor= in what the generator writes: starting kubelet then mounts again
// what was unmounted on purpose.
func checkUnit(e *environment) {
	e.put("/etc/systemd/system/kubelet.service", "[Service]\nExecStart=/bin/sleep infinity\n")
	e.docs("install.md", "Kubelet waits for the pools")
	e.sh("systemctl start kubelet")
	e.is("systemctl is-active kubelet "+service+"-check | tr '\\n' ' '", "active active")
	e.sh("systemctl stop kubelet " + service + "-check")
	e.unmount()
	e.fails("systemctl start kubelet", "dependency")
	e.is("systemctl is-active kubelet || true", "inactive")
	e.says(e.sh(journal+"-p err -u "+service+"-check"), "pool fast: NotMounted")
	e.says(e.sh(journal+"-x -u "+service), "Defined-By: "+service, "The claim got its volume.", "The daemon starts;")
	e.sh("mount /srv/fast; systemctl start kubelet; systemctl stop kubelet; systemctl disable " + service + "-check; systemctl reset-failed")
}

func generator(e *environment) {
	for _, unit := range []string{service, service + "-check"} {
		e.says(" "+e.sh("systemctl show -P After "+unit)+" ", " srv-fast.mount ", " data.mount ")
		for _, kind := range []string{"Requires", "BindsTo", "Wants"} {
			if pulled := e.sh("systemctl show -P " + kind + " " + unit); strings.Contains(pulled, "srv-fast.mount") {
				e.Fatalf("%s of %s pulls the pool in: %s", kind, unit, pulled)
			}
		}
	}
	e.is("systemctl show -P User "+service, service)
	e.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "[pool.net]\npath = \"/srv/net\"\ndevice = \"server:/export\"\n[pool.home]\npath = \"/home/volumes\"\nrequire_mount = false\n")
	const files = "/var/lib/hostpath-provisioner/volumes"
	e.sh("mkdir -p " + files + "; touch " + files + "/pgdata; chown 1000:1000 " + files + "/pgdata; chmod 4755 " + files + "/pgdata; systemctl daemon-reload; systemctl restart " + service)
	e.is("systemctl show -P User -P ProtectHome "+service+" | sort | tr '\\n' ' '", "no root")
	e.is("stat -c '%u:%g %a' "+files+"/pgdata", "1000:1000 4755") // an earlier unit's StateDirectory= made it root's
	e.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "this is = = nothing\n")
	e.fails("hostpath-provisioner check", "50-site.toml")
	e.sh("systemctl daemon-reload")
	e.is("systemctl show -P User "+service, "root") // of the configuration before
	e.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "")
	e.sh("systemctl daemon-reload; systemctl restart " + service)
	e.sh("mkdir -p /home/volumes")
	e.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "[pool.home]\npath = \"/home/volumes\"\nrequire_mount = false\n")
	e.sh("hostpath-provisioner prepare home; systemctl restart " + service)
	e.says(e.sh("hostpath-provisioner check home"), "warning UnitOutdated: "+service+".service does not have ProtectHome=no", "systemctl daemon-reload")
	e.status("pool home is closed: " + service + ".service does not have ProtectHome=no")
	e.says(e.sh("hostpath-provisioner status || true"), "closed: UnitOutdated", "hint: run: systemctl daemon-reload")
	e.sh("systemctl daemon-reload; systemctl restart " + service)
	e.status("3 of 3 pools open")
	e.sh("rm /etc/hostpath-provisioner/conf.d/50-site.toml; systemctl daemon-reload; systemctl restart " + service)
	e.is("stat -c '%u:%g %a' "+files+"/pgdata; rm -r "+files, "1000:1000 4755")
	e.status("2 of 2 pools open")
}

func reboot(e *environment) {
	// No udev here: a disk with this label never comes.
	e.sh("sed -i '/ \\/data /d' /etc/fstab; echo 'LABEL=data /data ext4 x-systemd.device-timeout=2s,nofail 0 2' >> /etc/fstab")
	took, err := e.m.halt(e.ctx)
	e.Must(err, "shutting down")
	if took > 20*time.Second { // systemd waits 90 s for what does not stop
		e.Fatalf("shutting down took %s", took)
	}
	e.Must(e.m.boot(e.ctx), "booting again")
	e.status("pool data is closed: /data is not a mount point")
	e.status("1 of 2 pools open")
	e.bound("one")
	e.claim("after-boot", "fast")
	e.eventually("mount -o loop /images/data /data && echo mounted", "mounted") // another process may take the loop device meanwhile
	e.linkDisk()
	e.status("2 of 2 pools open")
	e.claim("after-mount", "data")
	e.is("systemctl is-active srv-fast.mount "+service+" | sort -u", "active")
	e.sh("mounted=$(systemctl show -P ActiveEnterTimestampMonotonic srv-fast.mount); " +
		"started=$(systemctl show -P ExecMainStartTimestampMonotonic " + service + "); " +
		"echo mounted $mounted, started $started; test $started -ge $mounted")
}

func upgrade(e *environment) {
	version := func() string { return e.sh("dpkg-query -W -f '${Version}' hostpath-provisioner") }
	before, pid := version(), e.sh("systemctl show -P MainPID "+service)
	e.docs("upgrade.md", "Upgrade on Debian and Ubuntu", newer...)
	e.says(e.sh("hostpath-provisioner version"), "+after.")
	e.eventually("systemctl show -P MainPID "+service+" | grep -vx "+pid+" | grep -vx 0 && systemctl is-active "+service, "active")
	e.status("2 of 2 pools open")
	e.says(e.sh(journal+"-u "+service+" -o cat"), "ready")
	e.eventually("readlink /proc/$(systemctl show -P MainPID "+looks+")/exe", "/usr/bin/hostpath-provisioner\n") // not the deleted one
	e.bound("one")
	e.claim("after-upgrade", "fast")
	e.is("cat /etc/hostpath-provisioner/config.toml | head -1", `node = "node-a"`)
	e.block(0, "README.md", "Install on a node", "make packages\ndpkg -i .build/", "dpkg -i /shared/") // the older one
	if version() != before {
		e.Fatalf("version %s, want %s", version(), before)
	}
	e.eventually("hostpath-provisioner status", "2 of 2 pools open")
	e.sh("dpkg --add-architecture arm64")
	e.dpkg("--force-depends " + strings.ReplaceAll(deb[1], "amd64", "arm64"))
	e.is("dpkg-query -W -f '${Architecture}' hostpath-provisioner:arm64", "arm64")
	e.dpkg(deb[1])
	e.sh("dpkg --remove-architecture arm64; systemctl reset-failed " + service + "; systemctl restart " + service)
	e.status("2 of 2 pools open")
	e.drop("after-upgrade")
	e.bound("one")
}

// dpkg asks nothing about configuration files: there may be none.
func (e *environment) dpkg(what string) { e.sh("dpkg -i " + what + " </dev/null") }

// It fails when the postrm removes the state directory as a whole: a pool may lie in it.
func purge(e *environment) {
	e.sh("mkdir -p /var/lib/hostpath-provisioner/volumes; touch /var/lib/hostpath-provisioner/volumes/file")
	e.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "[pool.near]\npath = \"/var/lib/near\"\nrequire_mount = false\n")
	e.sh("hostpath-provisioner prepare near; systemctl restart " + service)
	e.status("3 of 3 pools open")
	e.class("near", "near")
	volumes := []string{e.bound("one"), e.bound("after-mount"), e.claim("near", "near")}
	for _, dir := range volumes {
		e.sh("echo data > " + dir + "/file")
	}
	keep := func(what string, files ...string) {
		for _, dir := range volumes {
			files = append(files, dir+"/file")
		}
		if out, code := e.try("ls " + strings.Join(files, " ")); code != 0 {
			e.Fatalf("after %s:\n%s", what, out)
		}
	}
	bound := e.sh("hostpath-provisioner volumes 2>/dev/null | grep -c ' bound'")
	e.says(e.docs("uninstall.md", "Remove on Debian and Ubuntu", "apt-get", "apt-get -y"),
		"bound volumes on this node: "+bound+".", `source "csi"`)
	e.is("systemctl is-active "+service+" || true", "inactive")
	e.lookerGone()
	keep("removal", "/etc/hostpath-provisioner/config.toml", "/etc/hostpath-provisioner/kubeconfig", "/var/lib/hostpath-provisioner/state/pools/fast.json")
	// Installed again, the service is disabled, because the removal did that; a masked one is told
	// as that.
	e.sh("ln -s /dev/null /etc/systemd/system/" + service + ".service")
	e.says(e.sh("dpkg -i /shared/packages/hostpath-provisioner_*_amd64.deb </dev/null"), "the service is masked")
	e.sh("rm /etc/systemd/system/" + service + ".service; mv /etc/hostpath-provisioner/kubeconfig /root")
	e.says(e.sh("apt-get -y remove hostpath-provisioner; mv /root/kubeconfig /etc/hostpath-provisioner"),
		"kubectl delete csistoragecapacities -A -l hostpath-provisioner/node=")
	e.says(e.sh("dpkg -i /shared/packages/hostpath-provisioner_*_amd64.deb </dev/null"), "the service is not enabled")
	e.sh("mkdir -p /etc/credstore; touch /etc/credstore/hostpath-provisioner.kubeconfig /etc/credstore/other")
	e.docs("uninstall.md", "Purge on Debian and Ubuntu", "apt-get", "apt-get -y")
	e.is("ls /etc/credstore", "other")
	keep("purge", "/var/lib/hostpath-provisioner/volumes/file")
	e.is("ls -A /etc/hostpath-provisioner /var/lib/hostpath-provisioner /usr/lib/systemd/system/hostpath* /etc/systemd/system/*/hostpath* 2>/dev/null || true", "/var/lib/hostpath-provisioner:\nvolumes")
}

func rpm(e *environment) {
	// The objects that the .deb's removal left of pools that this node's configuration has no more:
	// status would tell of them.
	const leftVolumes = `for pv in $(kubectl get pv -l 'hostpath-provisioner/pool in (data, near)' -o name); do
		kubectl delete --wait=false $pv
		kubectl patch $pv --type merge -p '{"metadata":{"finalizers":null}}' || true
	done`
	// This rpm's database is empty: it knows nothing of the systemd that is there.
	said := e.docs("install.md", "Fedora and RHEL", "rpm -U hostpath-provisioner-*.x86_64.rpm", "rpm -U --nodeps /shared/packages/hostpath-provisioner-*.x86_64.rpm")
	e.says(said, "installed and not started")
	e.is("systemctl is-enabled "+service+" || true", "disabled")
	e.sh("rpm -e hostpath-provisioner")
	e.sh(leftVolumes)
	e.readme()
	const told = "kubectl get csistoragecapacities -A -o jsonpath='{.items[*].metadata.uid}'"
	e.publishes()
	before := e.sh(told)
	e.docs("upgrade.md", "Upgrade on Fedora and RHEL", "rpm -U hostpath-provisioner-*.x86_64.rpm", "rpm -U --nodeps /shared/packages-newer/hostpath-provisioner-*.x86_64.rpm")
	e.says(e.sh("hostpath-provisioner version; cat /etc/hostpath-provisioner/config.toml"), "+after.", `path = "/srv/fast"`)
	e.eventually("hostpath-provisioner status", "+after.")
	e.status("1 of 1 pool open")
	e.sh("rpm -U --nodeps --oldpackage /shared/packages/hostpath-provisioner-*.x86_64.rpm")
	e.eventually("hostpath-provisioner status || true", "1 of 1 pool open")
	e.is(told, before) // by neither
}

// Volumes stay, and nothing of the package does.
func rpmRemoval(e *environment) {
	dir := e.bound("data")
	e.sh("echo data > " + dir + "/file")
	e.docs("uninstall.md", "Remove on Fedora and RHEL")
	e.is("systemctl is-active "+service+" || true", "inactive")
	e.lookerGone()
	e.is("cat "+dir+"/file; ls -A /etc/hostpath-provisioner /var/lib/hostpath-provisioner 2>/dev/null || true", "data\n/var/lib/hostpath-provisioner:\nvolumes")
	e.docs("uninstall.md", "What stays")
	e.is("ls -d /srv/fast 2>/dev/null || true; ls -A /srv", "")
}
