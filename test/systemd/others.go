package main

import (
	"fmt"
	"strings"
)

// others are the pages of which only kubectl's commands are run here, against objects that bear the
// names in them. Whether the recipes of the migration hold is for TestMigrationRecipes (test/e2e).
var others = []string{"operation.md", "every-node.md", "shared.md", "migration.md", "troubleshooting.md"}

// workload is a controller of pods that runs none.
const workload = `apiVersion: apps/v1
kind: %s
metadata: {name: %s, namespace: %s}
spec:
  selector: {matchLabels: {app: stub}}
  template:
    metadata: {labels: {app: stub}}
    spec: {nodeSelector: {nowhere: "true"}, containers: [{name: stub, image: stub}]}
---
`

// named are the other objects that commands name.
const named = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: kubevirt.io.hostpath-provisioner}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: shared.hostpath-provisioner, namespace: hostpath-provisioner}
---
apiVersion: v1
kind: Node
metadata: {name: node-b}
---
apiVersion: v1
kind: Node
metadata: {name: node-c}
---
`

// volume is one that nobody provisioned.
const volume = `apiVersion: v1
kind: PersistentVolume
metadata: {name: %s, finalizers: [external-provisioner.volume.kubernetes.io/finalizer]}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Mi}
  storageClassName: nobody
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: /srv/fast/nothing}
---
`

// The names of the volumes in operation.md.
const deleted, given = "pvc-d240bf88-248b-45ab-97cb-ab7296ebd262", "pvc-5e8fede4-05a7-442b-b6d0-6c859f816bf9"

// It fails when kubectl does not know a command, a flag (--typ=json), a kind or a field of a patch.
func otherPages(w *world) {
	w.put("/theirs.yaml", theirs())
	w.put("/named.yaml", named+fmt.Sprintf(volume, deleted)+fmt.Sprintf(volume, given))
	w.put("/agents.yaml", w.text("every-node.md", "Set up", "yaml"))
	w.sh(`for name in kubevirt-hostpath-provisioner local-path-storage; do kubectl create namespace $name; done
		kubectl apply -f theirs.yaml -f named.yaml
		ln -s theirs.yaml kubevirt-hostpath-provisioner.yaml; ln -s theirs.yaml hostpath-multihost.yaml`)
	for _, page := range others {
		blocks, err := w.pages.Blocks(page)
		w.must(err, "the documentation")
		found := 0
		for _, b := range blocks {
			for line := range strings.Lines(b.Text) {
				if b.Language == "sh" && strings.HasPrefix(line, "kubectl ") {
					w.sh(strings.ReplaceAll(line, "NAME", deleted))
					found++
				}
			}
		}
		if found == 0 {
			w.failf("%s has no command for kubectl", page)
		}
	}
	w.is("kubectl get pv "+deleted+" -o jsonpath='{.spec.persistentVolumeReclaimPolicy}'", "Delete")
	w.is("kubectl get pv "+given+" -o jsonpath='{.metadata.finalizers}' | grep -c external-provisioner || true", "0")
}

// theirs are the workloads of other provisioners.
func theirs() string {
	var b strings.Builder
	for _, o := range []struct{ kind, name, namespace string }{
		{"Deployment", "hostpath-provisioner", "kube-system"},
		{"Deployment", "hostpath-multihost-provisioner", "kube-system"},
		{"Deployment", "local-path-provisioner", "local-path-storage"},
		{"DaemonSet", "hostpath-multihost-manager", "kube-system"},
		{"DaemonSet", "kubevirt-hostpath-provisioner", "kubevirt-hostpath-provisioner"},
	} {
		fmt.Fprintf(&b, workload, o.kind, o.name, o.namespace)
	}
	return b.String()
}
