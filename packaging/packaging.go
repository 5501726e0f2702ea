// Package packaging holds the files that are installed beside the program or printed by it.
//
// It does not install anything and contacts nothing.
package packaging

import (
	"cmp"
	_ "embed"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
)

// Config is the example of /etc/hostpath-provisioner/config.toml, with every key explained.
//
//go:embed config.toml
var Config string

// Alerts are the rules for Prometheus.
//
//go:embed prometheus/rules.yaml
var Alerts string

// Dashboard is the one for Grafana, which packaging/grafana/generate writes.
//
//go:embed grafana/hostpath-provisioner.json
var Dashboard string

//go:embed manifests.yaml
var manifests string

// defaultNamespace is the one that is made for the daemons if no other one is asked for.
const defaultNamespace = "hostpath-provisioner"

// Options are what differs between clusters.
type Options struct {
	Namespace   string // of the ServiceAccount; a DNS label, which the caller has checked
	Provisioner string // of the StorageClasses
	// ClassPrefix begins the names of the StorageClasses: the prefix itself, and the prefix with
	// "-retain". It is a DNS subdomain, which the caller has checked; ClassPrefix returns the
	// default.
	ClassPrefix string
	NoClasses   bool // print no StorageClasses
	// NoPods gives the daemons no right to read pods: the claims of a pod get their volumes each for
	// itself then, and pods that name their node get none.
	NoPods bool
	// ClaimIndex prints the policies by which the API server labels claims, and volumes that are
	// kept for them (daemon/kube/claimindex). A server before Kubernetes
	// 1.36 does not have its kind.
	ClaimIndex bool
	// InlineVolumes lets pods have volumes that are written in them. The API server refuses to
	// change that of a CSIDriver.
	InlineVolumes bool
	// Delete prints what is to be removed in place of what is to be applied: the same objects, but
	// of the namespaces only the one of the default name, since another one may have what is not
	// ours.
	Delete bool
	// TokenSecret asks for a token that does not expire, kept in a Secret. Without it each node
	// gets one that is bound to its Node object and ends with it, or after a year.
	TokenSecret bool
	// Confine has policies printed that confine each node's identity. A token that is kept in a
	// Secret is bound to no node: it could do nothing then.
	Confine Confinement
}

// partOf is on all objects of the manifests but a namespace that may have what is not ours: by it
// they are found and removed together.
const partOf = "  labels: {app.kubernetes.io/part-of: hostpath-provisioner}\n"

const boundToken = `#   TOKEN=$(kubectl create token hostpath-provisioner -n NAMESPACE --duration=8760h \
#     --bound-object-kind=Node --bound-object-name="$NODE")`

const secretToken = `#   TOKEN=$(kubectl get secret hostpath-provisioner -n NAMESPACE -o jsonpath='{.data.token}' | base64 -d)`

const deletion = `# What a cluster administrator removes when no node runs the daemon any more:
#
#   hostpath-provisioner manifests --delete | kubectl delete --ignore-not-found -f -
#
# The CSIDriver goes first: without it the scheduler compares nothing, whatever is still published. The namespace
# hostpath-provisioner goes with all that is in it. Another namespace stays, and what was published there is removed by
#
#   kubectl delete csistoragecapacities -n NAMESPACE -l csi.storage.k8s.io/managed-by=hostpath-provisioner,csi.storage.k8s.io/drivername=PROVISIONER
#
# Where --claim-index was applied, give it here, too: an API server before 1.36 lacks its kind.
#
# Volumes and their data stay. A PersistentVolume that is deleted later keeps a finalizer that no daemon takes off:
# see uninstall.md, "A PersistentVolume that is left".
`

const namespaceObject = `---
apiVersion: v1
kind: Namespace
metadata:
  name: NAMESPACE
`

// parametersObject is what policies of earlier versions read.
const parametersObject = `---
apiVersion: v1
kind: ConfigMap
metadata:
  name: hostpath-provisioner-confinement
  namespace: NAMESPACE
`

const secretObject = `---
# The token controller writes the token into it.
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata:
  name: hostpath-provisioner
  namespace: NAMESPACE
` + partOf + `  annotations:
    kubernetes.io/service-account.name: hostpath-provisioner`

