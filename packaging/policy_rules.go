package packaging

import (
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
)

// claimsPolicy: this node's name on a claim that has no volume yet, or none; and the label of the
// claim index, which the API server itself writes with each change of a claim.
var claimsPolicy = policy{
	name: "claims", resource: "persistentvolumeclaims", operations: []string{"UPDATE"},
	rules: slices.Concat([]rule{
		{`variables.now.spec == variables.was.spec`, "a claim's spec stays as it is"},
		{`!has(variables.was.spec.volumeName) || variables.was.spec.volumeName == '' || variables.annotations == variables.wasAnnotations`, "the claim has a volume"},
		{`!('` + selectedNode + `' in variables.annotations) || variables.annotations['` + selectedNode + `'] == variables.node || variables.annotations == variables.wasAnnotations`, "the selected node is another one"},
		{`variables.finalizers == variables.wasFinalizers`, "finalizers stay as they are"},
	}, unchangedButIndex(claimindex.Label, selectedNode)),
}

// claimStatusPolicy: how far the expansion of a claim is. kube-controller-manager writes on a claim
// which provisioner is asked, unless the volume is there by then.
var claimStatusPolicy = policy{
	name: "claimstatus", resource: "persistentvolumeclaims/status", operations: []string{"UPDATE"},
	variables: []variable{
		{"asked", `string(variables.wasAnnotations[?'volume.kubernetes.io/storage-provisioner'].orValue(
			variables.wasAnnotations[?'volume.beta.kubernetes.io/storage-provisioner'].orValue('')))`},
		{"class", `string(variables.was.spec.?storageClassName.orValue(''))`},
		// What the claim requests, and had been given.
		{"sizes", `[string(variables.was.spec.?resources.requests[?'storage'].orValue('0')), string(variables.was.?status.capacity[?'storage'].orValue('0')),
			string(variables.was.?status.allocatedResources[?'storage'].orValue('0'))]`},
	},
	rules: slices.Concat([]rule{
		{`variables.sharedPaths.size() + variables.everyNodePaths.size() > 0 || !('` + selectedNode + `' in variables.wasAnnotations) || variables.wasAnnotations['` + selectedNode + `'] == variables.node`, "the claim's node is another one"},
		{`has(variables.was.spec.volumeName) && variables.was.spec.volumeName != ''`, "the claim has no volume"},
		{`variables.asked != '' ? variables.asked in variables.provisioners || variables.anyProvisioner : ` + listed("variables.class"),
			"the claim is another provisioner's"},
		{noMore("capacity") + " && " + noMore("allocatedResources"), "the claim requests less than that"},
		{sameBut("variables.now.status", "variables.was.status", "capacity", "allocatedResources", "allocatedResourceStatuses", "conditions"), "nothing but an expansion is written in a claim's status"},
		{`!('volume.kubernetes.io/storage-resizer' in variables.annotations) || variables.annotations['volume.kubernetes.io/storage-resizer'] in variables.provisioners || variables.anyProvisioner`, "the resizer is another program"},
		{`variables.finalizers == variables.wasFinalizers`, "finalizers stay as they are"},
	}, unchangedButIndex(claimindex.Label, "volume.kubernetes.io/storage-resizer")),
}

// noMore is a condition: a size in a claim's status is none that the claim does not request and had
// not.
func noMore(field string) string {
	return `variables.sizes.exists(s, !quantity(string(variables.now.?status.` + field + `[?'storage'].orValue('0'))).isGreaterThan(quantity(s)))`
}

