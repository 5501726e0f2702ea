// Package record is the file that proves that a directory is ours: what it says, how it is encoded,
// and what a reader refuses.
//
// Versions. A daemon writes Version and reads all up to it, from 2 on, the first that was released:
// a record of an earlier version becomes one of the present version when it is written next. A
// record of a later version is ErrNewer, whatever it says, and nothing is done with its volume.
// Within a version a field that this program does not know is kept when the record is written
// again, so that a later program can add fields that an earlier one may leave alone; a change that
// it may not ignore is a new version.
//
// The package will not read or write a file (package volume does), and it will not decide anything
// about a volume (package plan does). It imports no other package of this project.
package record

import (
	"cmp"
	"errors"
	"time"
)

// Version is the version of the records that this program writes; it reads all up to it.
const Version = 2

// oldest is the first version that was released: it stays readable for ever.
const oldest = 2

// MaxSize bounds what is read of a record, in bytes: its longest valid fields take less than 4 KiB,
// but for an object that was replaced.
const MaxSize = 64 << 10

// Errors of Decode, wrapped.
var (
	// ErrDamaged: there is a record, and it cannot be read. Nothing is done with such a volume.
	ErrDamaged = errors.New("the record cannot be read")
	// ErrNewer accompanies ErrDamaged for a record that only a newer version of this program
	// understands.
	ErrNewer = errors.New("written by a newer version")
)

// Kind is what a record is of.
type Kind string

// The kinds. Of an inline volume, which is written in a pod and goes with that, PV is the handle
// that kubelet gives it, and Namespace, Claim and ClaimUID are those of the pod. Of a snapshot PV
// is its handle, Namespace, Claim and ClaimUID are those of its VolumeSnapshot, Requested is the
// size that a volume made from it has at least, and Unpublished says that it may not be whole.
const (
	Volume   Kind = ""
	Snapshot Kind = "snapshot"
	Inline   Kind = "inline"
)

// Stream is the kind of an Origin alone: the volume of this name on another node. UID is that of
// the stream.
const Stream Kind = "stream"

// Origin is what the data of a volume or of a snapshot was copied from.
type Origin struct {
	Kind Kind   `json:"kind,omitempty"`
	Name string `json:"name"` // of its PersistentVolume or snapshot
	UID  string `json:"uid"`  // of its claim or snapshot
}

// Record is what a pool says of one of its volumes. Times are UTC.
type Record struct {
	Version     int       `json:"version"`
	Kind        Kind      `json:"kind,omitempty"`
	PV          string    `json:"pv"`
	Namespace   string    `json:"namespace"`
	Claim       string    `json:"claim"`
	ClaimUID    string    `json:"claimUID"`
	Class       string    `json:"class,omitempty"`
	Provisioner string    `json:"provisioner,omitempty"`
	Node        string    `json:"node,omitempty"`  // whose daemon made the volume
	Scope       string    `json:"scope,omitempty"` // of the pool when the volume was made
	Source      string    `json:"source,omitempty"`
	Reclaim     string    `json:"reclaim,omitempty"`
	OnDelete    string    `json:"onDelete,omitempty"`  // as the class said when the volume was made
	Directory   string    `json:"directory"`           // one path element below the pool
	Requested   int64     `json:"requested,omitempty"` // bytes
	Promised    int64     `json:"promised,omitempty"`  // bytes that the pool keeps for it, 0 as requested
	ProjectID   uint32    `json:"projectID,omitempty"` // by which the filesystem's quota counts it, 0 for none
	Origin      Origin    `json:"origin,omitzero"`
	Atomic      bool      `json:"atomic,omitempty"` // all files that it was made with are of one moment; of a copy
	Created     time.Time `json:"created"`
	Retained    bool      `json:"retained,omitempty"` // the object was let go and the data kept
	// Unheld: the object has no finalizer of ours, because its policy keeps the data. It may go at
	// any time, and then the data is retained.
	Unheld bool `json:"unheld,omitempty"`
	// Unpublished: the daemon that made the volume was to make its object, too, and did not see
	// that since. Only of scope every-node, where an empty directory without an object may still be
	// in a pod, and of a copy, which has data from the start: there it is taken back before the
	// object is made, or before the snapshot is said to be ready.
	Unpublished bool `json:"unpublished,omitempty"`
	// Replaced is the volume object, in JSON, in whose place an object of ours was made, or is
	// about to be made.
	Replaced string `json:"replaced,omitempty"`
	// Moving is the volume object that is about to be made, in JSON with what else is needed for
	// that, while the volume's disk is another node's now: the object of its name is the former
	// node's, or there is none.
	Moving string `json:"moving,omitempty"`
	// Partial is of a volume that comes in several streams, the last of which has not come: the
	// name of the directory in it that has the files which came. Origin is the last whole stream.
	Partial string `json:"partial,omitempty"`
	// Sent is the UID of the last stream that the volume was written to, so that another node may
	// have it by now.
	Sent string `json:"sent,omitempty"`

	// Place is where the directory was found. It is not in the file.
	Place Place `json:"-"`
	// Archived: the record was found in the archive, too. It is not in the file.
	Archived bool `json:"-"`

	unknown string // the fields that only a later program knows, as a JSON object, "" for none
}

// Reserved is how many bytes the pool keeps for the volume, whether or not it uses them.
func (r Record) Reserved() uint64 {
	return uint64(max(cmp.Or(r.Promised, r.Requested), 0))
}

// HasObject reports whether a volume object is to be expected for a record: not where people may
// delete it without this program.
func (r Record) HasObject() bool {
	return r.Kind == Volume && r.Place == InPool && !r.Retained && !r.Unheld && !r.Unpublished
}

// MayHaveObject reports whether a volume object is possible: a volume that is whole in the trash
// has its object until that is let go, and one that was made to be published may have it by now.
func (r Record) MayHaveObject() bool {
	return r.Kind == Volume && !r.Retained && (r.Place == InPool || r.Place == InTrash)
}

// Whole reports whether the directory is out of the pool and can be put back as it was.
func (r Record) Whole() bool { return r.Place == InTrash || r.Place == InArchive }