const classObjects = `---
# The node is chosen with the pod, and the volume is made there, in the default pool.
# Parameters that a class may have: pool (a pool's name) or pvDir (its path), source, mode, onDelete, cephFSQuota.
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: CLASS
` + partOf + `provisioner: PROVISIONER
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
allowVolumeExpansion: true
---
# The same, but data outlives its claim until the volume is removed.
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: CLASS-retain
` + partOf + `provisioner: PROVISIONER
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Retain
allowVolumeExpansion: true`

const driverObject = `---
# kube-scheduler looks here whether the provisioner publishes what its classes can still get on each node: a daemon that has
# published sets storageCapacity. Of volumes with source csi it tells Kubernetes that nothing has to be attached; of others,
# nothing. It comes first, so that "kubectl delete -f -" removes it before the rest:
# without objects to compare, and with storageCapacity, no pod of these classes would be scheduled.
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata:
  name: PROVISIONER
  labels:
    app.kubernetes.io/managed-by: hostpath-provisioner
    app.kubernetes.io/part-of: hostpath-provisioner
spec:
  attachRequired: false
  podInfoOnMount: true
  fsGroupPolicy: File
  seLinuxMount: false`

// inlineModes follow driverSpec where pods may have inline volumes. Kubernetes refuses a change of
// them.
const (
	driverSpec  = "\nspec:\n"
	inlineModes = "  volumeLifecycleModes: [Persistent, Ephemeral]\n"
)

// ClassPrefix returns the default of Options.ClassPrefix, which carries the provisioner's name: two
// provisioners of a cluster never share a class, whose provisioner field is immutable.
func ClassPrefix(provisioner string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == '_' {
			return '-' // legal in a qualified name, and not in the name of an object
		}
		return r
	}, strings.ToLower(provisioner))
}

// Manifests is the YAML that a cluster administrator applies, with instructions as comments.
func Manifests(o Options) string {
	token, secret, namespace, classes, driver := boundToken, "", namespaceObject, classObjects, driverObject
	if !possibleDriver(o.Provisioner) {
		driver = ""
	}
	if o.InlineVolumes {
		driver = strings.Replace(driver, driverSpec, driverSpec+inlineModes, 1)
	}
	if o.TokenSecret {
		token, secret = secretToken, secretObject
	}
	if o.Namespace == "default" || strings.HasPrefix(o.Namespace, "kube-") || o.Delete && o.Namespace != defaultNamespace {
		namespace = "" // the cluster's own, there already; or one that stays
	}
	if namespace != "" && o.Namespace == defaultNamespace {
		namespace += partOf
	}
	if o.NoClasses {
		classes = ""
	}
	index := ""
	if o.ClaimIndex {
		index = claimindex.VolumesManifest + claimindex.Manifest // daemons that see the second look for the first
	}
	text := manifests
	if o.Delete {
		text = deletion + text[strings.Index(text, "@DRIVER@"):]
		text = strings.Replace(text, "@NAMESPACE_OBJECT@\n", "", 1) + parametersObject + "@NAMESPACE_OBJECT@\n"
	}
	text = strings.NewReplacer("@TOKEN@", token, "@DRIVER@\n", line(driver), "@NAMESPACE_OBJECT@\n", line(namespace), "@SECRET_OBJECT@\n", line(secret),
		"@ROLES@\n", index+o.policyLines()+o.roleLines(), "@CLASSES@\n", line(classes)).Replace(text)
	return o.fill(text)
}

// possibleDriver reports whether a CSIDriver can have the provisioner's name.
func possibleDriver(provisioner string) bool {
	return len(provisioner) <= 63 && len(validation.IsDNS1123Subdomain(provisioner)) == 0
}

// fill puts the names in their places.
func (o Options) fill(text string) string {
	names := []string{"NAMESPACE", o.Namespace, "PROVISIONER", o.Provisioner, "CLASS", cmp.Or(o.ClassPrefix, ClassPrefix(o.Provisioner))}
	return strings.NewReplacer(append(names, o.literals()...)...).Replace(text)
}

// roleLines are the roles and their bindings. Objects of the whole cluster carry the namespace in
// their names, and where it matters the provisioner, so that a second installation, or another
// program of this name, has objects of its own.
func (o Options) roleLines() (lines string) {
	for _, r := range o.roles() {
		lines += line(r.yaml(o))
	}
	return lines
}

func line(block string) string {
	if block == "" || strings.HasSuffix(block, "\n") {
		return block
	}
	return block + "\n"
}
