package main

import "strings"

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
	e.docs("first-claim.md", "2. The disk", "/dev/sdb", disk)
	e.put("/etc/hostpath-provisioner/config.toml", e.text("install.md", "Configure", "toml"))
	e.docs("install.md", "Configure")
	e.docs("install.md", "Prepare the pool", "LABEL=fast /srv/fast ext4 nofail", onFile)
	e.block(0, "first-claim.md", "4. The cluster", manifests...)
	e.kubeconfig(manifests...)
	e.block(1, "first-claim.md", "4. The cluster")
	e.docs("first-claim.md", "5. Start")
	e.says(e.docs("install.md", "Start"), "1 of 1 pool open on node "+node)
}

// kubeconfig makes the node's by the commands of install.md, and puts it where that does.
func (e *environment) kubeconfig(manifests ...string) {
	e.eventually("kubectl get configmap kube-root-ca.crt -n "+service+" -o name", "configmap/")
	e.docs("install.md", "A kubeconfig with kubectl")
	e.block(0, "install.md", "Prepare the cluster", manifests...)
	e.block(1, "install.md", "Prepare the cluster")
}

// first makes the first claim, but for the replaced parts of its file, and returns what was said.
func (e *environment) first(replace ...string) string {
	e.put("/first.yaml", strings.NewReplacer(replace...).Replace(e.text("first-claim.md", "6. The claim", "yaml")))
	return e.docs("first-claim.md", "6. The claim", describe, told+describe)
}

// A person is not as fast as the next line: told waits until the claim's event is there, which the
// page describes then.
const (
	describe = "kubectl describe pvc "
	told     = "timeout 60 sh -c 'until kubectl get events -o name --field-selector=reason=ProvisioningSucceeded | grep -q .; do sleep 0.1; done'; "
)

// readme goes the way of the README with the .rpm, which is not installed yet, and returns the
// directory of the claim. The disk is the one that was there, as a new node's may have been
// another's.
func (e *environment) readme() (directory string) {
	const install = "Install on a node"
	e.unmount()
	e.sh("sed -i '/ \\/srv\\/fast /d' /etc/fstab; kubectl delete storageclass fast")
	e.block(1, "README.md", install, "make packages\nrpm -U .build/", "rpm -U --nodeps /shared/")
	e.put("/etc/hostpath-provisioner/config.toml", e.text("README.md", install, "toml"))
	e.block(2, "README.md", install)
	checked := e.block(3, "README.md", install,
		"UUID=0a1b2c3d-1111-2222-3333-444455556666 /srv/fast ext4 defaults,nofail", onFile)
	e.sample(checked, "install.md", "Prepare the pool", 0)
	e.block(4, "README.md", install)
	e.block(5, "README.md", install, "admin.conf", "/root/.kube/config")
	e.block(6, "README.md", install)
	e.eventually("hostpath-provisioner status", " for new ones")
	e.sample(e.sh("hostpath-provisioner status"), "install.md", "Start", 0)
	e.put("/first.yaml", e.text("README.md", "First claim", "yaml"))
	const bound = "kubectl wait --for=jsonpath='{.status.phase}'=Bound --timeout=1m pvc/data; "
	volumes := e.docs("README.md", "First claim", describe, bound+describe,
		"provisioner volumes", "provisioner volumes | grep -e CLAIM -e default/data")
	e.sample(volumes, "README.md", "First claim", 0)
	return e.bound("data")
}

// noVolumes waits until none is listed: the last one's files go in the background.
func (e *environment) noVolumes() {
	e.eventually("hostpath-provisioner volumes | tail -n +2 | wc -l", "0")
}
