package plan

// Reasons of events and metrics. Each stands in docs/troubleshooting.md with what it means and what
// to do; a test compares the two lists.
const (
	ReasonProvisioningSucceeded = "ProvisioningSucceeded"
	ReasonClassNotFound         = "ClassNotFound"
	ReasonUnknownParameter      = "UnknownParameter"
	ReasonBadParameter          = "BadParameter"
	ReasonUnknownPool           = "UnknownPool"
	ReasonBlockMode             = "BlockModeUnsupported"
	ReasonAccessMode            = "AccessModeUnsupported"
	ReasonDataSource            = "DataSourceUnsupported"
	ReasonSource                = "DataSourceUnusable"
	ReasonPopulator             = "WaitForPopulator"
	ReasonSelector              = "SelectorUnsupported"
	ReasonAttributesClass       = "AttributesClassUnsupported"
	ReasonTopology              = "TopologyMismatch"
	ReasonBadName               = "BadDirectoryName"
	ReasonDriver                = "CSIDriverNotReady"
	ReasonNodeNotFound          = "NodeNotFound"
	ReasonNodeSilent            = "NodeSilent"
	ReasonNodeForgotten         = "NodeForgotten"
	ReasonNodeAway              = "NodeAway"
	ReasonVolumeMoved           = "VolumeMoved"
	ReasonTakenOver             = "TakenOver"
	ReasonPoolClosed            = "PoolClosed"
	ReasonNotEnoughSpace        = "NotEnoughSpace"
	ReasonNoNodeFits            = "NoNodeFits"
	ReasonProvisioningFailed    = "ProvisioningFailed"
	ReasonNoQuota               = "QuotaUnsupported"
	ReasonVolumeNearlyFull      = "VolumeNearlyFull"
	ReasonQuotaEscaped          = "QuotaEscaped"
	ReasonFewProjects           = "FewProjectsLeft"
	ReasonNameTaken             = "VolumeNameTaken"
	ReasonStarting              = "Starting"
	ReasonReady                 = "Ready"
	ReasonStopping              = "Stopping"
	ReasonReloaded              = "ConfigurationReloaded"
	ReasonReloadFailed          = "ReloadFailed"
	ReasonNotInForce            = "ConfigurationNotInForce"
	ReasonAPIUnavailable        = "APIUnavailable"
	ReasonAPIAvailable          = "APIAvailable"
	ReasonOtherHost             = "OtherHost"
	ReasonCredentialRefused     = "CredentialRefused"
	ReasonStartFailed           = "StartFailed"
	ReasonAPIRefused            = "APIRefused"
	ReasonPathMismatch          = "PathMismatch"
	ReasonNotRecorded           = "NotRecorded"
	ReasonClaimExists           = "ClaimStillExists"
	ReasonPutBack               = "VolumePutBack"
	ReasonVolumeLost            = "VolumeLost"
	ReasonDeleted               = "Deleted"
	ReasonArchived              = "Archived"
	ReasonRetained              = "Retained"
	ReasonVolumeFailedDelete    = "VolumeFailedDelete"
	ReasonPurgeFailed           = "PurgeIncomplete"
	ReasonPoolOpened            = "PoolOpened"
	ReasonPromised              = "Promised"
	ReasonCordoned              = "PoolCordoned"
	ReasonCredentialEnds        = "CredentialEnds" // in the node's lease
	ReasonStateUnreadable       = "StateUnreadable"
	ReasonStateUnwritable       = "StateUnwritable"
	ReasonPoolInUse             = "PoolInUse"
	ReasonRestartNeeded         = "RestartNeeded"
	ReasonUnitOutdated          = "UnitOutdated"
	ReasonLaxMount              = "LaxMount"     // of check alone
	ReasonInMemory              = "InMemory"     // the same
	ReasonNotServed             = "CSINotServed" // the same
	ReasonOtherNode             = "OtherNode"
	ReasonOtherCluster          = "OtherCluster"
	ReasonScopeChanged          = "ScopeChanged"
	ReasonPathChanged           = "PathChanged"
	ReasonRecordsUnread         = "RecordsUnread"
	ReasonStorageMismatch       = "StorageMismatch"
	ReasonLeaseOverwritten      = "LeaseOverwritten"
	ReasonRecordDamaged         = "RecordDamaged"
	ReasonUnpublishedRemoved    = "UnpublishedRemoved"
	ReasonOrphaned              = "Orphaned"
	ReasonLabelsMissing         = "LabelsMissing"
	ReasonNodeRelabelled        = "NodeRelabelled"
	ReasonPartMade              = "NodeDirectoryReady"
	ReasonPartRemoved           = "NodeDirectoryRemoved"
	ReasonDeletedLate           = "DeletedLate"
	ReasonExpanded              = "VolumeResizeSuccessful" // Kubernetes' own (pkg/kubelet/events, VolumeResizeSuccess)
	ReasonSnapshotReady         = "SnapshotReady"
	ReasonSnapshotFailed        = "SnapshotFailed"
	ReasonSnapshotLost          = "SnapshotLost"
	ReasonExpandFailed          = "VolumeResizeFailed" // the same (VolumeResizeFailed)
)

// The reasons by what they are told of, so that each has a series from the start: an alert on an
// increase never sees the first of a series that is born at 1. A reason may stand in several; a
// test finds one that stands in none.
var (
	ClaimReasons = []string{ // why a claim has no volume
		ReasonClassNotFound, ReasonUnknownParameter, ReasonBadParameter, ReasonUnknownPool, ReasonBlockMode, ReasonAccessMode,
		ReasonDataSource, ReasonSource, ReasonSelector, ReasonAttributesClass, ReasonTopology, ReasonBadName, ReasonDriver, ReasonNodeNotFound, ReasonPoolClosed, ReasonPoolInUse,
		ReasonCordoned,
		ReasonNotEnoughSpace, ReasonNoNodeFits, ReasonProvisioningFailed, ReasonNoQuota, ReasonNameTaken,
		ReasonNodeSilent, ReasonTakenOver,
	}
	VolumeReasons = []string{ // what became of a volume
		ReasonDeleted, ReasonArchived, ReasonRetained, ReasonPutBack, ReasonDeletedLate, ReasonUnpublishedRemoved, ReasonVolumeLost, ReasonOrphaned,
		ReasonPathMismatch, ReasonNotRecorded, ReasonClaimExists, ReasonUnknownPool, ReasonPoolClosed, ReasonRecordDamaged,
		ReasonVolumeFailedDelete, ReasonPurgeFailed, ReasonPartRemoved, ReasonLabelsMissing,
		ReasonNodeRelabelled,
	}
	DirectoryReasons = []string{ // what became of this node's directory of a volume of scope every-node
		ReasonPartMade, ReasonPartRemoved, ReasonPoolClosed, ReasonUnknownPool, ReasonNotRecorded, ReasonPathMismatch, ReasonRecordDamaged,
		ReasonProvisioningFailed, ReasonBadName, ReasonNotEnoughSpace, ReasonExpanded,
	}
	ExpansionReasons = []string{ // what became of a claim that requests more than it has
		ReasonExpanded, ReasonNotEnoughSpace, ReasonPoolClosed, ReasonUnknownPool, ReasonRecordDamaged, ReasonNotRecorded, ReasonPathMismatch,
		ReasonExpandFailed,
	}
	SnapshotReasons = []string{ // what became of a VolumeSnapshot
		ReasonSnapshotReady, ReasonSnapshotFailed, ReasonSnapshotLost,
		ReasonNotEnoughSpace, ReasonPoolClosed,
	}
)
