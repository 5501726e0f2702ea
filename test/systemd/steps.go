package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// story is what is shown, in order.
var story = []step{
	{"with an older systemd dpkg and rpm refuse, and name the version that is needed", older},
	{"the .deb installs, starts nothing, says what comes next, and warns of kubevirt's old unit", install},
	{"from an empty disk to the first claim by the commands of the pages, with kubectl; and away with it", firstClaim},
	{"a second pool beside it", configure},
	{"the sandbox: its own user, five capabilities, no new privileges, a filter, and exposure 2.0 at most", sandbox},
	{"a daemon that was taken over gets nowhere but into the pools", escape},
	{"what looks under mount points is killed, fails to start, is stopped: pools wait, say what to do, and open again", looker},
	{"a claim becomes a volume with its group and set-group-ID bit; of a device the links are seen", provision},
	{"umount of a pool on the host is not kept busy, and is seen; a remount, too, and the waiting claim goes on", remount},
	{"a volume with foreign, closed and immutable files is removed; another is archived", remove},
	{"a reload takes a new configuration; a bad one fails, and the old one stays in force", reload},
	{"a daemon that hangs is killed by the watchdog and started again", watchdog},
	{"a bad configuration at start is not tried again; a missing kubeconfig is", badStart},
	{"the metrics' socket: systemd listens, across a reload and a restart", socket},
	{"the CSI driver: its mounts reach the host, its sockets stay while it restarts, and closed pools refuse", csi},
	{"volumes that are written in pods: without the daemon they go on and end, new ones wait, and its start sweeps", inlineVolumes},
	{"a snapshot pauses pods; those of a node service that was killed or stopped in a pause go on at once", pausedSnapshots},
	{"in the place of kubevirt's CSI driver, beside our own, by the commands of the page, and back", inPlace},
	{"a credential takes the place of the kubeconfig's file", credential},
	{"a node is enrolled by one command", enroll},
	{"the check unit keeps kubelet from starting on missing storage", checkUnit},
	{"the generator orders the units after the pools, and opens the sandbox where a pool needs it", generator},
	{"a reboot with one of two pools missing: the daemon serves the other, then both", reboot},
	{"an upgrade restarts and loses nothing; so do an older version and another architecture", upgrade},
	{"a version that publishes no capacity: what was published is withdrawn before", downgrade},
	{"the .deb's removal keeps volumes, configuration and state; purging never removes a volume", purge},
	{"a configuration that the packages of 0.1.0 brought stays as it was edited, with .deb and .rpm", conffile},
	{"the .rpm installs, starts nothing, works by the README's commands, is upgraded", rpm},
	{"with rpm, too, what was published is withdrawn before such a version", downgradeRPM},
	{"the .rpm goes without a volume", rpmRemoval},
	{"kubectl takes its commands of the other pages", otherPages},
	{"no command of the pages was left out", everyCommand},
}

const configuration = `node = "node-a"

[pool.fast]
path = "/srv/fast"
mode = "2770"
group = "2000"
default = true

[pool.data]
path = "/data/volumes"
mount_point = "/data"
device = "LABEL=data"
on_delete = "archive"
`

// deb and others are the packages as the documents name them, where they really are.
var (
	deb   = []string{"hostpath-provisioner_*_amd64.deb", "/shared/packages/hostpath-provisioner_*_amd64.deb"}
	newer = []string{"hostpath-provisioner_*_amd64.deb", "/shared/packages-newer/hostpath-provisioner_*_amd64.deb"}
)

