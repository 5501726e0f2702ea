package main

import (
	"fmt"
	"maps"
	"path"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"sigs.k8s.io/yaml"

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
	plugin, err := registration.NewRegistrationClient(e.connect(findSocket)).GetInfo(e.ctx, &registration.InfoRequest{})
	if err != nil || plugin.Name != service || plugin.Endpoint != ownSocket {
		e.Fatalf("the registration: %v, %v", plugin, err)
	}
	e.sandboxOfTheDriver()
	k := e.kubelet(service)
	e.Must(k.publish("u-1", v), "publishing")
	e.is("cat "+target+"/file", "data") // in the host's mount namespace
	before := e.sh("stat -c %i " + ownSocket + " " + findSocket)
	e.sh("systemctl stop " + service + "; systemctl restart " + driver + ".service")
	e.is("stat -c %i "+ownSocket+" "+findSocket, before)
	e.is("cat "+target+"/file", "data")
	e.Must(k.publish("u-1", v), "publishing again, without the daemon")
	e.unmount()
	e.Must(k.unpublish("u-1", v), "unpublishing without the pool")
	if err := k.publish("u-1", v); err == nil || !strings.Contains(err.Error(), "is closed: /srv/fast is not a mount point") {
		e.Fatalf("without the pool: %v", err)
	}
	e.sh("mount /srv/fast; systemctl start " + service)
	e.status("2 of 2 pools open")
	e.kubeletElsewhere()
	e.drop("for-csi")
}

