package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// The ways from an empty disk to the first claim, by the commands of the pages alone, with kubectl
// and an administrator's kubeconfig where kubectl looks for one. It begins with the package
// installed.

// disk is the file that takes the place of the pages' disk, which is there with its label for the
// reader who has udev.
const disk = "/images/fast"

// onFile is what the pages' line for /etc/fstab becomes.
const onFile = disk + " /srv/fast ext4 loop,nofail"

// unconfined takes the policies out of the pages' manifests, for steps that have other pools.
var unconfined = []string{" --pool-path /srv/fast --class fast", ""}

// product brings the daemon up with the pages' pool.
func (e *environment) product(manifests ...string) {
	e.sh("mkdir -p /images; truncate -s 512M " + disk)
	e.put("/etc/hostpath-provisioner/config.toml", e.text("install.md", "Configure", "toml"))
	e.sample(e.docs("install.md", "Configure"), "install.md", "Configure", 0)
	e.block(0, "install.md", "Prepare the pool", "/dev/sdb", disk)
	prepared := e.block(1, "install.md", "Prepare the pool", "LABEL=fast /srv/fast ext4 nofail", onFile)
	e.sample(prepared, "install.md", "Prepare the pool", 0)
	e.block(0, "install.md", "Prepare the cluster", manifests...)
	e.kubeconfig()
	e.block(0, "install.md", "Start")
	e.eventually("hostpath-provisioner status", " for new ones")
	e.says(e.block(1, "install.md", "Start"), "1 of 1 pool open on node "+node)
}

// kubeconfig makes the node's by the commands of install.md, and puts it where that does.
func (e *environment) kubeconfig() {
	e.eventually("kubectl get configmap kube-root-ca.crt -n "+service+" -o name", "configmap/")
	e.docs("install.md", "A kubeconfig with kubectl")
	e.block(1, "install.md", "Prepare the cluster")
}

// first makes the first claim, but for the replaced parts of its file, and returns what was said.
func (e *environment) first(replace ...string) string {
	e.put("/first.yaml", strings.NewReplacer(replace...).Replace(e.text("install.md", "The first claim", "yaml")))
	said := e.docs("install.md", "The first claim", describe, told+describe)
	e.sample(unmeasured(said), "install.md", "The first claim", 0)
	return said
}

// A person is not as fast as the next line: told waits until the claim's event is there, which the
// page describes then.
const (
	describe = "kubectl describe pvc "
	told     = "timeout 60 sh -c 'until kubectl get events -o name --field-selector=reason=ProvisioningSucceeded | grep -q .; do sleep 0.1; done'; "
)

// readme goes the way of the README with the .rpm, which is not installed yet, to a claim. The disk
// is the one that was there, as a new node's may have been another's.
func (e *environment) readme() {
	const install = "Install on a node"
	e.unmount()
	e.sh("sed -i '/ \\/srv\\/fast /d' /etc/fstab")
	e.block(1, "README.md", install, "make packages\nrpm -U .build/", "rpm -U --nodeps /shared/")
	e.put("/etc/hostpath-provisioner/config.toml", e.text("README.md", install, "toml"))
	e.block(2, "README.md", install,
		"UUID=0a1b2c3d-1111-2222-3333-444455556666 /srv/fast ext4 defaults,nofail", onFile)
	e.block(3, "README.md", install, "admin.conf", "/root/.kube/config")
	e.eventually("hostpath-provisioner status", " for new ones")
	e.sample(e.sh("hostpath-provisioner status"), "install.md", "Start", 0)
	e.put("/first.yaml", e.text("README.md", "First claim", "yaml"))
	const bound = "kubectl wait --for=jsonpath='{.status.phase}'=Bound --timeout=1m pvc/data; "
	volumes := e.docs("README.md", "First claim", describe, bound+describe,
		"provisioner volumes", "provisioner volumes | grep -e CLAIM -e default/data")
	e.sample(unmeasured(volumes), "README.md", "First claim", 0)
	e.bound("data")
}

// unmeasured is a list of volumes without what they take: it has that once one of them was measured.
func unmeasured(list string) string {
	return usedCell.ReplaceAllString(strings.Replace(list, " USED ", " ", 1), "$1 bound")
}

var usedCell = regexp.MustCompile(`(B) +(?:-|~?[0-9.]+ [KMG]?i?B) +bound`)

// noVolumes waits until none is listed: the last one's files go in the background.
func (e *environment) noVolumes() {
	e.eventually("hostpath-provisioner volumes | tail -n +2 | wc -l", "0")
}

// others are the pages of which only kubectl's commands are run here, against objects that bear the
// names in them. Those of from-*.md are run by TestMigrationRecipes (test/e2e), with each
// system's own objects.
var others = []string{"operation.md", "uninstall.md", "every-node.md", "shared.md", "troubleshooting.md"}

