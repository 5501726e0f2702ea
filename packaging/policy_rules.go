package packaging

import (
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/claimindex"
)

// volumesPolicy: PersistentVolumes of this node, or of a pool that several nodes share, with a directory of a pool as their
// source. Of one that is there the daemon takes its finalizer off, raises the size, or deletes it.
var volumesPolicy = policy{
	name: "volumes", resource: "persistentvolumes", operations: []string{"CREATE", "UPDATE", "DELETE"},
	variables: []variable{
		{"scope", `'hostpath-provisioner/scope' in variables.wasLabels ? string(variables.wasLabels['hostpath-provisioner/scope']) : 'node'`},
		// A volume of kubevirt's CSI driver that was adopted as it is; nodes make none.
		{"adopted", `has(variables.was.spec.csi) && variables.was.spec.csi.driver == 'kubevirt.io.hostpath-provisioner' && request.operation != 'CREATE' && ` +
			`'hostpath-provisioner/path' in variables.wasAnnotations && variables.wasAnnotations['hostpath-provisioner/path'].endsWith('/' + variables.was.spec.csi.volumeHandle)`},
		{"path", `has(variables.was.spec.hostPath) ? string(variables.was.spec.hostPath.path) : has(variables.was.spec.local) ? string(variables.was.spec.local.path) : ` +
			`variables.adopted ? string(variables.wasAnnotations['hostpath-provisioner/path']) : ` +
			`has(variables.was.spec.csi) && has(variables.was.spec.csi.volumeAttributes) && 'path' in variables.was.spec.csi.volumeAttributes ? string(variables.was.spec.csi.volumeAttributes['path']) : ''`},
		{"inNode", `variables.paths.exists(p, variables.path.startsWith(p + '/'))`},
		{"inShared", `variables.sharedPaths.exists(p, variables.path.startsWith(p + '/'))`},
		{"inEveryNode", `variables.everyNodePaths.exists(p, variables.path.startsWith(p + '/'))`},
		{"provisioner", `'pv.kubernetes.io/provisioned-by' in variables.wasAnnotations ? string(variables.wasAnnotations['pv.kubernetes.io/provisioned-by']) : ''`},
		{"own", `variables.scope == 'node' ? variables.ownLabel || variables.nodeLabel != '' && variables.inShared && request.operation != 'CREATE' : variables.nodeLabel == ''`},
	},
	rules: slices.Concat([]rule{
		{`variables.own`, "the volume is another node's, or no node's"},
		{`variables.provisioner != '' && (variables.provisioner in variables.provisioners || '*' in variables.provisioners)`, "the volume's provisioner is not in the list of the ConfigMap hostpath-provisioner-confinement"},
		// A handle is the name of a record, of which each volume has its own; a Secret is what another driver would be given.
		{`has(variables.was.spec.hostPath) || has(variables.was.spec.local) || has(variables.was.spec.csi) && variables.was.spec.csi.driver in variables.provisioners && ` +
			`variables.was.spec.csi.volumeHandle == variables.was.metadata.name && (variables.adopted || dyn(variables.was.spec.csi).all(k, k in ['driver', 'volumeHandle', 'volumeAttributes']))`, "the volume's source is no directory of a pool"},
		{`variables.scope == 'node' ? variables.inNode || variables.ownLabel && variables.inShared : variables.scope == 'shared' ? variables.inShared : variables.scope == 'every-node' && variables.inEveryNode`,
			"the volume's path is under none of the paths for its scope in the ConfigMap hostpath-provisioner-confinement"},
		{`!variables.path.matches('(^|/)([.][.]?|[.]hostpath-provisioner)(/|$)') && !variables.path.contains('//')`, "the volume's path is no volume's"},
	}, atCreate(
		rule{`!has(variables.now.spec.hostPath) || has(variables.now.spec.hostPath.type) && variables.now.spec.hostPath.type == 'Directory'`, "a hostPath volume has the type Directory"},
		rule{`variables.scope != 'node' || has(variables.now.spec.nodeAffinity) && has(variables.now.spec.nodeAffinity.required) && variables.now.spec.nodeAffinity.required.nodeSelectorTerms.size() == 1 && ` +
			`has(variables.now.spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions) && variables.now.spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions.exists(e, e.key == 'kubernetes.io/hostname' && e.operator == 'In' && e.values == [variables.hostname])`,
			"the volume's affinity is not this node's: where its hostname label is not its name, the ConfigMap hostpath-provisioner-confinement needs the key hostname.NODE"},
		rule{`has(variables.now.spec.claimRef) && has(variables.now.spec.claimRef.uid) && variables.now.metadata.name == 'pvc-' + variables.now.spec.claimRef.uid`, "the volume's name is not that of its claim's volume"},
		rule{`has(variables.now.spec.storageClassName) && (!('classes' in variables.data) || variables.now.spec.storageClassName in string(variables.data['classes']).split('\n').map(c, c.trim()))`, "the volume's class is not in the list of the ConfigMap hostpath-provisioner-confinement"},
		// The API server itself adds its own before this (plugin StorageObjectInUseProtection).
		rule{`'external-provisioner.volume.kubernetes.io/finalizer' in variables.finalizers && variables.finalizers.all(f, f in ['external-provisioner.volume.kubernetes.io/finalizer', 'kubernetes.io/pv-protection'])`, "a volume has the provisioner's finalizer and no other"},
		rule{`variables.owners.size() == 0`, "a volume has no owner"},
	), atUpdate(append(unchangedButIndex(claimindex.VolumeLabel),
		rule{`variables.wasFinalizers.all(f, f == 'external-provisioner.volume.kubernetes.io/finalizer' || f in variables.finalizers) && variables.finalizers.all(f, f in variables.wasFinalizers)`, "no finalizer but the provisioner's goes, and none comes"},
		rule{sameBut("variables.now.spec", "variables.was.spec", "capacity"), "nothing but a volume's size changes"},
		rule{`!quantity(string(variables.now.spec.capacity['storage'])).isLessThan(quantity(string(variables.was.spec.capacity['storage'])))`, "a volume becomes no smaller"},
	)...)),
}