// older has databases of packages in which systemd is another version. It fails without the
// packages' dependency.
func older(e *environment) {
	const needed = "depends on systemd (>= 252); however:\n  Version of systemd on system is 251."
	e.fails(`cp -a /var/lib/dpkg /run/dpkg
		sed -i '/^Package: systemd$/,/^$/s/^Version: .*/Version: 251/' /run/dpkg/status
		mkdir /run/older
		dpkg --no-triggers --admindir=/run/dpkg --instdir=/run/older -i `+deb[1], needed)
	const rpm = "--dbpath /run/rpm"
	const install = "rpm " + rpm + " -i --test /shared/packages/*.x86_64.rpm"
	e.stub("systemd", "251", rpm)
	e.fails(install, "systemd >= 252 is needed by hostpath-provisioner")
	e.stub("systemd", "252", rpm)
	e.sh(install + "; rm -r /run/dpkg /run/older /run/rpm")
}

// It fails when the postinst enables the service.
func install(e *environment) {
	e.put("/etc/systemd/system/hostpath-provisioner.service", "[Service]\nType=oneshot\nExecStart=/usr/bin/chcon -Rt container_file_t /var/hpvolumes\n")
	said := e.docs("install.md", "Debian and Ubuntu", deb...)
	ours, _, _ := strings.Cut(said, "\nProcessing triggers for ")
	e.sample(ours, "install.md", "Debian and Ubuntu", 0)
	e.says(said, "/etc/systemd/system/hostpath-provisioner.service comes before the unit", "chcon")
	e.is(journal+"-b | grep hostpath-provisioner-generator || true", "")
	e.docs("install.md", "An old unit of the same name")
	enabled := service + " " + service + "-check " + service + "-metrics.socket " + driver + ".socket "
	static := looks + ".socket " + looks + " " + driver
	e.is("systemctl is-enabled "+enabled+" | uniq -c | tr -s ' '", "4 disabled")
	e.is("systemctl is-enabled "+static+" | uniq -c | tr -s ' '", "3 static")
	e.is("systemctl is-active "+enabled+static+" | uniq -c | tr -s ' '", "7 inactive")
	e.sh("getent passwd hostpath-provisioner && test -s /usr/share/man/man8/hostpath-provisioner.8.gz && test -s /usr/share/man/man8/hostpath-provisioner-check.8.gz && hostpath-provisioner version")
	all := strings.Join([]string{
		service + ".service", service + "-check.service", service + "-metrics.socket",
		looks + ".service", looks + ".socket", driver + ".service", driver + ".socket",
	}, " ")
	e.is("systemd-analyze verify --man=no "+all+" 2>&1 | grep hostpath || true", "")
}

// It fails with ProtectSystem=strict (the pools are read-only), with RestrictSUIDSGID=yes (no
// openat2), and when a line is taken from the commands that make the kubeconfig (use-context). It
// failed when the status was written after systemd was told that the daemon is ready.
func firstClaim(e *environment) {
	e.product(unconfined...)
	e.says(e.first(), "Bound", "ProvisioningSucceeded", "default/first")
	e.docs("install.md", "And away", "kubectl delete", "kubectl delete --force --grace-period=0") // no kubelet is here
	e.noVolumes()
	e.is("ls -A /srv/fast", ".hostpath-provisioner\nlost+found")
}

func configure(e *environment) {
	e.put("/etc/hostpath-provisioner/config.toml", configuration)
	e.sh(`truncate -s 64M /images/data; mkfs.ext4 -q -L data /images/data
		echo '/images/data /data ext4 loop,nofail 0 2' >> /etc/fstab; systemctl daemon-reload
		hostpath-provisioner prepare data; mount /data`)
	e.linkDisk()
	e.sh("hostpath-provisioner prepare data; hostpath-provisioner check; systemctl restart " + service)
	e.is("stat -c '%a %U' /data/volumes", "700 root")
	e.status("2 of 2 pools open on node node-a")
	e.class("fast", "fast")
	e.class("data", "data")
}

// linkDisk is udev's part. Without BindReadOnlyPaths=/dev:... in the unit, no device has the label.
func (e *environment) linkDisk() {
	e.sh("mkdir -p /dev/disk/by-label; ln -sfn ../../$(basename $(findmnt -no SOURCE /data)) /dev/disk/by-label/data")
}