// named are objects that commands name.
const named = `apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: shared.hostpath-provisioner, namespace: hostpath-provisioner}
---
apiVersion: v1
kind: Node
metadata: {name: node-b}
---
apiVersion: v1
kind: Node
metadata: {name: node-c}
---
`

// volume is one that was not provisioned.
const volume = `apiVersion: v1
kind: PersistentVolume
metadata: {name: %s, finalizers: [external-provisioner.volume.kubernetes.io/finalizer]}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Mi}
  storageClassName: nobody
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: /srv/fast/nothing}
---
`

// grows is a claim that may request more, bound to a volume that was not provisioned.
const grows = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: grows}
provisioner: example.com/none
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: grows}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Mi}
  storageClassName: grows
  hostPath: {path: /srv/fast/nothing}
  claimRef: {namespace: default, name: grows}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: grows, namespace: default}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Mi}}
  storageClassName: grows
  volumeName: grows
---
`

// backup is what `backup` prints of a volume without a claim; TestBackup (test/e2e) makes a real
// one.
const backup = `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "PersistentVolume",
	"metadata": {"name": "lost"}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Mi"},
	"storageClassName": "none", "hostPath": {"path": "/srv/fast/lost"}}}]}
`

// The names of the volumes in operation.md.
const deleted, given = "pvc-d240bf88-248b-45ab-97cb-ab7296ebd262", "pvc-5e8fede4-05a7-442b-b6d0-6c859f816bf9"

// It fails when kubectl does not know a command, a flag (--typ=json), a kind or a field of a patch.
func otherPages(e *environment) {
	e.put("/named.yaml", named+fmt.Sprintf(volume, deleted)+fmt.Sprintf(volume, given)+grows)
	e.put("/volumes.json", backup)
	e.put("/agents.yaml", e.text("every-node.md", "Set up", "yaml"))
	e.sh("kubectl apply -f named.yaml")
	e.sh("kubectl wait --for=jsonpath='{.status.phase}'=Bound --timeout=60s pvc/grows")
	names := strings.NewReplacer("NAME", deleted, "pvc data", "pvc grows")
	for _, page := range others {
		blocks, err := e.pages.Blocks(page)
		e.Must(err, "the documentation")
		found := 0
		for _, b := range blocks {
			for line := range strings.Lines(b.Text) {
				ours := strings.HasPrefix(line, "kubectl hostpath ") // TestWhy and TestForgetNode run it
				if b.Language == "sh" && strings.HasPrefix(line, "kubectl ") && !ours {
					e.sh(names.Replace(line))
					found++
				}
			}
		}
		if found == 0 {
			e.Fatalf("%s has no command for kubectl", page)
		}
	}
	e.is("kubectl get pvc grows -o jsonpath='{.spec.resources.requests.storage}'", "200Mi")
	e.is("kubectl get pv "+deleted+" -o jsonpath='{.spec.persistentVolumeReclaimPolicy}'", "Delete")
	e.is("kubectl get pv "+given+" -o jsonpath='{.metadata.finalizers}' | grep -c external-provisioner || true", "0")
}

// earlier is the package of 0.1.0 as far as it matters here: with a configuration that every
// upgrade compared with its own, and with a daemon that publishes nothing.
const earlier = `name: hostpath-provisioner
arch: amd64
version: 0.1.0
version_schema: none
release: "1"
maintainer: test
description: the configuration of 0.1.0
contents:
  - {src: config.toml, dst: /etc/hostpath-provisioner/config.toml, type: config|noreplace}
  - {src: unit, dst: /usr/lib/systemd/system/hostpath-provisioner.service}
  - {src: program, dst: /usr/bin/hostpath-provisioner, file_info: {mode: 0755}}
scripts:
  postinstall: post