// eventsPolicy: events of this node's daemon, and the count of those that daemons repeat.
var eventsPolicy = policy{
	name: "events", resource: "events", operations: []string{"CREATE", "UPDATE"},
	rules: slices.Concat([]rule{
		{`has(variables.was.source.component) && variables.was.source.component == 'hostpath-provisioner' && has(variables.was.reportingComponent) && variables.was.reportingComponent == 'hostpath-provisioner'`, "the event is another program's"},
		{`variables.was.involvedObject.kind in ['PersistentVolumeClaim', 'PersistentVolume', 'Node', 'VolumeSnapshot']`, "the event is about another kind of object"},
		// As long as a daemon makes one (words.MessageMax).
		{`size(variables.now.?message.orValue('')) <= 1024`, "the event's message is too long"},
	}, atCreate(
		rule{`has(variables.now.source.host) && variables.now.source.host == variables.node && has(variables.now.reportingInstance) && variables.now.reportingInstance == variables.node`, "the event is another node's"},
		rule{`variables.now.involvedObject.kind != 'Node' || variables.now.involvedObject.name == variables.node`, "the event is about another node"},
		rule{`variables.owners.size() == 0 && variables.finalizers.size() == 0`, "an event has neither owner nor finalizer"},
	), atUpdate(append(unchanged(),
		rule{`variables.finalizers == variables.wasFinalizers`, "finalizers stay as they are"},
		rule{sameBut("variables.now", "variables.was", "metadata", "count", "lastTimestamp", "message"), "nothing but its count, time and message of an event changes"},
		rule{`variables.now.?message.orValue('') == variables.was.?message.orValue('') || variables.was.?source.host.orValue('') == variables.node ||
			variables.was.?reason.orValue('') == 'NoNodeFits' || ` + words("now") + " == " + words("was"),
			"the words of another node's event stay as they are"},
	)...)),
}

// words are the texts of an event between numbers, of which a repeated event has the latest
// (words.Same).
func words(of string) string {
	return `variables.` + of + `.?message.orValue('').split(' ').filter(w, !w.matches('^[(]?[0-9]|^[KMGTPE]?i?B([^A-Za-z]|$)'))`
}

// leasesPolicy: the lease of a shared pool in this node's name, or given up; the node's own;
// tombstones of scope every-node.
var leasesPolicy = policy{
	name: "leases", group: "coordination.k8s.io", resource: "leases", own: true, operations: []string{"CREATE", "UPDATE", "DELETE"},
	variables: []variable{
		{"tombstone", `'hostpath-provisioner/tombstone' in variables.labels`},
		// As it is written: a daemon repairs a lease whose label another program changed. The name
		// is leadership.Name's.
		{"pool", `string(variables.labels[?'hostpath-provisioner/pool'].orValue(''))`},
		{"name", `string(variables.now.metadata.name)`},
		{"named", `variables.pool != '' && (variables.anyProvisioner ? variables.name.startsWith(variables.pool + '.') :
			variables.provisioners.map(p, p.lowerAscii().replace('/', '.')).exists(p, variables.name == variables.pool + '.' + p ||
			variables.name.startsWith(variables.pool + '.' + p.replace('_', '-') + '-')))`},
		// Of any pool, whatever its labels are: no tombstone takes such a name.
		{"ofPool", `variables.anyProvisioner ? variables.name.contains('.') :
			variables.provisioners.map(p, p.lowerAscii().replace('/', '.')).exists(p, variables.name.endsWith('.' + p) ||
			variables.name.contains('.' + p.replace('_', '-') + '-'))`},
		// The lease that says which host has the node's name (presence.Name).
		{"ofNode", `variables.name == 'hostpath-provisioner-node.' + variables.node`},
		{"ofAnyNode", `variables.name.startsWith('hostpath-provisioner-node.')`},
		{"holder", `has(variables.now.spec.holderIdentity) ? string(variables.now.spec.holderIdentity) : ''`},
		{"before", `has(variables.was.spec.holderIdentity) ? string(variables.was.spec.holderIdentity) : ''`},
	},
	rules: slices.Concat([]rule{
		{`variables.tombstone ? variables.everyNodePaths.size() > 0 : variables.ofNode ||
			!variables.ofAnyNode && variables.named && variables.sharedPaths.size() > 0`,
			"the lease is of no pool of scope shared or every-node that the policies list paths for, " +
				"and not this node's own"},
		{`!variables.tombstone || !variables.ofPool && !variables.ofAnyNode`,
			"the lease of a pool or node is no tombstone"},
		{`request.operation != 'DELETE' || variables.tombstone || variables.ofNode`,
			"the lease of a pool is not deleted"},
		{`request.operation != 'UPDATE' || !variables.tombstone`, "a tombstone stays as it is"},
		{`request.operation == 'DELETE' || variables.tombstone || variables.holder.startsWith(variables.node + '_') || variables.holder == '' && variables.before.startsWith(variables.node + '_')`,
			"the lease is taken in another node's name, or taken from it"},
		{`request.operation != 'CREATE' || !variables.tombstone || variables.holder == variables.node`, "the tombstone is in another node's name"},
		{`request.operation == 'DELETE' || variables.owners.size() == 0 && variables.finalizers.size() == 0`, "a lease has neither owner nor finalizer"},
		// The states of the node's daemons (presence.StateMax, mostStates).
		{`request.operation == 'DELETE' || variables.annotations.size() <= 8 &&
			variables.annotations.all(k, size(string(variables.annotations[k])) <= 4096)`,
			"a lease has at most 8 annotations of 4 KiB"},
	}),
}

