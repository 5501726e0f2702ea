package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

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

// sysctls are what a kubelet sets at its start (setupKernelTunables in pkg/kubelet/cm). They belong
// to the whole machine, so the node has files in their place that hold what it wants.
var sysctls = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// makeNode makes the machine one that kubeadm takes: containerd and kubelet as services. Containers
// lie on a tmpfs, because the machine's own disk is an overlay, which takes no other upon it.
func (e *environment) makeNode() {
	pause := e.sh(imageList + " | grep /pause:")
	for _, name := range slices.Sorted(maps.Keys(nodeFiles)) {
		e.put(name, strings.ReplaceAll(nodeFiles[name], "PAUSE", pause))
	}
	var shield strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sysctls)) {
		file := "/run/sysctls/" + strings.ReplaceAll(name, "/", ".")
		fmt.Fprintf(&shield, "echo %s >%s; mount --bind %s /proc/sys/%s\n", sysctls[name], file, file, name)
	}
	e.sh("mkdir /run/sysctls; " + shield.String())
	e.sh(`for dir in containerd kubelet etcd; do mkdir -p /var/lib/$dir; mount -t tmpfs node /var/lib/$dir; done
		rm -f /dev/kmsg; mknod /dev/kmsg c 1 11
		mkdir /run/proc; mount -t proc proc /run/proc; mount --bind /run/proc/sys/net /proc/sys/net
		for dir in /sys/fs/cgroup/*/; do mount -o remount,rw,bind $dir; done
		systemctl daemon-reload; systemctl restart containerd; systemctl enable --now kubelet`)
	e.eventually("ctr version", "Server:")
}
