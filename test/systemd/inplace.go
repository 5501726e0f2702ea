package main

import (
	"fmt"
	"path"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
)

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
