package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	containers "github.com/hostpath-provisioner/hostpath-provisioner/test/image"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// The sizes of the claims and of what pods try to write, and how long something may take that
// kubelet does.
const (
	podSize  = 16 << 20
	podTries = 40 << 20
	podLimit = 4 * limit
)

// containerImage is what pods name as their image, which is loaded into the machine.
const containerImage = "localhost/hostpath-vm:1"

const containerdFile = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + containerImage + `"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
`

// networkFile has containerd take the network for there. Pods have the machine's own.
const networkFile = `{"cniVersion": "0.4.0", "name": "none", "plugins": [{"type": "loopback"}]}
`

// kubeletFile has kubelet look at volumes every ten seconds, and tell everybody in the machine what
// it sees.
const kubeletFile = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
readOnlyPort: 10255
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
resolvConf: ""
cgroupDriver: systemd
makeIPTablesUtilChains: false
volumeStatsAggPeriod: 10s
evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
`

// kubelet: pods of a real kubelet on pools with limits.
func (p *play) kubelet() {
	p.need("a machine with SELinux enforcing, and pools with limits and source csi", p.limitedPools)
	p.need("containerd and kubelet", p.startKubelet)
	p.need("kubelet has the driver", func() (string, error) {
		return "", p.soonTrue(func(ctx context.Context) (bool, error) {
			n, err := p.cluster.Client().StorageV1().CSINodes().Get(ctx, node, metav1.GetOptions{})
			return err == nil && len(n.Spec.Drivers) == 1 && n.Spec.Drivers[0].Name == p.namespace, nil
		})
	})
	for _, pool := range []string{"fast", "big"} {
		p.podLimited(pool)
		p.podInline(pool)
	}
	p.step("in all of this nothing that the daemon needs was refused", p.noDenials)
}

func (p *play) limitedPools() (string, error) {
	must(p.fresh(baseConfig))
	must(p.poolsAndStart())
	check(p.allowDriver())
	must(p.doAll("systemctl stop hostpath-provisioner && umount /srv/fast /srv/big && tune2fs -O project,quota -Q prjquota /dev/vdc",
		"sed -i 's/nosuid/prjquota,&/' /etc/fstab && systemctl daemon-reload && mount /srv/fast && mount /srv/big", limits))
	if _, err := p.policy(script + " pools"); err != nil { // the paths of the driver's sockets
		return "", err
	}
	for _, pool := range []string{"fast", "big"} {
		must(p.withKeys(pool, `source = "csi"`, `inline_volumes = "64Mi"`))
	}
	return p.expect("echo 0 > /proc/sys/kernel/printk_ratelimit; getenforce; hostpath-provisioner check", "Enforcing", "!closed")
}

// startKubelet starts them in an administrator's domain, and returns when the node is Ready, which
// this host has as a Node without a kubelet until then.
func (p *play) startKubelet() (string, error) {
	check(p.loadKubelet())
	const service = "systemd-run -q -p SELinuxContext=unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023 -p Delegate=yes -p KillMode=process "
	// Debian 13's policy has a domain for /usr/bin/containerd, as which no administrator starts it.
	must(p.doAll("blockdev --flushbufs /dev/vdb; "+unpacked,
		"install /usr/bin/containerd /usr/local/bin/containerd",
		service+"--unit=containerd-test /usr/local/bin/containerd --config /root/containerd.toml"))
	must(p.machine.until(p.ctx, podLimit, "ctr --namespace=k8s.io images import /root/image.tar"))
	must(p.do(service + "--unit=kubelet-test /usr/local/bin/kubelet --config=/root/kubelet.yaml --kubeconfig=/root/kubelet.kubeconfig --hostname-override=" + node + " --node-ip=10.0.2.15"))
	return "", p.soonTrue(func(ctx context.Context) (bool, error) {
		n, err := p.cluster.Client().CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil || n.Status.NodeInfo.KubeletVersion == "" {
			return false, err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
}

// loadKubelet loads what make built, an image, and their configuration.
func (p *play) loadKubelet() error {
	binary := os.Getenv("KUBELET")
	if binary == "" {
		binary = filepath.Join(rig.Root(), ".build", "kubelet")
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("%w (build it with: make .build/kubelet)", err)
	}
	busybox := must(exec.LookPath("busybox"))
	archive, err := containers.Busybox(containerImage, busybox)
	var layers bytes.Buffer
	if err == nil {
		err = archive.Write(&layers)
	}
	if err != nil {
		return err
	}
	file := filepath.Join(p.dir, "kubelet.kubeconfig")
	check(p.cluster.NodeKubeconfig(p.ctx, node, file))
	kubeconfig := must(forMachine(file))
	return p.machine.opt.load(map[string]archived{
		"usr/local/bin/kubelet": {0o755, program}, "root/image.tar": {0o600, layers.Bytes()}, "root/kubelet.kubeconfig": {0o600, kubeconfig},
		"root/containerd.toml": {0o644, []byte(containerdFile)}, "root/kubelet.yaml": {0o644, []byte(kubeletFile)}, "etc/cni/net.d/none.conflist": {0o644, []byte(networkFile)},
	})
}

// soonTrue looks again and again for what kubelet does.
func (p *play) soonTrue(look func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(p.ctx, podLimit)
	defer cancel()
	return wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, look)
}

// fillScript writes more than the volume may have, and says how far it came. The log has the lines
// of two outputs in no order.
const fillScript = `exec 2>&1
cd /volumes/*
busybox dd if=/dev/zero of=file bs=64k count=%d
busybox stat -c 'size %%s' file
busybox df -P -k .
echo finished
exec busybox sleep infinity
`

// pod makes a pod that fills its volume, and returns what it printed once it has done so.
func (p *play) pod(name string, source corev1.VolumeSource) (string, error) {
	pod := cluster.Pod(p.namespace, name, "data")
	pod.Spec.Volumes[0].VolumeSource = source
	pod.Spec.HostNetwork, pod.Spec.NodeSelector = true, map[string]string{corev1.LabelHostname: node}
	user, no := int64(1000), false
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user, RunAsGroup: &user, FSGroup: &user}
	pod.Spec.AutomountServiceAccountToken, pod.Spec.EnableServiceLinks, pod.Spec.DNSPolicy = &no, &no, corev1.DNSDefault
	c := &pod.Spec.Containers[0]
	c.Name, c.Image, c.Command = "writer", containerImage, []string{"/bin/sh", "-c", fmt.Sprintf(fillScript, podTries/(64<<10))}
	c.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	must(p.cluster.Client().CoreV1().Pods(p.namespace).Create(p.ctx, pod, metav1.CreateOptions{}))
	log := "/var/log/pods/" + p.namespace + "_" + name + "_*/writer/0.log"
	out, err := p.machine.until(p.ctx, podLimit, "grep -q finished "+log+" && cat "+log)
	if err != nil {
		err = errors.Join(err, p.podSaid(name))
	}
	return out, err
}