// capacitiesPolicy: what classes can still get on this node, and the object for the nodes that
// publish nothing.
var capacitiesPolicy = policy{
	name: "capacities", group: "storage.k8s.io", resource: "csistoragecapacities", own: true, operations: []string{"CREATE", "UPDATE", "DELETE"},
	variables: []variable{
		{"driver", `'csi.storage.k8s.io/drivername' in variables.wasLabels ? string(variables.wasLabels['csi.storage.k8s.io/drivername']) : ''`},
		{"manager", `'csi.storage.k8s.io/managed-by' in variables.wasLabels ? string(variables.wasLabels['csi.storage.k8s.io/managed-by']) : ''`},
	},
	rules: slices.Concat([]rule{
		{`variables.manager == 'hostpath-provisioner' && variables.driver != '' && (variables.driver in variables.provisioners || variables.anyProvisioner)`, "the capacity is another program's"},
		{`variables.ownLabel || variables.nodeLabel == ''`, "the capacity is another node's"},
		// Which nodes it names cannot be judged: CEL reads no other object.
		{`request.operation == 'DELETE' || variables.nodeLabel != '' || has(object.capacity) && quantity(string(object.capacity)).compareTo(quantity('0')) == 0 && has(object.maximumVolumeSize) && ` +
			`quantity(string(object.maximumVolumeSize)).compareTo(quantity('9223372036854775807')) == 0`, "the capacity for nodes that publish nothing is no hint to wait"},
	}, atCreate(
		rule{`has(variables.now.nodeTopology) && has(variables.now.nodeTopology.matchExpressions) && variables.now.nodeTopology.matchExpressions.size() == 1 && variables.now.nodeTopology.matchExpressions[0].key == 'kubernetes.io/hostname' && ` +
			`variables.now.nodeTopology.matchExpressions[0].operator == 'In' && (variables.nodeLabel == '' || variables.now.nodeTopology.matchExpressions[0].values == [variables.hostname])`, "the capacity is for another node"},
		rule{`variables.owners.all(o, variables.nodeLabel == '' ? o.kind == 'CSIDriver' && o.name == variables.driver : o.kind == 'Node' && o.name == variables.node)`, "the capacity has another owner"},
		// The scheduler compares the capacities of a class with its claims, whichever driver the
		// class has.
		rule{listed("string(variables.now.storageClassName)"), "the capacity's class is not in the policies' list, and not named after a provisioner (manifests --class)"},
		rule{`variables.finalizers.size() == 0`, "a capacity has no finalizer"},
	), atUpdate(append(unchanged("hostpath-provisioner/closed"),
		rule{`variables.finalizers == variables.wasFinalizers`, "finalizers stay as they are"},
	)...)),
}

