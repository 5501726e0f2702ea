package main

import (
	"fmt"
	"strings"
)

// others are the pages of which only kubectl's commands are run here, against objects that bear the
// names in them. Those of migration.md are run by TestMigrationRecipes (test/e2e), with each
// system's own objects.
var others = []string{"operation.md", "uninstall.md", "every-node.md", "shared.md", "troubleshooting.md"}

// named are objects that commands name.
const named = `apiVersion: coordination.k8s.io/v1
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

// volume is one that was not provisioned.
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

// grows is a claim that may request more, bound to a volume that was not provisioned.
const grows = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: grows}
provisioner: example.com/none
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: grows}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Mi}
  storageClassName: grows
  hostPath: {path: /srv/fast/nothing}
  claimRef: {namespace: default, name: grows}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: grows, namespace: default}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Mi}}
  storageClassName: grows
  volumeName: grows
---
`

// backup is what `backup` prints of a volume without a claim; TestBackup (test/e2e) makes a real
// one.
const backup = `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "PersistentVolume",
	"metadata": {"name": "lost"}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Mi"},
	"storageClassName": "none", "hostPath": {"path": "/srv/fast/lost"}}}]}
`

// The names of the volumes in operation.md.
const deleted, given = "pvc-d240bf88-248b-45ab-97cb-ab7296ebd262", "pvc-5e8fede4-05a7-442b-b6d0-6c859f816bf9"

// It fails when kubectl does not know a command, a flag (--typ=json), a kind or a field of a patch.
func otherPages(e *environment) {
	e.put("/named.yaml", named+fmt.Sprintf(volume, deleted)+fmt.Sprintf(volume, given)+grows)
	e.put("/volumes.json", backup)
	e.put("/agents.yaml", e.text("every-node.md", "Set up", "yaml"))
	e.sh("kubectl apply -f named.yaml")
	e.sh("kubectl wait --for=jsonpath='{.status.phase}'=Bound --timeout=60s pvc/grows")
	names := strings.NewReplacer("NAME", deleted, "pvc data", "pvc grows")
	for _, page := range others {
		blocks, err := e.pages.Blocks(page)
		e.Must(err, "the documentation")
		found := 0
		for _, b := range blocks {
			for line := range strings.Lines(b.Text) {
				ours := strings.HasPrefix(line, "kubectl hostpath ") // TestWhy and TestForgetNode run it
				if b.Language == "sh" && strings.HasPrefix(line, "kubectl ") && !ours {
					e.sh(names.Replace(line))
					found++
				}
			}
		}
		if found == 0 {
			e.Fatalf("%s has no command for kubectl", page)
		}
	}
	e.is("kubectl get pvc grows -o jsonpath='{.spec.resources.requests.storage}'", "200Mi")
	e.is("kubectl get pv "+deleted+" -o jsonpath='{.spec.persistentVolumeReclaimPolicy}'", "Delete")
	e.is("kubectl get pv "+given+" -o jsonpath='{.metadata.finalizers}' | grep -c external-provisioner || true", "0")
}
