package volume

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// What a volume takes is read in calls that are short: while one lasts, its descriptors keep the
// mount busy for umount(8), and it is one more reader of the disk. The caller pauses between them.
// They open directories alone, and look at what is in them (statx(2)).
const (
	// measuredMost is how many entries one call looks at, and measuredFor how long.
	measuredMost = 50_000
	measuredFor  = time.Second
	// ofEach is how many entries of a directory a probe looks at, chosen at random.
	ofEach = 32
)

// errMeasures: at most one such call hangs in a pool.
var errMeasures = errors.New("another volume of the pool is read still")

// errEnough ends a walk at one of these bounds.
var errEnough = errors.New("enough was read")

// Measure returns what a recorded volume's directory takes: the blocks of all that is in it, a file
// with several names once. It is an estimate, of what was seen, if the bounds of a call or an error
// kept it from the rest. It waits for no other call, and nothing waits for it.
func (p *Pool) Measure(ctx context.Context, id mounts.Identity, pv string) (
	m usage.Measured, err error) {
	err = p.measuring(ctx, id, pv, func(c measuring) error {
		w := measurer{measuring: c, links: map[file]bool{}}
		err := tree.Walk(ctx, c.top, ".", w.visit)
		if errors.Is(err, errEnough) || errors.Is(err, tree.ErrGrows) {
			w.part, err = true, nil
		}
		m = usage.Measured{Bytes: w.bytes, Inodes: w.inodes, Estimate: w.part, At: time.Now()}
		return err
	})
	return m, err
}

// Sample returns some probes of what such a directory takes.
func (p *Pool) Sample(ctx context.Context, id mounts.Identity, pv string) (
	s usage.Sample, err error) {
	err = p.measuring(ctx, id, pv, func(c measuring) error {
		probe := prober{measuring: c, buffer: make([]byte, probePiece)}
		for again := true; again && !s.Enough(); again = time.Now().Before(c.until) {
			if err := probe.down(); err != nil {
				return err
			}
			s.Add(probe.bytes, probe.inodes)
			s.Entries = probe.seen
		}
		return nil
	})
	return s, err
}

// measuring is a call that reads what one volume takes.
type measuring struct {
	*pace
	top   int // the volume's directory
	until time.Time
}

func (p *Pool) measuring(ctx context.Context, id mounts.Identity, pv string,
	work func(measuring) error) error {
	if !p.measures.CompareAndSwap(false, true) {
		return p.about(pv, errMeasures)
	}
	defer p.measures.Store(false)
	return p.beside(ctx, id, "measuring", pv, func(s *session) error {
		s.call.patient.Store(true)
		r, err := s.inPool(pv)
		if err != nil {
			return err
		}
		top, err := s.volumeDir(r.Directory)
		if err != nil {
			return err
		}
		defer unix.Close(top)
		now := time.Now()
		pace := &pace{ctx: ctx, pool: p, call: s.call, began: now}
		return s.detached(work(measuring{pace, top, now.Add(p.measureFor)}))
	})
}

// entry is what an entry of a directory takes.
type entry struct {
	file
	directory bool
	bytes     uint64 // of the file, whichever of its names this is
	names     uint64 // of a file that is no directory; 1 of one that is
}

// file tells files apart. A volume may have several devices: subvolumes.
type file struct {
	major, minor uint32
	inode        uint64
}

// lookAt looks at an entry. is is false for one that is gone, and for a mount: what is there is not
// the volume's.
func lookAt(dir int, name string) (e entry, is bool, err error) {
	var st unix.Statx_t
	const mask = unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BLOCKS
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	err = openat.Retry(func() error { return unix.Statx(dir, name, flags, mask, &st) })
	if errors.Is(err, unix.ENOENT) {
		return e, false, nil
	}
	if err != nil || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return e, false, err
	}
	e = entry{
		file: file{st.Dev_major, st.Dev_minor, st.Ino}, bytes: st.Blocks * 512,
		directory: st.Mode&unix.S_IFMT == unix.S_IFDIR, names: 1,
	}
	if !e.directory {
		e.names = max(1, uint64(st.Nlink))
	}
	return e, true, nil
}

// measurer is the visitor of a walk that adds up what it sees.
type measurer struct {
	measuring
	seen          int
	bytes, inodes uint64
	links         map[file]bool // files with several names that were counted
	part          bool          // not all could be seen
}