// claimsPolicy: this node's name on a claim that has no volume yet, or none; and the label of the claim index, which the API server itself
// writes with each change of a claim.
var claimsPolicy = policy{
	name: "claims", resource: "persistentvolumeclaims", operations: []string{"CREATE", "UPDATE", "DELETE"},
	rules: slices.Concat([]rule{
		{`request.operation == 'UPDATE'`, "claims are only changed"},
		{`variables.now.spec == variables.was.spec`, "a claim's spec stays as it is"},
		{`!has(variables.was.spec.volumeName) || variables.was.spec.volumeName == '' || variables.annotations == variables.wasAnnotations`, "the claim has a volume"},
		{`!('` + selectedNode + `' in variables.annotations) || variables.annotations['` + selectedNode + `'] == variables.node || variables.annotations == variables.wasAnnotations`, "the selected node is another one"},
		{`variables.finalizers == variables.wasFinalizers`, "finalizers stay as they are"},
	}, unchangedButIndex(claimindex.Label, selectedNode)),
}

// claimStatusPolicy: how far the expansion of a claim is.
var claimStatusPolicy = policy{
	name: "claimstatus", resource: "persistentvolumeclaims/status", operations: []string{"UPDATE"},
	rules: slices.Concat([]rule{
		{`variables.sharedPaths.size() + variables.everyNodePaths.size() > 0 || !('` + selectedNode + `' in variables.wasAnnotations) || variables.wasAnnotations['` + selectedNode + `'] == variables.node`, "the claim's node is another one"},
		{`has(variables.was.spec.volumeName) && variables.was.spec.volumeName != ''`, "the claim has no volume"},
		{sameBut("variables.now.status", "variables.was.status", "capacity", "allocatedResources", "allocatedResourceStatuses", "conditions"), "nothing but an expansion is written in a claim's status"},
		{`!('volume.kubernetes.io/storage-resizer' in variables.annotations) || variables.annotations['volume.kubernetes.io/storage-resizer'] in variables.provisioners || '*' in variables.provisioners`, "the resizer is another program"},
		{`variables.finalizers == variables.wasFinalizers`, "finalizers stay as they are"},
	}, unchangedButIndex(claimindex.Label, "volume.kubernetes.io/storage-resizer")),
}