`

// fails is an even earlier one, which does not get as far as its files.
var fails = strings.ReplaceAll(earlier, "0.1.0", "0.0.9") + "  preinstall: pre\n"

// restarts is what its scriptlet did.
const restarts = "systemctl daemon-reload\n" +
	"systemctl try-restart --no-block hostpath-provisioner.service\n"

// pack makes a package of the nfpm.yaml in a directory, and passes it to the machine.
func (e *environment) pack(dir, kind string) {
	cmd := exec.CommandContext(e.ctx, built("nfpm"), "package", "--packager", kind, "--target", e.m.shared)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	e.Must(err, string(out))
}

// earlierProgram runs as a daemon, and knows none of the calls of later versions, of which their
// generator is one.
const earlierProgram = "#!/bin/sh\n[ $# -gt 0 ] || exec sleep infinity\nexit 2\n"

func (e *environment) packEarlier() {
	dir := filepath.Join(e.dir, "earlier")
	e.Must(os.Mkdir(dir, 0o755), "a directory")
	for name, text := range map[string]string{
		"config.toml": "# 0.1.0\n[pool.fast]\n", "nfpm.yaml": earlier,
		"unit":    "[Service]\nExecStart=/usr/bin/hostpath-provisioner\n",
		"program": earlierProgram, "post": restarts, "pre": "exit 1\n",
	} {
		e.Must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644), name)
	}
	for _, kind := range []string{"deb", "rpm"} {
		e.pack(dir, kind)
	}
	e.Must(os.WriteFile(filepath.Join(dir, "nfpm.yaml"), []byte(fails), 0o644), "a package that fails")
	e.pack(dir, "deb")
}

// What the scheduler was told.
const (
	capacities = "kubectl get csistoragecapacities -A -o name"
	compares   = "kubectl get csidriver " + service + " -o jsonpath='{.spec.storageCapacity}'"
	runs       = "readlink /proc/$(systemctl show -P MainPID " + service + ")/exe"
)

// publishes waits until the scheduler is told of this node. It compares some minutes later where
// that was withdrawn before.
func (e *environment) publishes() { e.eventually(capacities, "csistoragecapacity") }

// goesBack goes to 0.1.0 by a command: what the scheduler was told of this node does not stay, as
// nobody would take it back.
func (e *environment) goesBack(command string) {
	e.sh(command)
	e.is(capacities, "")
	e.is(compares, "false")
}

// downgrade: the service runs on, also where nothing comes of it. It fails without "upgrade" in
// preremove.sh, and without "abort-upgrade" in postinstall.sh.
func downgrade(e *environment) {
	e.packEarlier()
	e.publishes()
	e.eventually(compares, "true")
	e.fails("dpkg -i /shared/*0.0.9*.deb </dev/null", "pre-installation script")
	e.status("2 of 2 pools open")
	e.publishes()
	e.goesBack("dpkg --force-confold -i /shared/*0.1.0*.deb </dev/null")
	e.eventually(runs, "/bin/sleep")
	e.dpkg(deb[1])
	e.status("2 of 2 pools open")
	e.publishes()
}

// downgradeRPM is that with rpm: the service runs, runs on as it was, and is stopped. It fails
// without the link of postinstall.sh.
func downgradeRPM(e *environment) {
	const older = "rpm -U --nodeps --oldpackage %s /shared/*0.1.0*.rpm"
	const back = "rpm -U --nodeps /shared/packages/hostpath-provisioner-*.x86_64.rpm"
	for _, how := range []string{"", "--nopost"} { // which has it start nothing
		e.publishes()
		e.goesBack(fmt.Sprintf(older, how))
		e.eventually(runs, "/bin/sleep")
		e.sh(back)
	}
	e.publishes()
	e.sh("systemctl stop " + service)
	e.goesBack(fmt.Sprintf(older, ""))
	e.fails("systemctl is-active "+service, "inactive")
	e.sh(back + "; systemctl start " + service)
	e.eventually("hostpath-provisioner status", "1 of 1 pool open")
}

// conffile goes from 0.1.0 to the package and to one whose example differs, as an unattended
// upgrade does. It fails when the package has the configuration: dpkg ends at its question. Without
// the ghost in nfpm.yaml rpm renames it when the earlier version goes.
func conffile(e *environment) {
	const config, files = "/etc/hostpath-provisioner/config.toml", "ls -A /etc/hostpath-provisioner"
	e.dpkg("/shared/*0.1.0*.deb")
	e.sh("echo '# edited' >> " + config)
	e.dpkg(deb[1])
	e.dpkg(newer[1])
	e.is("tail -1 "+config+"; "+files, "# edited\nconf.d\nconfig.toml")
	// The machine's dpkg leaves documents out.
	example := "dpkg-deb --fsys-tarfile " + newer[1] + " | tar -xO ./usr/share/doc/" + service + "/config.toml"
	e.says(e.sh(example), "A later version says more.")
	e.sh("dpkg --purge hostpath-provisioner")
	e.dpkg(deb[1]) // whose own file is made once, and is removed with it
	e.says(e.sh("cat "+config), "no upgrade changes it")
	e.fails("hostpath-provisioner check --config-only", "no pool is configured")
	e.sh("rm " + config)
	e.dpkg(newer[1])
	e.is(files, "conf.d")
	e.sh("dpkg --purge hostpath-provisioner")
	e.fails(files, "No such file")

	const rpm, newRPM = "/shared/packages/*.x86_64.rpm", "/shared/packages-newer/*.x86_64.rpm"
	for _, edit := range []string{"echo '# edited' >> " + config, "true"} {
		e.sh("rpm -U --nodeps /shared/*0.1.0*.rpm; " + edit + "; md5sum " + config + " > /run/before")
		for _, next := range []string{rpm, newRPM} {
			e.sh("rpm -U --nodeps " + next)
			e.is("md5sum -c --quiet /run/before; "+files, "conf.d\nconfig.toml")
		}
		e.sh("rpm -e hostpath-provisioner")
		e.is(files, "config.toml.rpmsave")
		e.sh("rm -r /etc/hostpath-provisioner")
	}
}
