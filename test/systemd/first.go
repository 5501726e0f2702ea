package main

import "strings"

// The ways from an empty disk to the first claim, by the commands of the pages alone, with kubectl and
// an administrator's kubeconfig where kubectl looks for one. It begins with the package installed.

// disk is the file that takes the place of the pages' disk, which is there with its label for whoever
// has udev.
const disk = "/images/fast"

// onFile is what the pages' line for /etc/fstab becomes.
const onFile = disk + " /srv/fast ext4 loop,nofail"

// product brings the daemon up with the pages' pool.
func (w *world) product() {
	w.sh("mkdir -p /images; truncate -s 512M " + disk)
	w.docs("first-claim.md", "2. The disk", "/dev/sdb", disk)
	w.put("/etc/hostpath-provisioner/config.toml", w.text("install.md", "Configure", "toml"))
	w.docs("install.md", "Configure")
	w.docs("install.md", "Prepare the pool", "LABEL=fast /srv/fast ext4 nofail", onFile)
	w.block(0, "first-claim.md", "4. The cluster")
	w.kubeconfig()
	w.block(1, "first-claim.md", "4. The cluster")
	w.docs("first-claim.md", "5. Start")
	w.says(w.docs("install.md", "Start"), "1 of 1 pool open on node "+node)
}

// kubeconfig makes the node's by the commands of the README, and puts it where install.md does.
func (w *world) kubeconfig() {
	w.eventually("kubectl get configmap kube-root-ca.crt -n "+service+" -o name", "configmap/")
	w.block(5, "README.md", "Install on a node")
	w.docs("install.md", "Prepare the cluster")
}

// first makes the first claim, but for the replaced parts of its file, and answers what was said.
func (w *world) first(replace ...string) string {
	w.put("/first.yaml", strings.NewReplacer(replace...).Replace(w.text("first-claim.md", "6. The claim", "yaml")))
	return w.docs("first-claim.md", "6. The claim")
}

// readme goes the way of the README with the .rpm, which is not installed yet, and answers the directory
// of the claim. The disk is the one that was there, as a new node's may have been another's.
func (w *world) readme() (directory string) {
	const install = "Install on a node"
	w.sh("umount /srv/fast; sed -i '/ \\/srv\\/fast /d' /etc/fstab; kubectl delete storageclass fast")
	w.block(1, "README.md", install, "make packages\nrpm -U .build/", "rpm -U --nodeps /shared/")
	w.put("/etc/hostpath-provisioner/config.toml", w.text("README.md", install, "toml"))
	w.block(2, "README.md", install)
	w.block(3, "README.md", install, "UUID=0a1b2c3d-1111-2222-3333-444455556666 /srv/fast ext4 defaults,nofail", onFile)
	w.block(4, "README.md", install)
	w.kubeconfig()
	w.says(w.block(6, "README.md", install), "1 of 1 pool open on node "+node)
	w.put("/first.yaml", w.text("README.md", "First claim", "yaml"))
	w.says(w.docs("README.md", "First claim"), "default/data")
	return w.bound("data")
}

// noVolumes waits until none is listed: the last one's files go in the background.
func (w *world) noVolumes() { w.eventually("hostpath-provisioner volumes | tail -n +2 | wc -l", "0") }
