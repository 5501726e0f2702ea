package packaging

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
)

// The fields of a volume that a daemon writes (plan.NewVolume), and those of its parts.
const (
	volumeFields = `['capacity', 'accessModes', 'claimRef', 'persistentVolumeReclaimPolicy', 'storageClassName',
		'volumeMode', 'nodeAffinity', 'mountOptions', 'hostPath', 'local', 'csi']`
	claimRefFields = `['kind', 'apiVersion', 'namespace', 'name', 'uid']`
	csiFields      = `['driver', 'volumeHandle', 'volumeAttributes']`
	// What a bind mount can have of its own: other options would be the filesystem's, or
	// mount(8)'s.
	bindOptions = `['ro', 'rw', 'noatime', 'nodiratime', 'relatime', 'strictatime', 'nosuid', 'nodev', 'noexec', 'nosymfollow']`
	// Annotations by which other provisioners know their own volumes, with the values that a daemon
	// writes (plan.mark).
	marks = `['hostPathProvisionerIdentity', 'torchbox.com/hostpath-provisioner-id', 'kubevirt.io/provisionOnNode',
		'kubeboost.github.com/hostpath-multihost-provisioner-identity', 'local.path.provisioner/selected-node']`
	markValues = `[variables.node, 'torchbox.com/hostpath', 'kubevirt.io/hostpath-provisioner',
		'kubeboost.github.com/hostpath-multihost-provisioner']`
	uid = `'^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'`
)

// rightIn is a condition: a volume's path is one element below a pool of a list. What is deeper is
// in a volume, where a tenant may have a link.
func rightIn(list string) string {
	return `variables.` + list + `.exists(p, variables.path.split('/').size() == p.split('/').size() + 1 &&
		variables.path.startsWith(p.endsWith('/*') ? p.substring(0, size(p) - 1) : p + '/'))`
}

// listed is a condition: a class is one for which volumes are made. One that is named after a
// provisioner is, as those of the manifests are.
func listed(class string) string {
	return strings.ReplaceAll(`variables.anyProvisioner && variables.classes.size() == 0 ||
		variables.classes.exists(c, c.endsWith('*') ? @.startsWith(c.substring(0, size(c) - 1)) : @ == c) ||
		variables.provisioners.map(p, p.lowerAscii().replace('/', '-').replace('_', '-'))
		.exists(p, @ == p || @.startsWith(p + '-'))`, "@", class)
}

// only is a condition: the object at an expression has these fields at most.
func only(object, fields string) string {
	return fmt.Sprintf("dyn(%s).all(k, k in %s)", object, fields)
}

// volumesPolicy: PersistentVolumes of this node, or of a pool that several nodes share, with a
// directory of a pool as their source, and no field that a daemon does not write. Of one that is
// there the daemon takes its finalizer off, raises the size, or deletes it.
var volumesPolicy = policy{
	name: "volumes", resource: "persistentvolumes", operations: []string{"CREATE", "UPDATE", "DELETE"},
	variables: []variable{
		{"spec", `dyn(variables.was.spec)`},
		{"scope", `string(variables.wasLabels[?'hostpath-provisioner/scope'].orValue('node'))`},
		{"at", `string(variables.wasAnnotations[?'hostpath-provisioner/path'].orValue(''))`},
		// A volume of kubevirt's CSI driver that was adopted as it is; nodes make none.
		{"adopted", `request.operation != 'CREATE' && variables.spec.?csi.driver.orValue('') == 'kubevirt.io.hostpath-provisioner' &&
			variables.at.endsWith('/' + variables.spec.csi.volumeHandle)`},
		{"path", `string(has(variables.spec.hostPath) ? variables.spec.hostPath.path : has(variables.spec.local) ? variables.spec.local.path :
			variables.adopted ? variables.at : variables.spec.?csi.volumeAttributes[?'path'].orValue(''))`},
		{"inNode", rightIn("paths")},
		{"inShared", rightIn("sharedPaths")},
		{"inEveryNode", rightIn("everyNodePaths")},
		{"provisioner", `string(variables.wasAnnotations[?'pv.kubernetes.io/provisioned-by'].orValue(''))`},
		{"own", `variables.scope != 'node' ? variables.nodeLabel == '' :
			variables.ownLabel || variables.nodeLabel != '' && variables.inShared && request.operation != 'CREATE'`},
	},
	rules: slices.Concat([]rule{
		{`variables.own`, "the volume is another node's, or no node's"},
		// kube-controller-manager itself deletes what its own plugins made.
		{`variables.provisioner != '' && !variables.provisioner.startsWith('kubernetes.io/') &&
			(variables.provisioner in variables.provisioners || variables.anyProvisioner)`,
			"the volume's provisioner is not in the policies' list"},
		// A handle is the name of a record, of which each volume has its own; a Secret is what
		// another driver would be given.
		{`has(variables.spec.hostPath) || has(variables.spec.local) ||
			has(variables.spec.csi) && variables.spec.csi.driver in variables.provisioners &&
			variables.spec.csi.volumeHandle == variables.was.metadata.name &&
			(variables.adopted || ` + only("variables.spec.csi", csiFields) + `)`,
			"the volume's source is no directory of a pool"},
		{`variables.scope == 'node' ? variables.inNode || variables.ownLabel && variables.inShared :
			variables.scope == 'shared' ? variables.inShared : variables.scope == 'every-node' && variables.inEveryNode`,
			"the volume's path is right in no pool that the policies list for its scope"},
		{`!variables.path.matches('(^|/)([.][.]?|[.]hostpath-provisioner)(/|$)') && !variables.path.contains('//') &&
			!variables.path.endsWith('/')`, "the volume's path is no volume's"},
	}, atCreate(newVolumeRules...), atUpdate(append(unchangedButIndex(claimindex.VolumeLabel),
		rule{`variables.wasFinalizers.all(f, f == 'external-provisioner.volume.kubernetes.io/finalizer' || f in variables.finalizers) &&
			variables.finalizers.all(f, f == 'external-provisioner.volume.kubernetes.io/finalizer' || f in variables.wasFinalizers)`,
			"no finalizer but the provisioner's goes or comes"},
		rule{sameBut("variables.now.spec", "variables.was.spec", "capacity"), "nothing but a volume's size changes"},
		rule{`!quantity(string(variables.now.spec.capacity['storage'])).isLessThan(quantity(string(variables.was.spec.capacity['storage'])))`,
			"a volume becomes no smaller"},
	)...)),
}

