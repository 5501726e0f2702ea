package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/image"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// zero is the story of docs/first-claim.md, whole: kubeadm makes the cluster, on the machine that
// then gets the package.
//
// The programs of Kubernetes are built from its source, unpatched; the images that kubeadm asks for
// are made of them, under the names that it says. Three of those are a busybox that sleeps: pause,
// CoreDNS (so no name is resolved in this cluster, and its pods are never ready) and kube-proxy (so
// no program reaches a Service's address).
var zero = []step{
	{"containerd, kubelet, kubeadm and kubectl are there, as Kubernetes' documentation asks for", kubernetes},
	{"kubeadm init, and the node takes pods", initialize},
	{"the package, and from an empty disk to the first claim by the commands of the pages", zeroClaim},
	{"the pod runs, and what it wrote is on the disk", pod},
	{"kubectl delete, and the directory goes", away},
	{"no command of the page was left out", func(e *environment) { e.allRun([]string{"first-claim.md"}, nil) }},
}

// programs of Kubernetes, in .build.
var (
	onHost   = []string{"kubeadm", "kubelet", "kubectl"}
	inImages = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"}
)

// imageList prints the names of the images that kubeadm wants. Without a version it asks on the
// network for the newest.
const imageList = "kubeadm config images list --kubernetes-version=$(kubeadm version -o short)"

// podImage takes the place of the page's busybox, which a registry would have.
const podImage = "localhost/busybox:1"

// prepareZero boots the machine, with nothing in it but the tree.
func (e *environment) prepareZero() {
	e.prepareMachine(true)
	e.Must(e.passPackages("packages"), "passing the packages")
	e.Must(os.Mkdir(filepath.Join(e.m.shared, "images"), 0o755), "a directory")
	e.Must(e.network(), "the network")
	e.Must(e.m.boot(e.ctx), "booting")
}

// network is an interface with an address and a default route, which leads nowhere: kubeadm looks
// for them.
func (e *environment) network() error {
	for _, command := range []string{
		"link add eth0 type veth peer name nowhere", "address add " + address + "/24 dev eth0",
		"link set eth0 up", "link set nowhere up", "route add default via 10.99.0.254",
	} {
		if out, err := exec.CommandContext(e.ctx, "ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", command, err, out)
		}
	}
	// Of this network namespace, like the file in the container that may not be written there.
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

func kubernetes(e *environment) {
	for _, program := range onHost {
		e.Must(copyFile(built(program), e.m.path("/usr/bin/"+program), 0o755), "copying "+program)
	}
	e.makeNode()
	e.images()
}

func built(program string) string { return filepath.Join(rig.Root(), ".build", program) }

func copyFile(from, to string, mode os.FileMode) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, mode)
}

// images makes and imports what kubeadm asks for, and what the page's pod does.
func (e *environment) images() {
	e.Must(e.saveBusybox(podImage), "the image of the pod")
	for name := range strings.FieldsSeq(e.sh(imageList)) {
		e.Must(e.saveImage(name), "the image "+name)
	}
	e.sh("for archive in /shared/images/*; do ctr -n k8s.io images import $archive; done")
}

// saveImage writes the archive of one that kubeadm asks for.
func (e *environment) saveImage(name string) error {
	program, _, _ := strings.Cut(filepath.Base(name), ":")
	for _, ours := range inImages {
		if program != ours {
			continue
		}
		i, err := image.Program(name, built(program), program)
		if err != nil {
			return err
		}
		return i.Save(filepath.Join(e.m.shared, "images", program))
	}
	return e.saveBusybox(name)
}

func (e *environment) saveBusybox(name string) error {
	i, err := image.Busybox(name, e.m.path("/bin/busybox"))
	if err != nil {
		return err
	}
	// What kube-proxy's pod runs by its path.
	i.Files = append(i.Files, image.File{Name: "usr/local/bin/kube-proxy", Data: []byte("#!/bin/sh\nexec sleep infinity\n"), Mode: 0o755})
	program, _, _ := strings.Cut(filepath.Base(name), ":")
	return i.Save(filepath.Join(e.m.shared, "images", program))
}

// initialize leaves out one of kubeadm's checks, for what is the machine's: cgroups of version 1,
// and a kernel without its configuration.
func initialize(e *environment) {
	said := e.docs("first-claim.md", "1. Kubernetes", "kubeadm init ", "kubeadm init --ignore-preflight-errors=SystemVerification ")
	e.says(said, "Your Kubernetes control-plane has initialized successfully!", "node/"+node+" untainted")
	e.m.environment = append(e.m.environment, "KUBECONFIG=/etc/kubernetes/admin.conf") // as it is exported there
	e.sh("kubectl wait --for=condition=Ready --timeout=2m node/" + node)
}

func zeroClaim(e *environment) {
	e.says(e.docs("install.md", "Debian and Ubuntu", deb...), "installed and not started")
	e.product()
	e.says(e.first("image: busybox", "image: "+podImage), "Bound", "ProvisioningSucceeded", "default/first")
}

func pod(e *environment) {
	lines := strings.Split(strings.TrimSpace(e.docs("first-claim.md", "7. The pod")), "\n")
	if n := len(lines); n != 3 || lines[1] != lines[2] {
		e.Fatalf("the pod and the disk say %q", lines)
	}
}

// It fails with the class hostpath-provisioner-retain in the page's file.
func away(e *environment) {
	e.docs("first-claim.md", "8. And away")
	e.noVolumes()
	e.eventually("ls -A /srv/fast /srv/fast/.hostpath-provisioner/trash | tr '\\n' ' '", "/srv/fast: .hostpath-provisioner lost+found  /srv/fast/.hostpath-provisioner/trash: ")
}
