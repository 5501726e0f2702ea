package main

import (
	"fmt"
	"maps"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
)

// The CSI driver's unit and its sockets.
const (
	driver     = service + "-csi"
	ownSocket  = "/var/lib/kubelet/plugins/hostpath-provisioner/csi.sock"
	findSocket = "/var/lib/kubelet/plugins_registry/hostpath-provisioner-reg.sock"
)

// csi is kubelet's part by hand. It fails when the unit gets PrivateMounts=yes, or a setting that
// implies it, when a system call is taken from its filter, and with RemoveOnStop= of a service that
// has the sockets of its own.
func csi(e *environment) {
	dir := e.claim("for-csi", "fast")
	v := csinode.Of(path.Base(dir), "fast", dir)
	target := target("u-1", v)
	e.sh("echo data > " + dir + "/file")
	e.put("/csinode.yaml", "apiVersion: storage.k8s.io/v1\nkind: CSINode\nmetadata: {name: "+node+"}\nspec: {drivers: [{name: "+service+", nodeID: "+node+"}]}\n") // as kubelet would
	e.sh("kubectl apply -f csinode.yaml")
	e.says(e.docs("csi.md", "Switching it on"), service)
	e.sh("kubectl delete -f csinode.yaml")
	e.is("stat -c '%a %U' "+ownSocket+" "+findSocket, "600 root\n600 root")
	e.serves(service)
	e.sandboxOfTheDriver()
	k := e.kubelet(service)
	e.publishVolume(k, "u-1", v)
	e.is("cat "+target+"/file", "data") // in the host's mount namespace
	before := e.sh("stat -c %i " + ownSocket + " " + findSocket)
	e.sh("systemctl stop " + service + "; systemctl restart " + driver + ".service")
	e.is("stat -c %i "+ownSocket+" "+findSocket, before)
	e.is("cat "+target+"/file", "data")
	e.publishVolume(k, "u-1", v) // again, without the daemon
	e.unmount()
	e.unpublishVolume(k, "u-1", v) // without the pool
	const closed = "is closed: /srv/fast is not a mount point"
	if err := k.Publish(e.ctx, "u-1", v); err == nil || !strings.Contains(err.Error(), closed) {
		e.Fatalf("without the pool: %v", err)
	}
	e.sh("mount /srv/fast; systemctl start " + service)
	e.status("2 of 2 pools open")
	e.kubeletElsewhere()
	e.drop("for-csi")
}

// outside is the path of a file of the machine, mounted or not, seen from here.
func (e *environment) outside(file string) string {
	return fmt.Sprintf("/proc/%d/root%s", e.m.leader(), file)
}

// sandboxOfTheDriver: root with two capabilities, in the host's mount namespace, without a network.
func (e *environment) sandboxOfTheDriver() {
	e.confined(driver, "root", 1<<2|1<<21, 37) // dac_read_search 2, sys_admin 21
	e.is("readlink /proc/$(systemctl show -P MainPID "+driver+")/ns/mnt", e.sh("readlink /proc/1/ns/mnt"))
}

// kubeletElsewhere: the generator writes the sockets' paths, and stopping the sockets' unit takes
// them away.
func (e *environment) kubeletElsewhere() {
	e.sh("systemctl stop " + driver + ".socket")
	e.is("ls "+ownSocket+" "+findSocket+" 2>/dev/null || true", "")
	e.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "kubelet_root = \"/var/lib/k0s/kubelet\"\n")
	e.sh("systemctl daemon-reload; systemctl start " + driver + ".socket")
	e.sh("test -S /var/lib/k0s/kubelet/plugins/hostpath-provisioner/csi.sock; test -S /var/lib/k0s/kubelet/plugins_registry/hostpath-provisioner-reg.sock")
	e.sh("systemctl disable --now " + driver + ".socket; rm /etc/hostpath-provisioner/conf.d/50-site.toml; systemctl daemon-reload")
	e.is("find /var/lib/k0s -type s", "")
}