// newVolumeRules are about a volume that is made.
var newVolumeRules = []rule{
	{only("variables.spec", volumeFields) + " && " + only("variables.spec.capacity", "['storage']"),
		"the volume has a field that no daemon writes"},
	// Recycle is a pod that empties the path, on any node.
	{`variables.spec.persistentVolumeReclaimPolicy in ['Delete', 'Retain']`, "a volume is deleted or retained"},
	{`variables.spec.?volumeMode.orValue('Filesystem') == 'Filesystem'`, "a volume is no block device"},
	{`!has(variables.spec.hostPath) || variables.spec.hostPath.?type.orValue('') == 'Directory'`,
		"a hostPath volume has the type Directory"},
	{`!has(variables.spec.local) || ` + only("variables.spec.local", "['path']"), "a local volume has a path alone"},
	{`!has(variables.spec.csi) || ` + only("variables.spec.csi.volumeAttributes", "['pool', 'path']"),
		"a CSI volume has the attributes pool and path alone"},
	{`!has(variables.spec.mountOptions) || has(variables.spec.local) && variables.spec.mountOptions.all(o, o in ` + bindOptions + `)`,
		"the volume has a mount option that is not a bind mount's own"},
	{`variables.scope == 'node' ? dyn(variables.spec.?nodeAffinity.required.nodeSelectorTerms.orValue([])) ==
		dyn([{'matchExpressions': [{'key': dyn('kubernetes.io/hostname'), 'operator': dyn('In'), 'values': dyn([variables.hostname])}]}]) :
		!has(variables.spec.nodeAffinity)`,
		"the volume's affinity is not this node's: one whose hostname label is not its name is listed with it (manifests --hostname)"},
	{`has(variables.spec.claimRef) && ` + only("variables.spec.claimRef", claimRefFields) + ` &&
		variables.spec.claimRef.?kind.orValue('') == 'PersistentVolumeClaim' && variables.spec.claimRef.?uid.orValue('').matches(` + uid + `) &&
		variables.now.metadata.name == 'pvc-' + variables.spec.claimRef.uid`,
		"the volume's name is not that of its claim's volume"},
	{`variables.path.substring(variables.path.lastIndexOf('/')).contains(variables.now.metadata.name) &&
		!variables.path.matches('/[.][^/]*$')`, "the volume's directory has not the volume's name"},
	{listed(`variables.spec.?storageClassName.orValue('')`),
		"the volume's class is not in the policies' list, and not named after a provisioner (manifests --class)"},
	// The API server itself adds its own before this (plugin StorageObjectInUseProtection).
	{`'external-provisioner.volume.kubernetes.io/finalizer' in variables.finalizers && variables.finalizers.all(f, f in
		['external-provisioner.volume.kubernetes.io/finalizer', 'kubernetes.io/pv-protection'])`,
		"a volume has the provisioner's finalizer and no other"},
	{`variables.owners.size() == 0`, "a volume has no owner"},
	{`variables.annotations.all(k, k == 'pv.kubernetes.io/provisioned-by' ||
		k in ` + marks + ` && variables.annotations[k] in ` + markValues + `)`, "the volume has an annotation that no daemon writes"},
	{`variables.labels.all(k, !k.contains('kubernetes.io/') && !k.contains('k8s.io/'))`, "the volume has a label of Kubernetes"},
}
