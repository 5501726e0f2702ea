// Package prepare makes a host ready for a pool: the mount point with its immutable flag, the
// pool's own directory, the marker on the filesystem and the memory of it.
//
// It never mounts, unmounts or formats anything, never removes a file, and refuses whatever an
// operator could not have meant. Every step can be repeated: on a prepared pool it does nothing.
package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Surprises, wrapped. Nothing was changed by the step that found one.
var (
	ErrNoParent        = errors.New("the parent directory does not exist")
	ErrNotDirectory    = errors.New("not a directory")
	ErrSymlink         = errors.New("a component of the path is a symbolic link")
	ErrNotEmpty        = errors.New("not empty")
	ErrNoFlag          = errors.New("the filesystem has no immutable flag")
	ErrMounted         = errors.New("another filesystem is mounted on it")
	ErrMountsChanged   = errors.New("the mounts changed meanwhile")
	ErrOtherFilesystem = errors.New("another filesystem was prepared for this pool")
	ErrOtherPool       = errors.New("the filesystem belongs to another pool")
	ErrNotOwner        = errors.New("the pool is not that node's")
)

// UnfitError says that what is mounted is not what the configuration asks for.
type UnfitError struct {
	Pool    config.Pool
	Finding hostcheck.Finding
}

func (e *UnfitError) Error() string {
	return fmt.Sprintf("pool %q: %s", e.Pool.Name, e.Finding.Message)
}

// Marking writes into the pool whose directory has this identity (daemon/disk/volume does).
type Marking interface {
	// InitMarker writes the text of the first marker, with the directories that belong to it.
	InitMarker(ctx context.Context, id mounts.Identity, marker []byte) error
	// Remark replaces a marker by one with the same ID.
	Remark(ctx context.Context, id mounts.Identity, m hostcheck.Marker) error
}

// Options say what to prepare.
type Options struct {
	Pool     config.Pool
	StateDir string
	// Replace accepts a filesystem that is not the one remembered for the pool.
	Replace bool
	Owner   Owner
	Marking Marking
	Check   func(context.Context) hostcheck.Report // of this pool, with what is remembered of it
}

// Result is what happened, in sentences.
type Result struct {
	Done  []string // in order; empty where nothing had to be done
	Notes []string // what was found and left as it is
	// Mounted false: the storage has to be mounted, and prepare called again.
	Mounted bool
}

func (r *Result) did(format string, args ...any) {
	r.Done = append(r.Done, fmt.Sprintf(format, args...))
}
func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Run prepares as far as it can be done now. The result counts beside an error too.
func Run(ctx context.Context, o Options) (Result, error) {
	r := Result{Mounted: true}
	if err := o.automount(ctx); err != nil {
		return r, err
	}
	if o.Pool.RequireMount {
		mounted, err := o.mountPoint(&r)
		if r.Mounted = mounted; err != nil || !mounted {
			return r, err
		}
	}
	// Judged before anything is changed there, and again for what the change made.
	before := o.Check(ctx)
	if !has(before, hostcheck.ReasonPathMissing) {
		if _, _, err := o.judge(before); err != nil {
			return r, err
		}
	}
	if err := o.poolDir(&r); err != nil {
		return r, err
	}
	if err := o.mark(ctx, &r); err != nil {
		return r, err
	}
	return r, o.handOver(ctx, &r)
}

// tolerated are the findings that prepare is there to end, or that have nothing to do with it.
var tolerated = map[string]bool{
	hostcheck.ReasonNotPrepared: true, hostcheck.ReasonMarkerMissing: true, hostcheck.ReasonMarkerChanged: true,
	hostcheck.ReasonMarkerForeign: true, hostcheck.ReasonMarkerDamaged: true, // said better here
	hostcheck.ReasonWritableByOthers: true,
	hostcheck.ReasonNotImmutable:     true, hostcheck.ReasonImmutableUnknown: true,
	hostcheck.ReasonLookNotPermitted: true, hostcheck.ReasonLookFailed: true,
}

func has(r hostcheck.Report, reason string) bool {
	return slices.ContainsFunc(r.Findings, func(f hostcheck.Finding) bool { return f.Reason == reason })
}

