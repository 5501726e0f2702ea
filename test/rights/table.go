package main

// row is a right of the daemons, and the test that turns red without it.
type row struct {
	right   string // a verb and a resource, as the audit log has them
	where   string // the test's package
	test    string
	breaks  string
	setting string // one more variable of the test's environment, or ""
}

// Settings of rows.
const (
	noWatchList = "HOSTPATH_APISERVER_FLAG=--feature-gates=WatchList=false" // as servers before Kubernetes 1.32 are
)

// table has a row for each right that the manifests give.
var table = []row{
	{"get persistentvolumeclaims", "e2e", "TestDelete", "a volume whose claim was deleted stays, because the claim may be there", ""},
	{"list persistentvolumeclaims", "e2e", "TestWaitForFirstConsumer", "the daemon does not become ready", ""},
	{"watch persistentvolumeclaims", "e2e", "TestStatusAndMetrics", "the daemon does not become ready: it reads all claims again and again", ""},
	{"patch persistentvolumeclaims", "e2e", "TestImmediateGoesToTheRoomierNode", "no node takes a claim that names none", ""},
	{"patch persistentvolumeclaims/status", "e2e", "TestExpand", "no claim becomes larger", ""},
	{"get persistentvolumes", "e2e", "TestDelete", "no volume is removed", ""},
	{"list persistentvolumes", "e2e", "TestDelete", "the daemon does not become ready", noWatchList},
	{"watch persistentvolumes", "e2e", "TestDelete", "a released volume is not seen", ""},
	{"create persistentvolumes", "e2e", "TestWaitForFirstConsumer", "no claim is bound", ""},
	{"patch persistentvolumes", "e2e", "TestDelete", "the finalizer of a removed volume stays", ""},
	{"delete persistentvolumes", "e2e", "TestDelete", "the object of a removed volume stays", ""},
	{"list pods", "e2e", "TestClaimsOfAPod", "the claims of a pod get their volumes each for itself", ""},
	{"watch pods", "e2e", "TestPodThatNamesItsNode", "the claims of a pod that names its node get no volumes", ""},
	{"get nodes", "e2e", "TestNodesThatDoNothing", "a claim for a node that is gone waits for ever", ""},
	{"list nodes", "e2e", "TestNodeThatPublishesNothing", "nodes that publish no capacity get no pods", ""},
	{"watch nodes", "e2e", "TestWaitForFirstConsumer", "the daemon does not become ready", ""},
	{"get namespaces", "e2e", "TestOwnerIsLearnt", "a pool does not learn its cluster", ""},
	{"create events", "e2e", "TestRefusals", "no claim is told why it waits", ""},
	{"get events", "e2e", "TestNodesThatDoNothing", "what another node's daemon told a claim is not known", ""},
	{"patch events", "e2e", "TestFitsOnNoNode", "a repeated event is not counted", ""},
	{"get storageclasses", "e2e", "TestMissingClass", "a claim of a class that is gone is not told so", ""},
	{"list storageclasses", "e2e", "TestWaitForFirstConsumer", "the daemon does not become ready", noWatchList},
	{"watch storageclasses", "e2e", "TestWaitForFirstConsumer", "the daemon does not become ready", ""},
	{"get mutatingadmissionpolicies", "e2e", "TestClaimIndex", "all claims of the cluster are read", ""},
	{"list mutatingadmissionpolicies", "e2e", "TestClaimIndex", "all claims of the cluster are read", noWatchList},
	{"watch mutatingadmissionpolicies", "e2e", "TestClaimIndex", "all claims of the cluster are read", ""},
	{"get mutatingadmissionpolicybindings", "e2e", "TestClaimIndex", "pre-bound volumes are looked for among all volumes", ""},
	{"list mutatingadmissionpolicybindings", "e2e", "TestClaimIndex", "all claims of the cluster are read", noWatchList},
	{"watch mutatingadmissionpolicybindings", "e2e", "TestClaimIndex", "all claims of the cluster are read", ""},
	{"get csinodes", "e2e", "TestAdoptFromCSI", "adopt --from-csi does not know whether the driver runs", ""},
	{"get csidrivers", "e2e", "TestNodeThatPublishesNothing", "no capacity is published", ""},
	{"patch csidrivers", "e2e", "TestNodeThatPublishesNothing", "the scheduler compares no capacity", ""},
	{"get volumesnapshotcontents", "e2e", "TestSnapshot", "no snapshot is made", ""},
	{"list volumesnapshotcontents", "e2e", "TestSnapshot", "no snapshot is made", noWatchList},
	{"watch volumesnapshotcontents", "e2e", "TestSnapshot", "no snapshot is made", ""},
	{"patch volumesnapshotcontents", "e2e", "TestSnapshot", "no node takes a snapshot", ""},
	{"patch volumesnapshotcontents/status", "e2e", "TestSnapshot", "no snapshot becomes ready", ""},
	{"get volumesnapshots", "e2e", "TestSnapshot", "no claim is made from a snapshot", ""},
	{"get volumesnapshotclasses", "e2e", "TestSnapshot", "the parameters of a snapshot's class are not known", ""},
	{"get leases", "e2e", "TestShared", "no node works in a shared pool", ""},
	{"watch leases", "e2e", "TestSharedMountLost", "no other node takes over a shared pool", ""},
	{"create leases", "e2e", "TestShared", "no node works in a shared pool", ""},
	{"update leases", "e2e", "TestSharedMountLost", "no other node takes over a shared pool", ""},
	{"list csistoragecapacities", "e2e", "TestNodeThatPublishesNothing", "nodes that publish no capacity get no pods", ""},
	{"create csistoragecapacities", "e2e", "TestNodeThatPublishesNothing", "no capacity is published", ""},
	{"patch csistoragecapacities", "e2e", "TestSchedulerKnowsTheCapacity", "a capacity that changed is not published", ""},
	{"delete csistoragecapacities", "e2e", "TestNodeThatPublishesNothing", "capacities stay that no node publishes any more", ""},
	{"create serviceaccounts/token", "identity", "TestNeeds", "the token is not renewed", ""},
	{"get validatingadmissionpolicies", "identity", "TestCheckCluster", "check --cluster does not see the policies", ""},
	{"get validatingadmissionpolicybindings", "identity", "TestCheckCluster", "check --cluster does not see the policies", ""},
}

// elsewhere are rights without a row, and the test that uses them: collecting tombstones begins 15
// seconds after one was written.
var elsewhere = map[string]string{
	"list leases":   "TestRunTombstoneGC (daemon/kube): tombstones are not collected",
	"delete leases": "TestRunTombstoneGC (daemon/kube): tombstones are not collected",
}
