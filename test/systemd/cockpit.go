package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// The page for Cockpit, beside Debian's own Cockpit, read in chromium by the scripts in browser.

// cockpitStory is what is shown, in order.
var cockpitStory = []step{
	{"the page's .deb installs beside Cockpit, and an operator makes a pool", cockpitInstalls},
	{"chromium reads the page, as an administrator and as another user", cockpitRead},
	{"the page's .deb goes, and leaves nothing", cockpitGoes},
	{"the page's .rpm wants Cockpit and the program, has the .deb's files, and leaves nothing", cockpitRPM},
}

const (
	page      = "cockpit-hostpath-provisioner"
	pageFiles = "/usr/share/cockpit/hostpath-provisioner"
)

func cockpitInstalls(e *environment) {
	e.dpkg(deb[1])
	e.dpkg("/shared/cockpit/*.deb")
	e.is("ls "+pageFiles, "index.css.gz\nindex.html\nindex.js.gz\nmanifest.json")
	e.sh("sha256sum " + pageFiles + "/* >/run/page")
	e.product(unconfined...)
	_, err := e.cluster.Snapshots(e.ctx, namespace, service)
	e.Must(err, "the resources of snapshots")
	e.put("/etc/hostpath-provisioner/conf.d/copies.toml",
		"[pool.fast]\nclones = \"copy\"\nsnapshots = \"copy\"\n")
	e.sh("systemctl daemon-reload; systemctl restart " + service)
	e.class("fast", "fast")
	e.class("second", "second") // which the page prepares
	e.sh(`useradd -m -s /bin/sh -G sudo admin; echo 'admin:of the host' | chpasswd
		useradd -m -s /bin/sh guest; echo 'guest:of nothing' | chpasswd
		systemctl start cockpit.socket`)
}

// cockpitRead runs the browser in this network namespace, where Cockpit listens on the loopback.
// The script reaches into the machine by the command that this program uses.
func cockpitRead(e *environment) {
	inside, err := json.Marshal(e.m.command(e.ctx, "sh", "-euc").Args)
	e.Must(err, "the command")
	work := filepath.Join(rig.Root(), ".build", "cockpit-src")
	e.Must(os.CopyFS(filepath.Join(e.dir, "browser"), os.DirFS(
		filepath.Join(rig.Root(), "test", "systemd", "browser"))), "passing the scripts")
	modules := filepath.Join(e.dir, "browser", "node_modules")
	e.Must(os.Symlink(filepath.Join(work, "node_modules"), modules), "passing the modules")
	script := exec.CommandContext(e.ctx, "node", filepath.Join(e.dir, "browser", "cockpit.mjs"))
	script.Env = append(os.Environ(), "INSIDE="+string(inside),
		"PICTURES="+filepath.Join(rig.Root(), ".build", "cockpit", "pictures"))
	script.Stdout, script.Stderr = os.Stdout, os.Stderr
	e.Must(script.Run(), "the page in chromium")
}

func cockpitGoes(e *environment) {
	e.sh("dpkg --purge " + page)
	e.fails("ls "+pageFiles, "No such file")
	e.is("systemctl is-active "+service, "active")
}

// cockpitRPM is for rpm's own database, which knows nothing of Debian's packages: those that the
// page wants come into it one by one, without their files.
func cockpitRPM(e *environment) {
	const install, licenses = "rpm -i /shared/cockpit/*.rpm", "/usr/share/licenses/" + page
	for _, part := range []string{"cockpit-bridge", "cockpit-system"} {
		e.fails(install, part+" >= 265 is needed by "+page)
		e.stub(part, "264", "")
		e.fails(install, part+" >= 265 is needed by "+page)
		e.stub(part, "265", "")
	}
	e.fails(install, service+" >= ")
	e.sh("rpm -i --nodeps --justdb --noscripts /shared/packages/*.x86_64.rpm")
	e.sh(install)
	e.is("sha256sum --quiet -c /run/page; rpm -V "+page+"; rpm -ql "+page+" | sort", strings.Join([]string{
		pageFiles, pageFiles + "/index.css.gz", pageFiles + "/index.html", pageFiles + "/index.js.gz",
		pageFiles + "/manifest.json", licenses, licenses + "/LICENSE", licenses + "/licenses.txt",
	}, "\n"))
	e.says(e.sh("cockpit-bridge --packages"), pageFiles)
	e.fails("rpm -e --test "+service, "is needed by (installed) "+page)
	e.sh("rpm -e " + page)
	for _, gone := range []string{pageFiles, licenses} {
		e.fails("ls "+gone, "No such file")
	}
}
