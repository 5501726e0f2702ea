package hostcheck

import (
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Facts is what was seen of a pool, without any judgement. What was not seen is zero, and every
// rule keeps quiet about it. It is kept as JSON, beside the mount table as the kernel wrote it.
type Facts struct {
	Mounts     []mounts.Mount `json:"-"`
	MountError string         `json:"mountError,omitempty"` // why Mounts could not be read
	MountPoint Entry          `json:"mountPoint"`           // only looked at where a mount is required
	Path       Entry          `json:"path"`
	Automount  Automount      `json:"automount,omitzero"` // only where autofs covers the pool
	Device     Device         `json:"device"`
	Under      Under          `json:"under"`
	Space      Space          `json:"space"`
	Marker     MarkerFact     `json:"marker"`
	Label      LabelFact      `json:"label,omitzero"`
	Quota      QuotaFact      `json:"quota,omitzero"`
	// Unanswered is the question to which the filesystem had not responded by the deadline.
	Unanswered string        `json:"unanswered,omitempty"`
	Waited     time.Duration `json:"waited,omitempty"`
	// Failed is a question to which the filesystem returned an error, and the error.
	Failed string `json:"failed,omitempty"`
	// Refused says that the error of Path or Failed is a permission that this process, as root, has
	// not.
	Refused bool `json:"refused,omitempty"`
}

// Kind is what was found at a path.
type Kind string

// Kinds of an Entry.
const (
	Unseen     Kind = ""           // not looked at
	Directory  Kind = "directory"  // Identity, MountID and Mode are known
	Missing    Kind = "missing"    // ENOENT
	NotDir     Kind = "notDir"     // it or a component is something else
	Symlink    Kind = "symlink"    // a component is a symbolic link
	OtherMount Kind = "otherMount" // a mount stands between the mount point and it
	Failing    Kind = "failing"    // Error says why
)

// Entry is a directory as it was opened.
type Entry struct {
	Kind     Kind            `json:"kind,omitempty"`
	Error    string          `json:"error,omitempty"`
	Identity mounts.Identity `json:"identity"`
	MountID  int             `json:"mountID,omitempty"` // as in the mount table
	Mode     uint32          `json:"mode,omitempty"`    // permission bits
}

// Automount is what became of the attempt to have an automount point mounted.
type Automount struct {
	// Error is why nothing is mounted there, "" once something is.
	Error string `json:"error,omitempty"`
}

// Device is what is known of the configured device.
type Device struct {
	Path     string `json:"path,omitempty"`     // the node that stands for it
	Expected string `json:"expected,omitempty"` // its number, "major:minor"; "" if there is no such node
	Source   string `json:"source,omitempty"`   // number of the device that the mount table names
	UUID     string `json:"uuid,omitempty"`     // of the mounted filesystem, from itself (Linux 6.9)
	// Members are the numbers of all devices that a mounted btrfs lies on.
	Members []string `json:"members,omitempty"`
	// Twins are the devices that it means, if they are several: copies of each other.
	Twins []string `json:"twins,omitempty"`
}

// Under is what was seen of the directory that lies under the mount point; where nothing is
// mounted, of the mount point itself.
type Under struct {
	Looked    bool            `json:"looked"`
	Immutable bool            `json:"immutable"`
	Identity  mounts.Identity `json:"identity"`
	Trouble   Trouble         `json:"trouble,omitempty"` // why Immutable is not known
	Error     string          `json:"error,omitempty"`
}

// Trouble is why the look under a mount point came to nothing.
type Trouble string

// Troubles.
const (
	CannotTell   Trouble = "cannotTell"
	NotPermitted Trouble = "notPermitted"
	LookFailed   Trouble = "failed"
	// NoResponse: the service that was asked to look had not responded within the time that a
	// client waits.
	NoResponse Trouble = "noAnswer"
)

// Space is what statfs(2) says.
type Space struct {
	Size       uint64 `json:"size,omitempty"` // bytes
	Available  uint64 `json:"available,omitempty"`
	RootOnly   uint64 `json:"rootOnly,omitempty"` // free, and not available to other users
	Inodes     uint64 `json:"inodes,omitempty"`
	InodesFree uint64 `json:"inodesFree,omitempty"`
	ReadOnly   bool   `json:"readOnly,omitempty"`
	Asked      bool   `json:"asked,omitempty"`
}

// LabelFact is what SELinux says of the pool. It is looked at where the mount table says
// "seclabel": the filesystem keeps labels and a policy is loaded.
type LabelFact struct {
	Looked    bool   `json:"looked,omitempty"`
	Type      string `json:"type,omitempty"`      // of the pool's directory; "" if it has no label
	Unknown   bool   `json:"unknown,omitempty"`   // the policy has no such type as volumes are to have
	PoolKnown bool   `json:"poolKnown,omitempty"` // the policy has the type of our own module for pools
}

// MarkerFact is what was read of the pool's marker.
type MarkerFact struct {
	Looked bool   `json:"looked,omitempty"`
	Marker Marker `json:"marker,omitzero"` // zero if there is none
	Error  string `json:"error,omitempty"` // it is there and cannot be understood
}
