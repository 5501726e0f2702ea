package hostcheck

// Reasons, in the order in which Check looks for them. They are documented in
// docs/troubleshooting.md.
const (
	ReasonMountTableUnreadable = "MountTableUnreadable" // /proc/self/mountinfo cannot be read or understood
	ReasonPathMissing          = "PathMissing"          // the mount point or the pool's path does not exist
	ReasonNotADirectory        = "NotADirectory"        // it is something else
	ReasonSymlinkInPath        = "SymlinkInPath"        // a component of it is a symbolic link
	ReasonPathUnreadable       = "PathUnreadable"       // it cannot be opened for another reason
	ReasonNotAutomounted       = "NotAutomounted"       // an automounter (autofs) covers it, and mounts nothing
	ReasonNotMounted           = "NotMounted"           // nothing is mounted at mount_point
	ReasonRootFilesystem       = "RootFilesystem"       // what is mounted there is the host's root filesystem again
	ReasonMountedOnItself      = "MountedOnItself"      // a bind mount of the same directory hides the host's unmount
	ReasonRootSquashed         = "RootSquashed"         // the file server takes this host's root for another user
	ReasonWrongMount           = "WrongMount"           // another mount is between mount_point and path, or on path
	ReasonMountsChanging       = "MountsChanging"       // the mounts changed during the check
	ReasonWrongFilesystem      = "WrongFilesystem"      // its type is not the configured one
	ReasonDeviceMissing        = "DeviceMissing"        // this host has no such device
	ReasonWrongDevice          = "WrongDevice"          // another device is mounted
	ReasonDeviceNotUnique      = "DeviceNotUnique"      // several devices have the configured UUID or label
	ReasonNetworkFilesystem    = "NetworkFilesystem"    // other nodes can have it mounted, and the pool is one node's
	ReasonReadOnly             = "ReadOnly"             // the mount or the filesystem is read-only
	ReasonNotAnswering         = "NotAnswering"         // no response within the deadline
	ReasonUnreadable           = "Unreadable"           // the filesystem returns an error
	ReasonNotSeen              = "NotSeen"              // nothing is wrong in what was seen, and that is not enough
	ReasonNotImmutable         = "NotImmutable"         // the directory under the mount point can be written to
	ReasonImmutableUnknown     = "ImmutableUnknown"     // the filesystem below cannot tell
	ReasonLookNotPermitted     = "LookNotPermitted"     // this process may not look under the mount
	ReasonLookFailed           = "LookFailed"           // looking under the mount failed
	ReasonNotPrepared          = "NotPrepared"          // no marker, and none was ever known
	ReasonMarkerMissing        = "MarkerMissing"        // no marker where one is remembered: another filesystem
	ReasonMarkerDamaged        = "MarkerDamaged"        // the marker cannot be understood
	ReasonMarkerChanged        = "MarkerChanged"        // another marker than the one remembered: another filesystem
	ReasonMarkerForeign        = "MarkerForeign"        // the marker of another pool
	ReasonOtherNode            = "OtherNode"            // the marker, or records, of another node
	ReasonOtherCluster         = "OtherCluster"         // the marker of another cluster, or nothing of the pool is known in this one
	ReasonUnknownType          = "UnknownType"          // the SELinux policy has no type of the configured name
	ReasonQuotaUnavailable     = "QuotaUnavailable"     // volumes are to be limited by project quotas, and the filesystem does not enforce them
	ReasonQuotaUnknown         = "QuotaUnknown"         // whether it does cannot be seen
	ReasonProjectInherited     = "ProjectInherited"     // the pool's own directory hands a project down
	ReasonNoSubvolumes         = "NoSubvolumes"         // volumes are to be subvolumes, and the filesystem has none
	ReasonLowSpace             = "LowSpace"             // available bytes are below the reserve
	ReasonLowInodes            = "LowInodes"            // free inodes are nearly gone
	ReasonWritableByOthers     = "WritableByOthers"     // other users can make, rename and remove entries of the pool's own directory
	ReasonPoolsOverlap         = "PoolsOverlap"         // a bind mount shows another pool's directory, or part of it
	ReasonModeTooOpen          = "ModeTooOpen"          // the pool's own directory lets other users in
	ReasonPlainDirectory       = "PlainDirectory"       // require_mount is off
	ReasonWrongLabel           = "WrongLabel"           // the pool, or volumes in it, have another SELinux type

	ReasonUnitShadowed = "UnitShadowed" // CheckHost: a foreign unit file of our name comes before ours
	ReasonUnitMasked   = "UnitMasked"   // CheckHost: the unit is masked

	ReasonUnconfined = "Unconfined" // CheckSELinux: SELinux is on, and our policy module is not loaded
)