// It fails when a capability is taken from the unit.
func sandbox(e *environment) {
	// cap_chown 0, dac_override 1, fowner 3, fsetid 4, linux_immutable 9 (linux/capability.h)
	e.confined(service, service, 1<<0|1<<1|1<<3|1<<4|1<<9, 20)
	const exposure = "systemd-analyze security --threshold=20 --no-pager "
	e.says(e.sh(exposure+service+"-check.service"), "exposure level")
	e.sandboxOfTheLooker()
}

// confined wants the process of a service to be a user's, with these capabilities, and the exposure
// of its unit to be a tenth of this at most.
func (e *environment) confined(service, user string, capabilities uint64, exposure int) {
	status := e.sh("cat /proc/$(systemctl show -P MainPID " + service + ")/status")
	for _, set := range []string{"CapEff", "CapBnd", "CapPrm"} {
		e.says(status, fmt.Sprintf("%s:\t%016x", set, capabilities))
	}
	words := strings.Join(strings.Fields(status), " ")
	uid := fmt.Sprintf("Uid: %[1]s %[1]s %[1]s %[1]s", e.sh("id -u "+user))
	e.says(words, uid, "NoNewPrivs: 1", "Seccomp: 2")
	e.sh(fmt.Sprintf("systemd-analyze security --threshold=%d --no-pager %s.service", exposure, service))
	_, memory, _ := strings.Cut(words, "VmRSS: ")
	memory, _, _ = strings.Cut(memory, " kB")
	fmt.Printf("         %s: %s KiB resident\n", service, memory)
}

// sandboxOfTheLooker: the service that the daemon's question started. It fails when User= is taken
// from its unit.
func (e *environment) sandboxOfTheLooker() {
	e.confined(looks, "hostpath-mountpoint", 1<<2|1<<21, 13) // dac_read_search 2, sys_admin 21
	e.is("stat -c '%a %U %G' /run/"+looks+".socket", "660 root "+service)
}

// escape starts test/systemd/escape in the daemon's place, by its unit with all that is in it, and
// gives it what it is to look for. It fails as soon as one of the attempts succeeds.
func escape(e *environment) {
	e.Must(copyFile(built("escape"), filepath.Join(e.m.shared, "escape"), 0o755), "passing the program (build it with: make .build/escape)")
	e.sh(`mkdir -p /etc/kubernetes/manifests /etc/cron.d /var/lib/kubelet /var/spool/cron/crontabs
		echo secret > /etc/kubernetes/admin.conf; chmod 0600 /etc/kubernetes/admin.conf
		for dir in /run /etc /var/lib /data /opt; do mkdir $dir/escape-bait; echo x > $dir/escape-bait/file; done`)
	e.put("/etc/systemd/system/bait.socket", "[Socket]\nListenStream=/run/containerd/containerd.sock\nListenStream=/run/escape-root.sock\nSocketMode=0660\nAccept=yes\n")
	e.put("/etc/systemd/system/bait@.service", "[Service]\nExecStart=/bin/true\n")
	const dropIn = "/etc/systemd/system/hostpath-provisioner.service.d"
	e.put(dropIn+"/escape.conf", "[Service]\nType=oneshot\nExecStart=\nExecStart=/shared/escape\nRestart=no\nWatchdogSec=0\nStandardOutput=file:/run/escape-said\n")
	e.sh("systemctl daemon-reload; systemctl start bait.socket")
	out, code := e.try("systemctl restart " + service + "; cat /run/escape-said")
	if code != 0 {
		said, _ := e.try("cat /run/escape-said; journalctl --no-pager -n 20 -u " + service)
		e.Fatalf("%s%s", out, said)
	}
	e.says(out, "confined by Landlock", " 0 not as they should be")
	fmt.Println(indented(out))
	e.sh("rm -r " + dropIn + "; systemctl stop bait.socket; rm /etc/systemd/system/bait*; rm -r /etc/kubernetes /run/escape-bait /etc/escape-bait /var/lib/escape-bait /data/escape-bait /opt/escape-bait; systemctl daemon-reload; systemctl restart " + service)
	e.status("2 of 2 pools open")
}