// podSaid is what the API has of a pod that does not run.
func (p *play) podSaid(name string) error {
	pod := must(p.cluster.Client().CoreV1().Pods(p.namespace).Get(p.ctx, name, metav1.GetOptions{}))
	events := must(p.cluster.Client().CoreV1().Events(p.namespace).List(p.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name}))
	text := fmt.Sprintf("pod %s on %q: %s", name, pod.Spec.NodeName, pod.Status.Phase)
	for _, e := range events.Items {
		text += "\n" + e.Reason + ": " + e.Message
	}
	return errors.New(text)
}

// filled judges what the pod printed: the error of its filesystem, and how much it could write.
func filled(pool, out string) (string, error) {
	refusal := map[string]string{"fast": "Disk quota exceeded", "big": "No space left on device"}[pool]
	var size int
	_, after, _ := strings.Cut(out, " size ")
	if _, err := fmt.Sscanf(after, "%d", &size); err != nil || !strings.Contains(out, refusal) {
		return "", fmt.Errorf("no %q and a size in\n%s", refusal, out)
	}
	if size > podSize || size < podSize-1<<20 {
		return "", fmt.Errorf("%d bytes were written", size)
	}
	if blocks := fmt.Sprintf(" %d ", podSize>>10); !strings.Contains(out, blocks) {
		return "", fmt.Errorf("df in the pod has no%sin\n%s", blocks, out)
	}
	return fmt.Sprintf("%s after %d bytes", refusal, size), nil
}

// podLimited fills the volume of a claim.
func (p *play) podLimited(pool string) {
	name := "limited-" + pool
	if !p.step("on "+pool+": a pod writes as much as its claim has, and its df shows that", func() (string, error) {
		claim := must(p.claim(pool, ofSize(fmt.Sprint(podSize))))
		out := must(p.pod(name, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}))
		return filled(pool, out)
	}) {
		return
	}
	p.step("on "+pool+": kubelet reports the claim's size as the volume's capacity, and that it is full", func() (string, error) { return p.reportedByKubelet(name) })
}

// podInline fills a volume that is written in the pod.
func (p *play) podInline(pool string) {
	name := "inline-" + pool
	if !p.step("on "+pool+": a pod writes as much as its inline volume has, and its df shows that", func() (string, error) {
		out, err := p.pod(name, corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
			Driver: p.namespace, VolumeAttributes: map[string]string{"storagePool": pool, "size": fmt.Sprint(podSize)},
		}})
		if err != nil {
			return "", err
		}
		return filled(pool, out)
	}) {
		return
	}
	p.step("on "+pool+": kubelet reports the inline volume's size as its capacity, and that it is full", func() (string, error) { return p.reportedByKubelet(name) })
	p.step("on "+pool+": the pod is deleted, and the directory, the record and the limit of its volume go", func() (string, error) {
		check(p.cluster.Client().CoreV1().Pods(p.namespace).Delete(p.ctx, name, metav1.DeleteOptions{}))
		must(p.machine.until(p.ctx, podLimit, "! ls /srv/"+pool+" /srv/"+pool+"/.hostpath-provisioner/trash /srv/"+pool+"/.hostpath-provisioner/volumes | grep ^csi-"))
		return p.limitsOf(pool)
	})
}

// summary is what is read of kubelet's statistics (k8s.io/kubelet, pkg/apis/stats/v1alpha1).
type summary struct {
	Pods []struct {
		PodRef struct{ Name, Namespace string }
		Volume []struct {
			Name                     string
			CapacityBytes, UsedBytes uint64
		}
	}
}

// reportedByKubelet waits until kubelet has looked at the volume after it was filled.
func (p *play) reportedByKubelet(pod string) (string, error) {
	var last string
	err := p.soonTrue(func(context.Context) (bool, error) {
		out, err := p.do("/usr/local/share/busybox wget -q -O - http://127.0.0.1:10255/stats/summary")
		if err != nil {
			return false, err
		}
		var all summary
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			return false, err
		}
		for _, one := range all.Pods {
			for _, v := range one.Volume {
				if one.PodRef.Name == pod && one.PodRef.Namespace == p.namespace && v.Name == "data" {
					last = fmt.Sprintf("%d of %d bytes", v.UsedBytes, v.CapacityBytes)
					return v.CapacityBytes == podSize && v.UsedBytes > podSize-1<<20 && v.UsedBytes <= podSize, nil
				}
			}
		}
		return false, nil
	})
	if err != nil {
		err = fmt.Errorf("%w; at last it reported %q", err, last)
	}
	return last, err
}
