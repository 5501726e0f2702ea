package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/keylock"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// Options says which pool. That the path lies on the right mount is in the identity that every call
// is given, so the mount point itself is not needed here.
type Options struct {
	Name string // for error messages
	Path string // absolute, no symbolic link in it
	// HostID, if it is not empty, says that daemons of other hosts may work in the pool as well: it
	// tells this one from them, in 8 letters or digits.
	HostID string
	// AtStep, if it is not nil, is called after each step of each call with the step's name: a test
	// may panic there, to play a process that dies.
	AtStep func(step string)
}

// Pool works in one pool's directory. It can be used by many goroutines; calls for the same volume
// wait for each other. It holds no descriptor between calls.
type Pool struct {
	name, path string
	hostID     string
	quotas     atomic.Pointer[ProjectQuotas]
	recorded   recorded
	excluded   excluded
	turns      turns // of Apply
	fsyncs     fsyncGroup
	ordered    ordered
	urgent     atomic.Int64  // calls in the foreground: a purge makes room for them
	measures   atomic.Bool   // a call reads what a volume takes
	measureFor time.Duration // how long such a call may last
	purging    chan struct{}
	purged     atomic.Pointer[string] // the volume that Purge works on, nil for none

	locks keylock.Locks // of volumes

	mu    sync.Mutex
	calls map[*call]struct{} // under way
	born  time.Time

	atCrashPoint func(name string) // tests: called after each step of each call, may panic to play a crash
}

// New returns the store of one pool. It touches nothing.
func New(o Options) *Pool {
	return &Pool{
		name: o.Name, path: filepath.Clean(o.Path), hostID: o.HostID, atCrashPoint: o.AtStep,
		fsyncs:  fsyncGroup{next: map[fsyncKey]*turn{}, sync: fsync},
		purging: make(chan struct{}, 1), measureFor: measuredFor,
		calls: map[*call]struct{}{},
		born:  time.Now(),
	}
}

// SetQuotas says how volumes are limited by project quotas from now on; nil, as at first: they are
// not.
func (p *Pool) SetQuotas(q *ProjectQuotas) { p.quotas.Store(q) }

func (p *Pool) crashPoint(name string) {
	if p.atCrashPoint != nil {
		p.atCrashPoint(name)
	}
}

// session is one call's view of the pool: descriptors that are closed when it ends.
type session struct {
	ctx  context.Context // of the call
	pool *Pool
	call *call
	id   mounts.Identity
	root int
	dirs map[string]int
	// quotas are those of the moment in which the call began.
	quotas *ProjectQuotas
}

// begin opens the pool, and refuses one that is not the directory that was checked. Whatever is
// mounted or renamed from here on, the descriptors stay on the filesystem that was checked. What
// the call is about is for Waiting.
func (p *Pool) begin(ctx context.Context, id mounts.Identity, about string) (s *session, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := p.enter(about, id)
	defer func() {
		if err != nil {
			p.exit(c)
		}
	}()
	root, err := p.open(id)
	if err != nil {
		return nil, err
	}
	return &session{ctx: ctx, pool: p, call: c, id: id, root: root, dirs: map[string]int{},
		quotas: p.quotas.Load()}, nil
}

// open returns a descriptor of the pool's directory; ErrDirectoryReplaced if it is another one.
func (p *Pool) open(id mounts.Identity) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW
	root, err := openat.Open(unix.AT_FDCWD, p.path, flags, 0, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return -1, fmt.Errorf("%w: opening %s: %w", ErrDirectoryReplaced, p.path, err)
	}
	now, err := mounts.IdentityOf(root)
	if err == nil && now != id {
		err = fmt.Errorf("%w: %s", ErrDirectoryReplaced, p.path)
	}
	if err != nil {
		unix.Close(root)
		return -1, err
	}
	return root, nil
}