// driversPolicy: whether the scheduler compares capacities.
var driversPolicy = policy{
	name: "drivers", group: "storage.k8s.io", resource: "csidrivers", operations: []string{"UPDATE"},
	rules: slices.Concat([]rule{
		{`['app.kubernetes.io/part-of', 'app.kubernetes.io/managed-by'].exists(k, variables.wasLabels[?k].orValue('') == 'hostpath-provisioner')`,
			"the CSIDriver is another program's"},
		{sameBut("variables.now.spec", "variables.was.spec", "storageCapacity"), "nothing but storageCapacity of a CSIDriver changes"},
		{`variables.finalizers == variables.wasFinalizers`, "finalizers stay as they are"},
	}, unchanged("hostpath-provisioner/reviewed", "hostpath-provisioner/publishing")),
}

// ownDriver is the rule that a content is of a driver in the policies' list.
var ownDriver = rule{`variables.was.spec.driver in variables.provisioners || variables.anyProvisioner`, "the snapshot is of another driver"}

// takenContent is the rule that a content is this node's.
var takenContent = rule{`'hostpath-provisioner/node' in variables.wasAnnotations && variables.wasAnnotations['hostpath-provisioner/node'] == variables.node`, "the snapshot is not this node's"}

// contentsPolicy: this node's name on a content that no node has taken, and the finalizer of the
// driver's side off one of its own that is being deleted. Which node has the data no field of a
// content says at first: only records do, which the API server cannot read.
var contentsPolicy = policy{
	name: "snapshotcontents", group: "snapshot.storage.k8s.io", resource: "volumesnapshotcontents", operations: []string{"UPDATE"},
	rules: slices.Concat([]rule{
		ownDriver,
		{`variables.now.spec == variables.was.spec`, "a content's spec stays as it is"},
		{`variables.annotations == variables.wasAnnotations || !('hostpath-provisioner/node' in variables.wasAnnotations) && 'hostpath-provisioner/node' in variables.annotations && variables.annotations['hostpath-provisioner/node'] == variables.node`,
			"a content is taken for the daemon's own node, if no other has taken it"},
		{`variables.finalizers == variables.wasFinalizers || has(variables.was.metadata.deletionTimestamp) && ` + takenContent.condition, "the content is not being deleted, or not this node's"},
		{`variables.wasFinalizers.all(f, f == 'snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection' || f in variables.finalizers) && variables.finalizers.all(f, f in variables.wasFinalizers)`, "no finalizer but the driver's goes, and none comes"},
	}, unchanged("hostpath-provisioner/node")),
}

// contentStatusPolicy: that a snapshot of this node is ready, under its own handle, or why there is
// none. What was said of a snapshot that is ready goes only with it.
var contentStatusPolicy = policy{
	name: "snapshotstatus", group: "snapshot.storage.k8s.io", resource: "volumesnapshotcontents/status", operations: []string{"UPDATE"},
	variables: []variable{
		{"handle", `has(variables.now.status) && has(variables.now.status.snapshotHandle) ? string(variables.now.status.snapshotHandle) : ''`},
		{"wasReady", `has(variables.was.status) && has(variables.was.status.readyToUse) && variables.was.status.readyToUse == true &&
			variables.was.status.?snapshotHandle.orValue('') != ''`},
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
	name: "tokens", resource: "serviceaccounts/token", own: true, names: []string{"hostpath-provisioner"}, operations: []string{"CREATE"},
	rules: []rule{
		{`has(object.spec.boundObjectRef) && dyn(object.spec.boundObjectRef) != null && object.spec.boundObjectRef.kind == 'Node' && object.spec.boundObjectRef.name == variables.node`, "the token is not bound to this node"},
		// Where the request has none the API server has put in its own before this.
		{`variables.audiences.size() == 0 || has(object.spec.audiences) && object.spec.audiences.all(a, a in variables.audiences)`,
			"the token's audience is not in the policies' list"},
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
