package plan

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
	OtherReasons = []string{ // events and log lines that no counter counts
		ReasonProvisioningSucceeded, ReasonPopulator,
		ReasonStarting, ReasonReady, ReasonStopping, ReasonReloaded, ReasonReloadFailed, ReasonNotInForce,
		ReasonAPIUnavailable, ReasonAPIAvailable, ReasonCredentialRefused, ReasonCredentialEnds, ReasonStartFailed,
		ReasonAPIRefused, ReasonPoolOpened, ReasonPromised,
		ReasonStateUnreadable, ReasonStateUnwritable, ReasonStorageMismatch, ReasonLeaseOverwritten,
		ReasonRestartNeeded, ReasonUnitOutdated, ReasonLaxMount, ReasonInMemory, ReasonNotServed,
		ReasonOtherHost, ReasonOtherNode, ReasonOtherCluster, ReasonScopeChanged, ReasonPathChanged,
		ReasonRecordsUnread, ReasonVolumeNearlyFull, ReasonQuotaEscaped, ReasonFewProjects,
		ReasonNodeForgotten, ReasonVolumeMoved, ReasonNodeAway,
	}
)