const (
	inlinePage = "Inline volumes"
	// site is a file of the configuration that a step puts there and takes away.
	site = "/etc/hostpath-provisioner/conf.d/50-site.toml"
)

// inlineVolumes has the node service and the daemon, each in its unit, make and remove volumes of
// pods. It fails when the node service's unit gets PrivateMounts=yes, and when the daemon's start
// looks for no volume whose end was missed.
func inlineVolumes(e *environment) {
	e.put(site, e.text("csi.md", inlinePage, "toml"))
	e.block(0, "csi.md", inlinePage)
	e.status("2 of 2 pools open")
	k := e.kubelet(service)
	stays, ends, late := e.scratch("u-stays"), e.scratch("u-ends"), e.scratch("u-late")
	e.publishVolume(k, "u-stays", stays)
	e.publishVolume(k, "u-ends", ends)
	e.is("findmnt -no FSROOT --mountpoint "+target("u-stays", stays), "/"+stays.PV) // in the host's mount namespace
	e.sh("echo data > " + target("u-stays", stays) + "/file; cp " + target("u-stays", stays) + "/file " + target("u-ends", ends))
	e.says(e.sh("hostpath-provisioner volumes | grep "+stays.PV), "inline", "default/pod")

	e.sh("systemctl stop " + service)
	e.withoutDaemon(k, stays, ends, late)
	e.sh("systemctl start " + service)
	e.eventually("test -e /srv/fast/"+ends.PV+" || echo gone", "gone")
	e.is("cat "+target("u-stays", stays)+"/file", "data\nmore")
	e.publishVolume(k, "u-late", late) // which waited for the daemon
	e.unpublishVolume(k, "u-late", late)
	e.unpublishVolume(k, "u-stays", stays)
	e.eventually("find /srv/fast -maxdepth 1 -name 'csi-*' | wc -l", "0")
	e.eventually("hostpath-provisioner volumes | grep -c inline || true", "0")
	e.sh("systemctl disable --now " + driver + ".socket; rm " + site + "; systemctl daemon-reload; systemctl restart " + service)
	e.status("2 of 2 pools open")
}

// withoutDaemon has a new pod refused after a time in which the daemon could have been started
// again. Meanwhile all goes on that needs none, and the cluster's side is switched on by the page,
// and off.
func (e *environment) withoutDaemon(k *csinode.Service, stays, ends, late csinode.Volume) {
	refused := make(chan error, 1)
	go func() { refused <- k.Publish(e.ctx, "u-late", late) }()
	e.sh("echo more >> " + target("u-stays", stays) + "/file")
	e.unpublishVolume(k, "u-ends", ends)
	e.is("cat /srv/fast/"+ends.PV+"/file", "data")
	e.block(1, "csi.md", inlinePage)
	e.is("kubectl get csidriver "+service+" -o jsonpath='{.spec.volumeLifecycleModes}'", `["Persistent","Ephemeral"]`)
	e.sh("kubectl delete csidriver " + service + "; hostpath-provisioner manifests | kubectl apply -f -")
	const say = service + ".service does not respond"
	if err := <-refused; err == nil || !strings.Contains(err.Error(), say) {
		e.Fatalf("a new pod without the daemon: %v, want %q", err, say)
	}
	e.sh("systemctl restart " + driver + ".service")
	e.is("cat "+target("u-stays", stays)+"/file", "data\nmore")
	e.publishVolume(k, "u-stays", stays)
}

// scratch is the volume of the page's pod, for a pod of this UID. This pool is smaller than the
// page's.
func (e *environment) scratch(uid string) csinode.Volume {
	var pod corev1.Pod
	e.Must(yaml.UnmarshalStrict([]byte(e.text("csi.md", inlinePage, "yaml")), &pod), "the page's pod")
	of := pod.Spec.Volumes[0]
	attributes := maps.Clone(of.CSI.VolumeAttributes)
	attributes["size"] = "16Mi"
	return csinode.Inline(uid, of.Name, attributes)
}

