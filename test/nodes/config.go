package nodes

import "fmt"

// imageName is what pods name as their image. No registry has it: "localhost" is no registry's, and
// pods say imagePullPolicy Never.
const imageName = "localhost/hostpath-nodes:1"

// containerdConfig is in version 2 of the format, which containerd 1.6 wants and 2.x still reads.
// What the machine may not allow is left out: raised OOM scores, huge pages, AppArmor profiles.
func containerdConfig(cni string) string {
	return fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = "/var/lib/cni/net.d"
`, imageName, cni)
}

// cniConfig gives pods addresses of the node's own range, reachable from this run's namespace only.
func cniConfig(number int) string {
	return fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "nodes", "plugins": [{
  "type": "ptp",
  "ipam": {"type": "host-local", "dataDir": "/var/lib/cni/networks", "ranges": [[{"subnet": "10.99.%d.0/24"}]]}
}]}
`, number)
}

// kubeletConfig is a kubelet's with upstream's defaults, but for what would touch the machine or
// fail in a container: see each line.
func kubeletConfig(address, cgroup, authority string) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %s
healthzPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
volumePluginDir: /var/lib/kubelet/volume-plugins # the default is made in /usr
resolvConf: ""
cgroupRoot: /%s
cgroupDriver: cgroupfs # no systemd in here to ask
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
`, address, authority, cgroup)
}
