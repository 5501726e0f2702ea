package volume

import "errors"

// Errors that a call returns, wrapped with the pool and the volume. Errors of the kernel are
// wrapped as well (errors.Is(err, unix.ENOSPC)).
var (
	// ErrDirectoryReplaced: the pool's path is not the directory that was checked. Nothing was
	// touched.
	ErrDirectoryReplaced = errors.New("the pool's directory is not the one that was checked")
	// ErrNotPrepared: the pool has no .hostpath-provisioner directory, or one that others can write
	// to.
	ErrNotPrepared = errors.New("the pool is not prepared")
	// ErrForeign: something of the volume's name is there and no record says that it is ours.
	ErrForeign = errors.New("not made by this daemon")
	// ErrConflict: the volume exists and is recorded for another claim or by another directory
	// name. One that was never published can be removed with Undo and made again.
	ErrConflict = errors.New("recorded differently")
	// ErrPlace: the volume is not where the call works, for instance already in the trash.
	ErrPlace = errors.New("in the wrong place")
	// ErrRemoved: in a shared pool, a volume that was to be made is whole in the trash or the
	// archive. Nothing was touched.
	ErrRemoved = errors.New("the volume was made before and removed")
	// ErrNotEmpty: there is data in a volume that was to be undone. Nothing was touched.
	ErrNotEmpty = errors.New("the volume is not empty")
	// ErrRetained: the volume's data is to be kept. Nothing was touched.
	ErrRetained = errors.New("the volume is retained")
	// ErrNotRecorded: the pool has no record of the volume.
	ErrNotRecorded = errors.New("not recorded")
	// ErrSquashed: in a shared pool, root of this host was refused.
	ErrSquashed = errors.New("the file server does not let this host's root do that (root_squash, or an export without the right to write)")
	// ErrNotRoot: in a shared pool, a process was refused that is not root's.
	ErrNotRoot = errors.New("this process is not root, and the file server does not know its capabilities: it has to run as root")
	// ErrNoQuota: the directory cannot be limited as it is asked for, by CephFS's attribute or by a
	// project.
	ErrNoQuota = errors.New("no limit can be set here")
	// ErrSource: the volume that was to be copied is not in the pool, or went while it was copied.
	ErrSource = errors.New("the volume that must be copied is not there")
	// ErrPause: what writes to the volume that was copied could not be stopped, or not for as long
	// as the last pass took.
	ErrPause = errors.New("its pods could not be paused")
	// ErrReceiving: another process receives the volume.
	ErrReceiving = errors.New("another process receives it")
	// ErrLeft: Purge could not remove everything; Purged says what is left.
	ErrLeft = errors.New("not everything could be removed")
	// ErrUnlabelled: Relabel could not relabel everything; Relabelled says what is left.
	ErrUnlabelled = errors.New("not everything could be relabelled")
	// ErrPrepared: the pool has a marker already, and another one than InitMarker was given.
	ErrPrepared = errors.New("the pool is prepared already")
)