const (
	kubevirt      = "kubevirt.io.hostpath-provisioner"
	kubevirtLabel = "topology.hostpath.csi/node"
	inPlacePage   = "In place of kubevirt's driver"
	inPlaceConfig = "/etc/hostpath-provisioner/conf.d/50-kubevirt.toml"
)

// theirDriverObject is what kubevirt's operator leaves.
const theirDriverObject = `---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: kubevirt.io.hostpath-provisioner}
spec: {attachRequired: false, podInfoOnMount: true, storageCapacity: true}
`

// profile is a StorageProfile as CDI makes one for a class that it does not know, and as much of
// its definition as the page's command has to fit.
const profile = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: storageprofiles.cdi.kubevirt.io}
spec:
  group: cdi.kubevirt.io
  scope: Cluster
  names: {kind: StorageProfile, listKind: StorageProfileList, plural: storageprofiles, singular: storageprofile}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              claimPropertySets:
                type: array
                items:
                  type: object
                  properties:
                    accessModes: {type: array, items: {type: string}}
                    volumeMode: {type: string}
`

// storageProfile runs the page's command for KubeVirt's CDI.
func (e *environment) storageProfile() {
	e.put("/cdi.yaml", profile)
	e.put("/profile.yaml", "apiVersion: cdi.kubevirt.io/v1beta1\nkind: StorageProfile\nmetadata: {name: fast-csi}\nspec: {}\n")
	e.sh("kubectl apply -f cdi.yaml; kubectl wait --for=condition=Established --timeout=60s crd/storageprofiles.cdi.kubevirt.io")
	e.eventually("kubectl apply -f profile.yaml", "fast-csi created")
	e.docs("csi.md", "KubeVirt's CDI")
	e.is("kubectl get storageprofile fast-csi -o jsonpath='{.spec.claimPropertySets[0].accessModes[0]} {.spec.claimPropertySets[0].volumeMode}'", "ReadWriteOnce Filesystem")
	e.sh("kubectl delete -f cdi.yaml")
}

// What is published for kubevirt's classes, and whether the scheduler compares it.
const (
	publishedTheirs = "kubectl get csistoragecapacities -A -o name -l " +
		"csi.storage.k8s.io/drivername=" + kubevirt + " | grep -c . || true"
	theirDriver    = "kubectl get csidriver " + kubevirt
	comparedTheirs = theirDriver + " -o jsonpath='{.spec.storageCapacity}'"
)

// inPlace has the machine be kubevirt's driver beside its own, and not any more. It fails when the
// generator writes the sockets of one driver, or the service serves one. When the sockets' unit was
// restarted after the configuration was changed, and not stopped before, the files of the other
// driver's stayed.
func inPlace(e *environment) {
	const dir = "/var/hpvolumes/csi/pvc-of-kubevirt"
	e.put(inPlaceConfig, e.text("csi.md", inPlacePage, "toml"))
	volume := cluster.Kubevirt(namespace, "vm", node,
		storagev1.VolumeBindingWaitForFirstConsumer, corev1.PersistentVolumeReclaimRetain, "")
	e.put("/theirs.yaml", string(volume)+theirDriverObject)
	e.sh(`mkdir -p /var/hpvolumes; truncate -s 64M /images/legacy; mkfs.ext4 -q /images/legacy
		echo '/images/legacy /var/hpvolumes ext4 loop,nofail 0 2' >> /etc/fstab; systemctl daemon-reload; mount /var/hpvolumes
		mkdir -p ` + dir + `; chmod 0777 ` + dir + `; echo data > ` + dir + `/file
		kubectl apply -f theirs.yaml; kubectl label node ` + node + ` ` + kubevirtLabel + `=` + node + `
		kubectl wait --for=jsonpath='{.status.phase}'=Bound --timeout=60s pvc/vm`)
	before := e.sh("kubectl get pv pvc-of-kubevirt -o jsonpath='{.metadata.uid} {.spec}'")
	e.sh("hostpath-provisioner manifests --no-classes --alias " + kubevirt + " | kubectl apply -f -")
	e.block(0, "csi.md", inPlacePage)
	e.block(1, "csi.md", inPlacePage)
	e.eventually(publishedTheirs, "1")
	e.eventually(comparedTheirs, "true")
	for _, name := range []string{service, kubevirt} {
		e.serves(name)
	}
	e.is("kubectl get pv pvc-of-kubevirt -o jsonpath='{.metadata.uid} {.spec}'", before)
	v := e.publishTheirs("pvc-of-kubevirt")
	file := target("u-2", v) + "/file"
	e.is("cat "+file, "data")

	e.block(2, "csi.md", inPlacePage)
	e.is("find "+kubeletRoot+" -type s", "")
	e.put(inPlaceConfig, withoutKubevirt(e.text("csi.md", inPlacePage, "toml")))
	e.block(3, "csi.md", inPlacePage)
	e.block(4, "csi.md", inPlacePage)
	e.is(publishedTheirs, "0")
	e.is(theirDriver+" -o jsonpath='{.metadata.labels}{.spec.storageCapacity}'", "true")
	e.serves(service)
	e.is("find "+kubeletRoot+" -type s | grep -c kubevirt || true", "0")
	e.is("cat "+file, "data")
	e.is("ls -A /var/hpvolumes/csi/.hostpath-provisioner/volumes", "")
	e.putAway(v)
	e.storageProfile()
}

// withoutKubevirt is the page's configuration without the keys that it says to take out.
func withoutKubevirt(config string) string {
	var left strings.Builder
	for line := range strings.Lines(config) {
		if !strings.HasPrefix(line, "aliases") && !strings.HasPrefix(line, "csi_drivers") {
			left.WriteString(line)
		}
	}
	return left.String()
}

// serves asks the service on a driver's sockets who it is, as kubelet does, and where its pods may
// be.
func (e *environment) serves(name string) {
	k := e.kubelet(name)
	plugin, endpoint, err := k.Registered(e.ctx)
	if err != nil || plugin != name || endpoint != path.Join(kubeletRoot, "plugins", name, "csi.sock") {
		e.Fatalf("the registration of %s: %s, %s, %v", name, plugin, endpoint, err)
	}
	info, err := k.Info(e.ctx)
	e.Must(err, "asking "+name+" for its node")
	want := ""
	if name == kubevirt {
		want = node
	}
	if got := info.AccessibleTopology.GetSegments()[kubevirtLabel]; info.NodeId != node || got != want {
		e.Fatalf("%s: node %q, topology %q", name, info.NodeId, got)
	}
}

// publishTheirs has the adopted volume mounted by the driver of its object, and by no other.
func (e *environment) publishTheirs(pv string) csinode.Volume {
	v := csinode.Volume{PV: pv}
	err := e.kubelet(service).Publish(e.ctx, "u-2", v)
	if err == nil || !strings.Contains(err.Error(), "not recorded on this node") {
		e.Fatalf("our own driver: %v", err)
	}
	e.publishVolume(e.kubelet(kubevirt), "u-2", v)
	return v
}

// putAway leaves the machine to the other steps as it was.
func (e *environment) putAway(v csinode.Volume) {
	e.unpublishVolume(e.kubelet(service), "u-2", v)
	e.sh(fmt.Sprintf(`systemctl disable --now %s.socket; rm %s /var/lib/hostpath-provisioner/state/pools/legacy.json; systemctl daemon-reload; systemctl restart %s
		kubectl patch pv pvc-of-kubevirt --type merge -p '{"metadata":{"finalizers":null}}'
		kubectl delete -f theirs.yaml --wait=false; kubectl label node %s %s-
		sed -i /hpvolumes/d /etc/fstab; systemctl daemon-reload`, driver, inPlaceConfig, service, node, kubevirtLabel))
	e.eventually("umount /var/hpvolumes && echo unmounted", "unmounted")
	e.status("2 of 2 pools open")
}