// eventsPolicy: events of this node's daemon, and the count of those that daemons repeat.
var eventsPolicy = policy{
	name: "events", resource: "events", operations: []string{"CREATE", "UPDATE", "DELETE"},
	rules: slices.Concat([]rule{
		{`request.operation != 'DELETE'`, "events are not deleted"},
		{`has(variables.was.source.component) && variables.was.source.component == 'hostpath-provisioner' && has(variables.was.reportingComponent) && variables.was.reportingComponent == 'hostpath-provisioner'`, "the event is another program's"},
		{`variables.was.involvedObject.kind in ['PersistentVolumeClaim', 'PersistentVolume', 'Pod', 'Node', 'VolumeSnapshot']`, "the event is about another kind of object"},
	}, atCreate(
		rule{`has(variables.now.source.host) && variables.now.source.host == variables.node && has(variables.now.reportingInstance) && variables.now.reportingInstance == variables.node`, "the event is another node's"},
		rule{`variables.now.involvedObject.kind != 'Node' || variables.now.involvedObject.name == variables.node`, "the event is about another node"},
		rule{`variables.owners.size() == 0 && variables.finalizers.size() == 0`, "an event has neither owner nor finalizer"},
	), atUpdate(append(unchanged(),
		rule{`variables.finalizers == variables.wasFinalizers`, "finalizers stay as they are"},
		rule{sameBut("variables.now", "variables.was", "metadata", "count", "lastTimestamp", "message"), "nothing but its count, time and message of an event changes"},
	)...)),
}

// leasesPolicy: the lease of a shared pool in this node's name, or given up; tombstones of scope every-node.
var leasesPolicy = policy{
	name: "leases", group: "coordination.k8s.io", resource: "leases", operations: []string{"CREATE", "UPDATE", "DELETE"},
	variables: []variable{
		{"tombstone", `'hostpath-provisioner/tombstone' in variables.wasLabels`},
		// As it is written: a daemon repairs a lease whose label another program changed. The name is leadership.Name's.
		{"pool", `'hostpath-provisioner/pool' in variables.labels ? string(variables.labels['hostpath-provisioner/pool']) : ''`},
		{"named", `variables.pool != '' && (variables.provisioners.map(p, p.lowerAscii().replace('/', '.')).exists(p, p != '' && (variables.now.metadata.name == variables.pool + '.' + p || variables.now.metadata.name.startsWith(variables.pool + '.' + p.replace('_', '-') + '-'))) || '*' in variables.provisioners && variables.now.metadata.name.startsWith(variables.pool + '.'))`},
		{"holder", `has(variables.now.spec.holderIdentity) ? string(variables.now.spec.holderIdentity) : ''`},
		{"before", `has(variables.was.spec.holderIdentity) ? string(variables.was.spec.holderIdentity) : ''`},
	},
	rules: slices.Concat([]rule{
		{`variables.tombstone ? variables.everyNodePaths.size() > 0 : variables.named && variables.sharedPaths.size() > 0`,
			"the lease is of no pool of scope shared or every-node that the ConfigMap hostpath-provisioner-confinement has paths for"},
		{`request.operation != 'DELETE' || variables.tombstone`, "the lease of a pool is not deleted"},
		{`request.operation != 'UPDATE' || !variables.tombstone`, "a tombstone stays as it is"},
		{`request.operation == 'DELETE' || variables.tombstone || variables.holder.startsWith(variables.node + '_') || variables.holder == '' && variables.before.startsWith(variables.node + '_')`,
			"the lease is taken in another node's name, or taken from it"},
		{`request.operation != 'CREATE' || !variables.tombstone || variables.holder == variables.node`, "the tombstone is in another node's name"},
		{`request.operation == 'DELETE' || variables.owners.size() == 0 && variables.finalizers.size() == 0`, "a lease has neither owner nor finalizer"},
	}),
}