func (w *measurer) visit(at tree.Entry) (tree.Leave, error) {
	if err := w.giveWay(); err != nil {
		return nil, err
	}
	if w.seen++; w.seen > measuredMost || time.Now().After(w.until) {
		return nil, errEnough
	}
	e, is, err := lookAt(at.Dir, at.Name)
	if err != nil {
		w.part = true
	}
	if !is || w.links[e.file] {
		return nil, nil
	}
	w.bytes, w.inodes = w.bytes+e.bytes, w.inodes+1
	if e.names > 1 {
		w.links[e.file] = true
	}
	if !e.directory {
		return nil, nil
	}
	return w.leave, nil
}

// leave notes a directory that could not be read to its end, unless its owner removed it meanwhile.
func (w *measurer) leave(_ tree.Entry, _ int, err error) (again bool, stop error) {
	if err != nil && !vanished(err) && !errors.Is(err, unix.EXDEV) {
		w.part = true
	}
	return false, nil
}

// probePiece is how much of a directory a probe reads at a time, in bytes: it reads whole
// directories, some of which are large.
const probePiece = 64 << 10

// prober goes down a volume by one way after the other.
type prober struct {
	measuring
	buffer []byte
	seen   int // entries

	bytes, inodes float64 // by the way down that it is on
}

// down finds what the volume takes if everything is as what it sees on one way down: of each
// directory some entries, and one of the directories among these, all chosen at random. What cannot
// be read counts nothing.
func (w *prober) down() error {
	top, is, err := lookAt(w.top, ".")
	if err != nil || !is {
		return err
	}
	w.bytes, w.inodes = float64(top.bytes), 1
	dir, err := openDir(w.top, ".")
	for weight := 1.0; err == nil; {
		var below []string
		if below, err = w.level(dir, &weight); len(below) == 0 || time.Now().After(w.until) {
			break
		}
		weight *= float64(len(below))
		var next int
		next, err = openDir(dir, below[rand.IntN(len(below))])
		unix.Close(dir)
		dir = next
	}
	closeOpen(dir)
	return w.ctx.Err()
}

// level adds the entries of a directory that stands for so many, and returns the directories among
// those that it looked at. The weight is what each of them stands for then.
func (w *prober) level(dir int, weight *float64) (below []string, err error) {
	names, all, err := w.some(dir)
	if err != nil || all == 0 {
		return nil, err
	}
	*weight *= float64(all) / float64(len(names))
	for _, name := range names {
		w.seen++
		e, is, err := lookAt(dir, name)
		if err != nil || !is {
			continue
		}
		part := *weight / float64(e.names) // its other names may be found as well
		w.bytes, w.inodes = w.bytes+part*float64(e.bytes), w.inodes+part
		if e.directory {
			below = append(below, name)
		}
	}
	return below, nil
}

// some are some names of a directory, each as likely as any other, and how many names it has: of
// one that is read longer than a call may last, as many as were read.
func (w *prober) some(dir int) (names []string, all int, err error) {
	var piece []string
	for more := true; more && (all == 0 || time.Now().Before(w.until)); {
		if err := w.giveWay(); err != nil {
			return nil, 0, err
		}
		if piece, more, err = tree.Read(dir, w.buffer, piece[:0]); err != nil {
			return nil, 0, err
		}
		for _, name := range piece {
			if all++; len(names) < ofEach {
				names = append(names, name)
			} else if i := rand.IntN(all); i < ofEach {
				names[i] = name
			}
		}
	}
	return names, all, nil
}

// burst is how many entries are removed or copied before a purge or a copy looks whether it is in
// the way.
const burst = 32

// pace is how fast a call goes that consists of very many small ones.
type pace struct {
	ctx   context.Context
	pool  *Pool
	call  *call
	since int // entries since the last pause
	began time.Time
}

// giveWay is called before each entry. It makes way for calls in the foreground: their fsyncs
// commit the journal with all that a purge or a copy put there, so these do little while such calls
// are under way.
func (p *pace) giveWay() error {
	p.pool.progress(p.call)
	if p.since++; p.since < burst {
		return nil
	}
	var err error
	if p.pool.urgent.Load() > 0 {
		err = pause(p.ctx, min(max(time.Millisecond, 4*time.Since(p.began)), 20*time.Millisecond))
	}
	p.since, p.began = 0, time.Now()
	return err
}