// connect is a connection to a socket of the machine.
func (e *environment) connect(socket string) *grpc.ClientConn {
	c, err := grpc.NewClient("unix://"+e.outside(socket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	e.Must(err, "a connection")
	return c
}

// outside is the path of a file of the machine, mounted or not, seen from here.
func (e *environment) outside(file string) string {
	return fmt.Sprintf("/proc/%d/root%s", e.m.leader(), file)
}

// sandboxOfTheDriver: root with two capabilities, in the host's mount namespace, without a network.
func (e *environment) sandboxOfTheDriver() {
	pid := e.sh("systemctl show -P MainPID " + driver)
	status := e.sh("cat /proc/" + pid + "/status")
	const two = 1<<2 | 1<<21 // dac_read_search 2, sys_admin 21
	for _, set := range []string{"CapEff", "CapBnd", "CapPrm"} {
		e.says(status, fmt.Sprintf("%s:\t%016x", set, two))
	}
	e.says(strings.Join(strings.Fields(status), " "), "NoNewPrivs: 1", "Seccomp: 2")
	e.is("readlink /proc/"+pid+"/ns/mnt", e.sh("readlink /proc/1/ns/mnt"))
	e.sh("systemd-analyze security --threshold=37 --no-pager " + driver + ".service")
	for line := range strings.Lines(status) {
		if strings.HasPrefix(line, "VmRSS:") {
			fmt.Printf("         the CSI driver: %s\n", strings.Join(strings.Fields(line), " "))
		}
	}
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
	e.Must(k.publish("u-stays", stays), "publishing an inline volume")
	e.Must(k.publish("u-ends", ends), "publishing an inline volume")
	e.is("findmnt -no FSROOT --mountpoint "+target("u-stays", stays), "/"+stays.PV) // in the host's mount namespace
	e.sh("echo data > " + target("u-stays", stays) + "/file; cp " + target("u-stays", stays) + "/file " + target("u-ends", ends))
	e.says(e.sh("hostpath-provisioner volumes | grep "+stays.PV), "inline", "default/pod")

	e.sh("systemctl stop " + service)
	e.withoutDaemon(k, stays, ends, late)
	e.sh("systemctl start " + service)
	e.eventually("test -e /srv/fast/"+ends.PV+" || echo gone", "gone")
	e.is("cat "+target("u-stays", stays)+"/file", "data\nmore")
	e.Must(k.publish("u-late", late), "publishing what waited for the daemon")
	e.Must(k.unpublish("u-late", late), "unpublishing")
	e.Must(k.unpublish("u-stays", stays), "unpublishing")
	e.eventually("find /srv/fast -maxdepth 1 -name 'csi-*' | wc -l", "0")
	e.eventually("hostpath-provisioner volumes | grep -c inline || true", "0")
	e.sh("systemctl disable --now " + driver + ".socket; rm " + site + "; systemctl daemon-reload; systemctl restart " + service)
	e.status("2 of 2 pools open")
}

// withoutDaemon has a new pod refused after a time in which the daemon could have been started
// again. Meanwhile all goes on that needs none, and the cluster's side is switched on by the page,
// and off.
func (e *environment) withoutDaemon(k kubelet, stays, ends, late csinode.Volume) {
	refused := make(chan error, 1)
	e.sh("mkdir -p $(dirname " + target("u-late", late) + ")")
	go func() { refused <- k.askToPublish("u-late", late) }()
	e.sh("echo more >> " + target("u-stays", stays) + "/file")
	e.Must(k.unpublish("u-ends", ends), "unpublishing without the daemon")
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
	e.Must(k.publish("u-stays", stays), "publishing again, without the daemon")
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

// theirs are a class and a bound claim as kubevirt's driver and its provisioner leave them.
const theirs = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: kubevirt.io.hostpath-provisioner}
spec: {attachRequired: false, podInfoOnMount: true, storageCapacity: true}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: csi-hostpath}
provisioner: kubevirt.io.hostpath-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolume
metadata:
  name: pvc-of-kubevirt
  annotations: {pv.kubernetes.io/provisioned-by: kubevirt.io.hostpath-provisioner}
  finalizers: [external-provisioner.volume.kubernetes.io/finalizer]
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Mi}
  storageClassName: csi-hostpath
  persistentVolumeReclaimPolicy: Retain
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: default, name: vm}
  csi: {driver: kubevirt.io.hostpath-provisioner, volumeHandle: pvc-of-kubevirt}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.hostpath.csi/node, operator: In, values: [node-a]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: vm, namespace: default}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Mi}}
  storageClassName: csi-hostpath
  volumeName: pvc-of-kubevirt
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
	e.put("/theirs.yaml", theirs)
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
	socket := path.Join(kubeletRoot, "plugins", name, "csi.sock")
	plugin, err := registration.NewRegistrationClient(e.connect(path.Join(kubeletRoot, "plugins_registry", name+"-reg.sock"))).GetInfo(e.ctx, &registration.InfoRequest{})
	if err != nil || plugin.Name != name || plugin.Endpoint != socket {
		e.Fatalf("the registration of %s: %v, %v", name, plugin, err)
	}
	info, err := spec.NewNodeClient(e.connect(socket)).NodeGetInfo(e.ctx, &spec.NodeGetInfoRequest{})
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
	if err := e.kubelet(service).publish("u-2", v); err == nil || !strings.Contains(err.Error(), "not recorded on this node") {
		e.Fatalf("our own driver: %v", err)
	}
	e.Must(e.kubelet(kubevirt).publish("u-2", v), "publishing an adopted volume")
	return v
}

// putAway leaves the machine to the other steps as it was.
func (e *environment) putAway(v csinode.Volume) {
	e.Must(e.kubelet(service).unpublish("u-2", v), "unpublishing")
	e.sh(fmt.Sprintf(`systemctl disable --now %s.socket; rm %s /var/lib/hostpath-provisioner/state/pools/legacy.json; systemctl daemon-reload; systemctl restart %s
		kubectl patch pv pvc-of-kubevirt --type merge -p '{"metadata":{"finalizers":null}}'
		kubectl delete -f theirs.yaml --wait=false; kubectl label node %s %s-
		sed -i /hpvolumes/d /etc/fstab; systemctl daemon-reload`, driver, inPlaceConfig, service, node, kubevirtLabel))
	e.eventually("umount /var/hpvolumes && echo unmounted", "unmounted")
	e.status("2 of 2 pools open")
}
