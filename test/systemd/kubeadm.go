package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/image"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// zero is the story of docs/install.md, whole: kubeadm makes the cluster, on the machine that
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
	if !slices.Contains(inImages, program) {
		return e.saveBusybox(name)
	}
	i, err := image.Program(name, built(program), program)
	if err != nil {
		return err
	}
	return i.Save(filepath.Join(e.m.shared, "images", program))
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
	said := e.docs("install.md", "A cluster on one machine", "kubeadm init ", "kubeadm init --ignore-preflight-errors=SystemVerification ")
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
	lines := strings.Split(strings.TrimSpace(e.docs("install.md", "The pod")), "\n")
	if n := len(lines); n != 3 || lines[1] != lines[2] {
		e.Fatalf("the pod and the disk say %q", lines)
	}
}

// It fails with the class hostpath-provisioner-retain in the page's file.
func away(e *environment) {
	e.docs("install.md", "And away")
	e.noVolumes()
	e.eventually("ls -A /srv/fast /srv/fast/.hostpath-provisioner/trash | tr '\\n' ' '", "/srv/fast: .hostpath-provisioner lost+found  /srv/fast/.hostpath-provisioner/trash: ")
}

const kubeletRoot = "/var/lib/kubelet"

// kubelet calls a driver of the machine.
func (e *environment) kubelet(driver string) *csinode.Service {
	o := csinode.Options{Within: e.outside("/"), Root: kubeletRoot, Driver: driver}
	s, err := o.Connect()
	e.Must(err, "a connection")
	return s
}

// target is where a pod has a volume.
func target(pod string, v csinode.Volume) string {
	return csinode.Options{Root: kubeletRoot}.Target(pod, cmp.Or(v.Name, v.PV))
}

// publishVolume has a volume mounted for a pod.
func (e *environment) publishVolume(k *csinode.Service, pod string, v csinode.Volume) {
	e.Must(k.Publish(e.ctx, pod, v), "publishing")
}

// unpublishVolume has it unmounted, with its directory, and removes the pod's as kubelet does.
func (e *environment) unpublishVolume(k *csinode.Service, pod string, v csinode.Volume) {
	e.Must(k.UnpublishInline(e.ctx, pod, v), "unpublishing")
	e.sh("test ! -e " + target(pod, v) + "; " +
		"find " + path.Join(kubeletRoot, "pods", pod) + " -depth -type d -delete")
}

// address is the node's. A kubelet takes none of 127/8.
const address = "10.99.0.1"

// nodeFiles are what the documentation of Kubernetes has an administrator write, and what this
// machine does not allow: raised OOM scores, huge pages, AppArmor profiles, a cgroup of systemd's
// for each pod, cgroups of version 2.
var nodeFiles = map[string]string{
	"/etc/hosts":       "127.0.0.1 localhost\n" + address + " " + node + "\n",
	"/etc/resolv.conf": "nameserver 127.0.0.1\n",
	"/etc/containerd/config.toml": `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "PAUSE"
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
`,
	"/etc/cni/net.d/pods.conflist": `{"cniVersion": "0.4.0", "name": "pods", "plugins": [{
  "type": "ptp",
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]]}
}]}
`,
	"/etc/systemd/system/kubelet.service": `[Unit]
After=containerd.service
StartLimitIntervalSec=0
[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=/usr/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \
  --config=/var/lib/kubelet/config.yaml --config-dir=/etc/kubernetes/kubelet.conf.d $KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
`,
	"/etc/kubernetes/kubelet.conf.d/10-machine.conf": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
failSwapOn: false
makeIPTablesUtilChains: false
evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
`,
}

// makeNode makes the machine one that kubeadm takes: containerd and kubelet as services. Containers
// lie on a tmpfs, because the machine's own disk is an overlay, which takes no other upon it.
func (e *environment) makeNode() {
	pause := e.sh(imageList + " | grep /pause:")
	for _, name := range slices.Sorted(maps.Keys(nodeFiles)) {
		e.put(name, strings.ReplaceAll(nodeFiles[name], "PAUSE", pause))
	}
	var shield strings.Builder
	for name, value := range hosttest.KubeletSysctls {
		file := "/run/sysctls/" + strings.ReplaceAll(name, "/", ".")
		fmt.Fprintf(&shield, "echo %s >%s; mount --bind %s /proc/sys/%s\n", value, file, file, name)
	}
	e.sh("mkdir /run/sysctls; " + shield.String())
	e.sh(`for dir in containerd kubelet etcd; do mkdir -p /var/lib/$dir; mount -t tmpfs node /var/lib/$dir; done
		rm -f /dev/kmsg; mknod /dev/kmsg c 1 11
		mkdir /run/proc; mount -t proc proc /run/proc; mount --bind /run/proc/sys/net /proc/sys/net
		for dir in /sys/fs/cgroup/*/; do mount -o remount,rw,bind $dir; done
		systemctl daemon-reload; systemctl restart containerd; systemctl enable --now kubelet`)
	e.eventually("ctr version", "Server:")
}