// capacitiesPolicy: what classes can still get on this node, and the object for the nodes that publish nothing.
var capacitiesPolicy = policy{
	name: "capacities", group: "storage.k8s.io", resource: "csistoragecapacities", operations: []string{"CREATE", "UPDATE", "DELETE"},
	variables: []variable{
		{"driver", `'csi.storage.k8s.io/drivername' in variables.wasLabels ? string(variables.wasLabels['csi.storage.k8s.io/drivername']) : ''`},
		{"manager", `'csi.storage.k8s.io/managed-by' in variables.wasLabels ? string(variables.wasLabels['csi.storage.k8s.io/managed-by']) : ''`},
	},
	rules: slices.Concat([]rule{
		{`variables.manager == 'hostpath-provisioner' && variables.driver != '' && (variables.driver in variables.provisioners || '*' in variables.provisioners)`, "the capacity is another program's"},
		{`variables.ownLabel || variables.nodeLabel == ''`, "the capacity is another node's"},
		// Which nodes it names cannot be judged: CEL reads no other object.
		{`request.operation == 'DELETE' || variables.nodeLabel != '' || has(object.capacity) && quantity(string(object.capacity)).compareTo(quantity('0')) == 0 && has(object.maximumVolumeSize) && ` +
			`quantity(string(object.maximumVolumeSize)).compareTo(quantity('9223372036854775807')) == 0`, "the capacity for nodes that publish nothing is no hint to wait"},
	}, atCreate(
		rule{`has(variables.now.nodeTopology) && has(variables.now.nodeTopology.matchExpressions) && variables.now.nodeTopology.matchExpressions.size() == 1 && variables.now.nodeTopology.matchExpressions[0].key == 'kubernetes.io/hostname' && ` +
			`variables.now.nodeTopology.matchExpressions[0].operator == 'In' && (variables.nodeLabel == '' || variables.now.nodeTopology.matchExpressions[0].values == [variables.hostname])`, "the capacity is for another node"},
		rule{`variables.owners.all(o, variables.nodeLabel == '' ? o.kind == 'CSIDriver' && o.name == variables.driver : o.kind == 'Node' && o.name == variables.node)`, "the capacity has another owner"},
		rule{`variables.finalizers.size() == 0`, "a capacity has no finalizer"},
	), atUpdate(append(unchanged("hostpath-provisioner/closed"),
		rule{`variables.finalizers == variables.wasFinalizers`, "finalizers stay as they are"},
	)...)),
}

// driversPolicy: whether the scheduler compares capacities.
var driversPolicy = policy{
	name: "drivers", group: "storage.k8s.io", resource: "csidrivers", operations: []string{"CREATE", "UPDATE", "DELETE"},
	rules: slices.Concat([]rule{
		{`request.operation == 'UPDATE'`, "a CSIDriver is only changed"},
		{`'app.kubernetes.io/managed-by' in variables.wasLabels && variables.wasLabels['app.kubernetes.io/managed-by'] == 'hostpath-provisioner'`, "the CSIDriver is another program's"},
		{sameBut("variables.now.spec", "variables.was.spec", "storageCapacity"), "nothing but storageCapacity of a CSIDriver changes"},
		{`variables.finalizers == variables.wasFinalizers`, "finalizers stay as they are"},
	}, unchanged("hostpath-provisioner/reviewed", "hostpath-provisioner/publishing")),
}

// ownDriver is the rule that a content is of a driver in the list of the ConfigMap.
var ownDriver = rule{`variables.was.spec.driver in variables.provisioners || '*' in variables.provisioners`, "the snapshot is of another driver"}

// takenContent is the rule that a content is this node's.
var takenContent = rule{`'hostpath-provisioner/node' in variables.wasAnnotations && variables.wasAnnotations['hostpath-provisioner/node'] == variables.node`, "the snapshot is not this node's"}