// detached returns that the directory is not the pool's any more, where that is why a call was
// denied, else err: beneath a mount that was detached (umount -l) Landlock denies what its rules
// allow, because no path leads from there to a rule's directory (seen on Linux 6.18).
func (s *session) detached(err error) error {
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	root, moved := s.pool.open(s.id)
	if moved != nil {
		return moved
	}
	unix.Close(root)
	return err
}

func (s *session) end() {
	defer s.pool.exit(s.call)
	for _, fd := range s.dirs {
		unix.Close(fd)
	}
	unix.Close(s.root)
}

// dir opens one of our own directories, once in a session. It must be root's, who makes them with
// `prepare`, or this process's alone: another user who could write there could invent records.
func (s *session) dir(name string) (int, error) {
	if fd, open := s.dirs[name]; open {
		return fd, nil
	}
	fd, err := openDir(s.root, metaDir+"/"+name)
	if err != nil {
		return -1, fmt.Errorf("%w: %s/%s: %w", ErrNotPrepared, metaDir, name, err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && s.pool.hostID != "" && st.Uid != 0 && int(st.Uid) != unix.Geteuid() {
		err = fmt.Errorf("%w: %s/%s belongs to user %d", ErrSquashed, metaDir, name, st.Uid)
	} else if err == nil && (st.Mode&0o022 != 0 || st.Uid != 0 && int(st.Uid) != unix.Geteuid()) {
		err = fmt.Errorf("%w: %s/%s: others can write to it", ErrNotPrepared, metaDir, name)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	s.dirs[name] = fd
	return fd, nil
}

// fd is dir, and "" the pool itself.
func (s *session) fd(name string) (int, error) {
	if name == "" {
		return s.root, nil
	}
	return s.dir(name)
}

// open opens several of our directories.
func (s *session) open(all ...string) error {
	for _, name := range all {
		if _, err := s.dir(name); err != nil {
			return err
		}
	}
	return nil
}

// sync makes the names in our directories (or in the pool itself: "") durable, at the same time.
func (s *session) sync(dirs ...string) error {
	calls := make([]func() error, 0, len(dirs))
	for _, name := range dirs {
		fd, err := s.fd(name)
		if err != nil {
			return err
		}
		calls = append(calls, func() error {
			if err := s.pool.fsyncs.do(fsyncKey{s.id, name}, fd); err != nil {
				return fmt.Errorf("fsync of %s: %w", cmp.Or(name, "the pool's directory"), err)
			}
			return nil
		})
	}
	return together(calls...)
}

// durable is sync, after which a step is done. After a failed one the state of the disk is not
// known.
func (s *session) durable(step string, dirs ...string) error {
	err := s.sync(dirs...)
	if err == nil {
		s.pool.crashPoint(step)
	}
	return err
}

// together runs calls at the same time and waits for all of them.
func together(calls ...func() error) error {
	errs := make([]error, len(calls))
	var wait sync.WaitGroup
	for i, call := range calls[1:] {
		wait.Go(func() { errs[i+1] = call() })
	}
	errs[0] = calls[0]()
	wait.Wait()
	return errors.Join(errs...)
}

// with is the frame of every call about the pool as a whole: the pool is the one that was checked.
// doing is what a call that waits for the disk is called by.
func (p *Pool) with(ctx context.Context, id mounts.Identity, doing string, work func(*session) error) error {
	s, err := p.begin(ctx, id, doing)
	if err == nil {
		defer s.end()
		err = s.detached(work(s))
	}
	if err != nil {
		return fmt.Errorf("pool %q: %w", p.name, err)
	}
	return nil
}

// of is with for a call that returns something.
func of[T any](ctx context.Context, p *Pool, id mounts.Identity, doing string,
	work func(*session) (T, error)) (got T, err error) {
	err = p.with(ctx, id, doing, func(s *session) (err error) {
		got, err = work(s)
		return err
	})
	return got, err
}

// on is the frame of every call about one volume: the name is checked, no other call works on it,
// and the pool is the one that was checked.
func (p *Pool) on(ctx context.Context, id mounts.Identity, pv string, work func(*session) error) error {
	return p.about(pv, func() error {
		if err := record.CheckPV(pv); err != nil {
			return err
		}
		p.urgent.Add(1)
		defer p.urgent.Add(-1)
		unlock, err := p.locks.Take(ctx, pv)
		if err != nil {
			return err
		}
		defer unlock()
		s, err := p.begin(ctx, id, "volume "+pv)
		if err != nil {
			return err
		}
		defer s.end()
		if err := s.share(ctx); err != nil {
			return err
		}
		return p.remote(s.detached(work(s)))
	}())
}

// beside runs work on a volume. It waits for no other call, and none waits for it.
func (p *Pool) beside(ctx context.Context, id mounts.Identity, doing, pv string,
	work func(*session) error) error {
	return p.about(pv, func() error {
		if err := record.CheckPV(pv); err != nil {
			return err
		}
		s, err := p.begin(ctx, id, doing+" volume "+pv)
		if err != nil {
			return err
		}
		defer s.end()
		return work(s)
	}())
}

// about says which pool and volume an error is about.
func (p *Pool) about(pv string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pool %q: volume %q: %w", p.name, pv, err)
}

const (
	metaDir = record.OwnDir

	stagingDir = "staging"
	trashDir   = "trash"
	volumesDir = "volumes"
	archiveDir = "archive"
	markerFile = "pool.json"

	recordSuffix = ".json"
	newSuffix    = ".json.new" // a record that is being written; ends in no record's suffix

	emptyingSuffix = "~" // of a directory in the trash whose files are going; no PV's name has it
)

// backgroundFactor is how much longer than others a call in the background may take: removing one
// file of many extents takes seconds on a healthy filesystem.
const backgroundFactor = 4

// copyFactor is the same while a volume is copied. To share the blocks of one file is one call, of
// a microsecond or more for each of its extents; to write out all that a copy wrote is another.
// That storage stops responding is noticed by the pool's own looks and by other calls.
const copyFactor = 80

// call is one call under way.
type call struct {
	about      string          // what it is about, for messages
	id         mounts.Identity // where it works
	background atomic.Bool
	copies     atomic.Bool
	patient    atomic.Bool          // it closes no pool, however long it waits
	work       atomic.Pointer[work] // of Purge and of a copy, nil before it begins
	// got is when it began, or the filesystem last replied, in ns since the pool's birth.
	got atomic.Int64
}

// Waiting is a call to which the filesystem has not replied for long.
type Waiting struct {
	About string
	Where mounts.Identity // the directory it works in, which may not be the pool any more
	For   time.Duration   // 0: there is none
	Limit time.Duration   // what it was allowed
}

// Waiting returns the call that is waiting longest, of those that have waited for the limit or
// longer: from its beginning, or since the last of its many entries for Purge, Sweep and List.
// Purges have four times the limit, and copies eighty times. What reads how much volumes take has
// none: one bad directory of a tenant is no reason to close the pool.
func (p *Pool) Waiting(limit time.Duration) (longest Waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.calls {
		waited, allowed := time.Since(p.born)-time.Duration(c.got.Load()), limit
		switch {
		case c.patient.Load():
			continue
		case c.copies.Load():
			allowed *= copyFactor
		case c.background.Load():
			allowed *= backgroundFactor
		}
		if waited >= allowed && waited > longest.For {
			longest = Waiting{c.about, c.id, waited, allowed}
		}
	}
	return longest
}

func (p *Pool) enter(about string, id mounts.Identity) *call {
	c := &call{about: about, id: id}
	p.progress(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[c] = struct{}{}
	return c
}

func (p *Pool) exit(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, c)
}

// progress notes that the filesystem replies to a call that consists of many.
func (p *Pool) progress(c *call) { c.got.Store(int64(time.Since(p.born))) }