// judge says what has to be done about the marker, and which one the filesystem has. Another disk
// in the pool's place is an error here, or it would get the pool's marker.
func (o Options) judge(report hostcheck.Report) (step, *hostcheck.Marker, error) {
	for _, f := range report.Findings {
		meant := f.Reason == hostcheck.ReasonOtherNode && o.Owner.From != "" || f.Reason == hostcheck.ReasonOtherCluster && o.Owner.NewCluster
		if f.Severity == hostcheck.Close && !tolerated[f.Reason] && !meant {
			return nothing, nil, &UnfitError{o.Pool, f}
		}
	}
	found, err := o.markerAt(report.Identity)
	if err != nil {
		return nothing, nil, fmt.Errorf("pool %q: %w", o.Pool.Name, err)
	}
	remembered, err := state.Remembered(o.StateDir, o.Pool.Name)
	if err != nil && !o.Replace {
		return nothing, nil, err
	}
	name := o.Pool.Name
	if of := o.Owner; found != nil && of.FromPool == found.Pool && of.From != "" && found.Node == of.From {
		name = found.Pool
	}
	what, err := decide(name, found, remembered, o.Replace)
	if err != nil {
		return nothing, nil, fmt.Errorf("pool %q: %w", o.Pool.Name, err)
	}
	return what, found, nil
}

// mark writes the marker, unless the filesystem has the right one. A crash between the marker and
// the memory of it leaves a marker that the next call remembers.
func (o Options) mark(ctx context.Context, r *Result) error {
	report := o.Check(ctx)
	what, found, err := o.judge(report)
	if err != nil || what == nothing {
		return err
	}
	m := hostcheck.NewMarker(o.Pool.Name, time.Now())
	if what == adopt {
		m = *found
	} else {
		text, err := hostcheck.EncodeMarker(m)
		if err != nil {
			return err
		}
		if err := o.Marking.InitMarker(ctx, report.Identity, text); err != nil {
			return err
		}
		r.did("wrote marker %s on the filesystem of %s", m.ID, o.Pool.Path)
	}
	if m.Pool != o.Pool.Name {
		return nil // handOver renames it, and remembers it then
	}
	if err := state.Remember(o.StateDir, o.Pool.Name, m); err != nil {
		return err
	}
	r.did("remembered marker %s (of %s) for pool %s", m.ID, m.Created.Format(time.DateOnly), m.Pool)
	return nil
}

// markerAt reads the marker of the directory that was checked, nil if it has none.
func (o Options) markerAt(id mounts.Identity) (*hostcheck.Marker, error) {
	root, err := open(o.Pool.Path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	is, err := mounts.IdentityOf(int(root.Fd()))
	if err != nil {
		return nil, err
	}
	if is != id {
		return nil, fmt.Errorf("%s: %w", o.Pool.Path, ErrMountsChanged)
	}
	m, err := hostcheck.ReadMarker(int(root.Fd()))
	if errors.Is(err, hostcheck.ErrNoMarker) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &m, nil
}

type step int

const (
	nothing step = iota
	write        // a new marker, and remember it
	adopt        // remember the one that is there
)

// decide compares the marker on the filesystem, nil if it has none, with the id that is remembered,
// "" if there is none.
func decide(pool string, found *hostcheck.Marker, remembered string, replace bool) (step, error) {
	switch {
	case found != nil && found.Pool != pool:
		return nothing, fmt.Errorf("marker %s is of pool %q: %w", found.ID, found.Pool, ErrOtherPool)
	case found != nil && found.ID == remembered:
		return nothing, nil
	case remembered != "" && !replace && found == nil:
		return nothing, fmt.Errorf("marker %s is remembered and the filesystem has none: %w", remembered, ErrOtherFilesystem)
	case remembered != "" && !replace:
		return nothing, fmt.Errorf("marker %s is remembered and the filesystem has %s: %w", remembered, found.ID, ErrOtherFilesystem)
	case found == nil:
		return write, nil
	default:
		return adopt, nil
	}
}