// contentsPolicy: this node's name on a content that no node has taken, and the finalizer of the driver's side off one of its own that
// is being deleted. Which node has the data no field of a content says at first: only records do, which the API server cannot read.
var contentsPolicy = policy{
	name: "snapshotcontents", group: "snapshot.storage.k8s.io", resource: "volumesnapshotcontents", operations: []string{"CREATE", "UPDATE", "DELETE"},
	rules: slices.Concat([]rule{
		{`request.operation == 'UPDATE'`, "a content is only changed"},
		ownDriver,
		{`variables.now.spec == variables.was.spec`, "a content's spec stays as it is"},
		{`variables.annotations == variables.wasAnnotations || !('hostpath-provisioner/node' in variables.wasAnnotations) && 'hostpath-provisioner/node' in variables.annotations && variables.annotations['hostpath-provisioner/node'] == variables.node`,
			"a content is taken for the daemon's own node, if no other has taken it"},
		{`variables.finalizers == variables.wasFinalizers || has(variables.was.metadata.deletionTimestamp) && ` + takenContent.condition, "the content is not being deleted, or not this node's"},
		{`variables.wasFinalizers.all(f, f == 'snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection' || f in variables.finalizers) && variables.finalizers.all(f, f in variables.wasFinalizers)`, "no finalizer but the driver's goes, and none comes"},
	}, unchanged("hostpath-provisioner/node")),
}

// contentStatusPolicy: that a snapshot of this node is ready, under its own handle, or why there is none. What was said of a snapshot that is ready
// goes only with it.
var contentStatusPolicy = policy{
	name: "snapshotstatus", group: "snapshot.storage.k8s.io", resource: "volumesnapshotcontents/status", operations: []string{"UPDATE"},
	variables: []variable{
		{"handle", `has(variables.now.status) && has(variables.now.status.snapshotHandle) ? string(variables.now.status.snapshotHandle) : ''`},
		{"wasReady", `has(variables.was.status) && has(variables.was.status.readyToUse) && variables.was.status.readyToUse == true`},
		{"asked", `has(variables.was.spec.source.snapshotHandle) ? string(variables.was.spec.source.snapshotHandle) : has(variables.was.spec.volumeSnapshotRef.uid) ? 'snapshot-' + string(variables.was.spec.volumeSnapshotRef.uid) : ''`},
	},
	rules: slices.Concat([]rule{
		ownDriver, takenContent,
		{`variables.handle == '' || variables.handle == variables.asked`, "the handle is another snapshot's"},
		{`!variables.wasReady || has(variables.was.metadata.deletionTimestamp)`, "the snapshot is ready already"},
		{`variables.finalizers == variables.wasFinalizers`, "finalizers stay as they are"},
	}, unchanged()),
}

// tokensPolicy: the next token of the same identity on the same node.
var tokensPolicy = policy{
	name: "tokens", resource: "serviceaccounts/token", operations: []string{"CREATE"},
	rules: []rule{
		{`request.name == 'hostpath-provisioner' && request.namespace == 'NAMESPACE'`, "the token is another identity's"},
		{`has(object.spec.boundObjectRef) && dyn(object.spec.boundObjectRef) != null && object.spec.boundObjectRef.kind == 'Node' && object.spec.boundObjectRef.name == variables.node`, "the token is not bound to this node"},
		// Where the request has none the API server has put in its own before this.
		{`!('audiences' in variables.data) || has(object.spec.audiences) && object.spec.audiences.all(a, a in string(variables.data['audiences']).split('\n').map(l, l.trim()))`,
			"the token's audience is not in the list of the ConfigMap hostpath-provisioner-confinement"},
	},
}

// atCreate are rules for objects that are created.
func atCreate(all ...rule) []rule { return during("CREATE", all) }

// atUpdate are rules for objects that are changed.
func atUpdate(all ...rule) []rule { return during("UPDATE", all) }

func during(operation string, all []rule) (some []rule) {
	for _, r := range all {
		some = append(some, rule{"request.operation != '" + operation + "' || (" + r.condition + ")", r.message})
	}
	return some
}