func indented(text string) string {
	return "         " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n         ")
}

func provision(e *environment) {
	e.is("stat -c '%a %u %g' "+e.claim("one", "fast"), "2770 0 2000")
	e.is("stat -c '%a %u %g' "+e.claim("labelled", "data"), "777 0 0")
}

func remount(e *environment) {
	e.unmount()
	e.status("pool fast is closed: /srv/fast is not a mount point")
	c := e.ask("waiting", "fast")
	_, err := e.cluster.WaitEvent(e.ctx, c, "PoolClosed")
	e.Must(err, "the event of a claim that waits")
	e.is("ls -A /srv/fast", "")
	e.sh("mount /srv/fast")
	e.status("2 of 2 pools open")
	e.bound("waiting")
	e.unmount() // with a daemon at work, and not only one that waits
	e.sh("mount /srv/fast")
	e.status("2 of 2 pools open")
}

func remove(e *environment) {
	dir := e.bound("waiting")
	e.sh(`cd ` + dir + `; mkdir -p closed/below sticky; echo x > closed/below/file; chmod 1777 sticky
		touch sticky/file; chown -R 4711:4711 closed sticky; chmod 0 closed/below closed
		echo x > immutable; chattr +i immutable; echo x > append; chattr +a append`)
	e.drop("waiting")
	e.eventually("ls -A "+dir+" /srv/fast/.hostpath-provisioner/trash 2>&1", "cannot access '"+dir+"'")
	e.eventually("ls -A /srv/fast/.hostpath-provisioner/trash | wc -l", "0")
	archived := e.bound("labelled")
	e.sh("echo kept > " + archived + "/file")
	e.drop("labelled")
	e.is("cat /data/volumes/.hostpath-provisioner/archive/pvc-*/file; ls /data/volumes", "kept")
}

func reload(e *environment) {
	pid := e.sh("systemctl show -P MainPID " + service)
	e.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "[pool.more]\npath = \"/srv/more\"\nrequire_mount = false\n")
	e.sh("hostpath-provisioner prepare more; systemctl reload " + service)
	e.status("3 of 3 pools open")
	e.put("/etc/hostpath-provisioner/conf.d/60-site.toml", "[pool.far]\npath = \"/var/volumes\"\nrequire_mount = false\n")
	e.fails("systemctl reload "+service, "failed")
	e.says(e.sh(journal+"-o cat -u "+service), "/var/volumes is outside of what the daemon confined itself to when it started: it has to be restarted")
	e.sh("rm /etc/hostpath-provisioner/conf.d/60-site.toml")
	e.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "[pool.more]\npath = \"nowhere\"\n")
	e.fails("systemctl reload "+service, "failed")
	e.status("3 of 3 pools open")
	e.sh("rm /etc/hostpath-provisioner/conf.d/50-site.toml; systemctl reload " + service + "; rm -r /srv/more")
	e.status("2 of 2 pools open")
	e.is("systemctl show -P MainPID "+service, pid)
}

func watchdog(e *environment) {
	e.put("/etc/systemd/system/hostpath-provisioner.service.d/watchdog.conf", "[Service]\nWatchdogSec=3s\nRestartSec=1s\n")
	defer e.sh("rm -r /etc/systemd/system/hostpath-provisioner.service.d; systemctl daemon-reload; systemctl restart " + service)
	e.sh("systemctl daemon-reload; systemctl restart " + service + "; kill -STOP $(systemctl show -P MainPID " + service + ")")
	e.eventually("systemctl show -P NRestarts "+service, "1")
	e.eventually("systemctl is-active "+service, "active")
	e.says(e.sh(journal+"-u "+service), "Watchdog timeout")
	e.status("2 of 2 pools open")
}
