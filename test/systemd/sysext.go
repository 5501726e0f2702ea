package main

import "strings"

// extended is the story of a system that has the product as an image of systemd-sysext, by the
// commands of the page. What it does not show: dm-verity, labels of SELinux, an /usr that was
// read-only before, and a systemd later than Debian's.
var extended = []step{
	{"the image is merged: /usr has the program, and cannot be written", merged},
	{"from an empty disk to the first claim, as with a package", extendedClaim},
	{"a reboot merges it again, and the daemon starts", extendedReboot},
	{"another image takes its place, and volumes stay", refreshed},
	{"unmerged: /usr is as it was, the volume and the configuration stay", unmerged},
}

const readOnly = "Where /usr is read-only"

// images are the images as the page names them, where they really are.
func images(folder string) []string {
	const name = "hostpath-provisioner-*-x86-64.raw"
	return []string{name, "/shared/" + folder + "/" + name}
}

func merged(e *environment) {
	e.sh("find /usr -xdev | sort > /root/before")
	e.block(0, "install.md", readOnly, images("packages")...)
	e.is("systemd-sysext status --no-legend | grep -o "+service, service)
	e.fails("touch /usr/file", "Read-only file system")
	e.sh("hostpath-provisioner version; id hostpath-provisioner; id hostpath-mountpoint")
	e.is("ls -A /etc/hostpath-provisioner; systemctl is-active "+service+" || true", "inactive")
	e.is("systemd-analyze verify --man=no "+service+".service 2>&1 | grep hostpath || true", "")
}

func extendedClaim(e *environment) {
	e.product(unconfined...)
	e.says(e.first(), "Bound", "default/first")
	e.sh("echo data > " + e.bound("first") + "/file")
}

// It fails without the drop-in of the page: what is enabled is not known when the boot begins.
func extendedReboot(e *environment) {
	_, err := e.m.halt(e.ctx)
	e.Must(err, "shutting down")
	e.Must(e.m.boot(e.ctx), "booting again")
	e.status("1 of 1 pool open")
	e.is("cat "+e.bound("first")+"/file", "data")
}

func refreshed(e *environment) {
	before := e.sh("hostpath-provisioner version")
	e.block(1, "install.md", readOnly, images("packages-newer")...)
	after := e.sh("hostpath-provisioner version")
	if e.says(after, "+after."); strings.Contains(before, "+after.") {
		e.Fatalf("version %s before, %s after", before, after)
	}
	e.eventually("hostpath-provisioner status", "+after.")
	e.status("1 of 1 pool open")
	for _, unit := range []string{service, looks} {
		e.eventually("stat -L -c %d:%i /proc/$(systemctl show -P MainPID "+unit+")/exe | "+
			"grep -x $(stat -c %d:%i /usr/bin/"+service+") && echo same", "same")
	}
	e.class("now", "fast")
	e.claim("second", "now")
	e.is("cat "+e.bound("first")+"/file", "data")
}

func unmerged(e *environment) {
	e.block(2, "install.md", readOnly)
	e.sh("find /usr -xdev | sort | diff /root/before -")
	e.is("cat "+e.bound("first")+"/file", "data")
	e.is("ls /etc/hostpath-provisioner", "config.toml\nkubeconfig")
	e.is("systemctl is-active "+service+" || true", "inactive")
	e.lookerGone()
}
