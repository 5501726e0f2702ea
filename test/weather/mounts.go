package weather

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// spot is a directory tree that can be reached whatever is mounted where: through a descriptor of
// the bare directory, or of a mount of the filesystem that stands in no namespace.
type spot struct {
	name string
	fd   int
}

// path is a path in it.
func (p spot) path(elem ...string) string {
	return filepath.Join(append([]string{fmt.Sprintf("/proc/self/fd/%d", p.fd)}, elem...)...)
}

// fixture is a pool's mount point with everything that can come to lie there.
type fixture struct {
	mount string // the pool's path and mount point
	real  device // the pool's own filesystem
	other device // another one
	plain string // a directory that gets bound over the pool

	bare, own, otherTree, bound spot
}

// device is a loop device with an ext4 filesystem.
type device struct{ node string }

// newFixture makes two filesystems and mounts the right one. Nothing in it is immutable: a write in
// the wrong place would succeed.
func newFixture(p *harness.Program) *fixture {
	dir := hosttest.Dir(p)
	s := &fixture{mount: filepath.Join(dir, "pool"), plain: filepath.Join(dir, "plain")}
	for _, d := range []string{s.mount, s.plain} {
		p.Must(os.Mkdir(d, 0o700), "making "+d)
	}
	s.bare = spot{"the bare mount point", open(p, s.mount)}
	s.bound = spot{"the directory bound over it", open(p, s.plain)}
	s.real, s.other = attach(p, hosttest.Mkfs(p, "ext4", 192)), attach(p, hosttest.Mkfs(p, "ext4", 64))
	s.own = spot{"the pool's filesystem", detached(p, s.real)}
	s.otherTree = spot{"the other filesystem", detached(p, s.other)}
	for _, at := range []spot{s.own, s.otherTree} {
		p.Must(os.Chmod(at.path("."), 0o700), "chmod of "+at.name)
	}
	p.Must(s.mountReal(), "mounting the pool")
	return s
}

// attach gives an image a loop device that is gone when this process is.
func attach(p *harness.Program, image hosttest.Image) device {
	out, err := exec.Command("losetup", "--find", "--show", image.File).CombinedOutput()
	node := strings.TrimSpace(string(out))
	p.Must(err, "losetup: "+node)
	// Held open and cleared by itself: the kernel does that with the last close or unmount
	// (loop(4)).
	fd := harness.Need(unix.Open(node, unix.O_RDONLY|unix.O_CLOEXEC, 0))(p, "opening "+node)
	info := harness.Need(unix.IoctlLoopGetStatus64(fd))(p, "asking "+node)
	info.Flags |= unix.LO_FLAGS_AUTOCLEAR
	p.Must(unix.IoctlLoopSetStatus64(fd, info), "setting autoclear on "+node)
	return device{node}
}

// detached mounts a device nowhere. The mount keeps the filesystem alive, and nothing that is done
// to the pool's mount reaches it: it has no peers.
func detached(p *harness.Program, d device) int {
	fs := harness.Need(unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC))(p, "fsopen")
	defer unix.Close(fs)
	p.Must(unix.FsconfigSetString(fs, "source", d.node), "fsconfig")
	p.Must(unix.FsconfigCreate(fs), "mounting "+d.node)
	fd := harness.Need(unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0))(p, "fsmount")
	return fd
}

func open(p *harness.Program, dir string) int {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	p.Must(err, "opening "+dir)
	return fd
}

// mimic makes the wrong places look like the pool from inside, so that a daemon that got there
// could write: the bare directory even with the pool's own marker, as if it had been copied.
func (s *fixture) mimic(p *harness.Program) {
	marker := harness.Need(os.ReadFile(s.own.path(hostcheck.MarkerPath)))(p, "reading the marker")
	m := harness.Need(hostcheck.DecodeMarker(marker))(p, "reading the marker")
	another := bytes.ReplaceAll(marker, []byte(m.ID), []byte(strings.Repeat("X", len(m.ID))))
	for _, b := range []struct {
		spot
		marker []byte
	}{{s.bare, marker}, {s.otherTree, another}, {s.bound, another}} {
		p.Must(os.Mkdir(b.path(hostcheck.PrivateDir), 0o700), "making the daemon's directories")
		for _, d := range pool.Directories {
			p.Must(os.Mkdir(b.path(hostcheck.PrivateDir, d), 0o700), "making the daemon's directories")
		}
		p.Must(os.WriteFile(b.path(hostcheck.MarkerPath), b.marker, 0o600), "making the daemon's directories")
	}
}

// wrong are the places where nothing may ever appear.
func (s *fixture) wrong() []spot { return []spot{s.bare, s.otherTree, s.bound} }

func (s *fixture) mountReal() error  { return unix.Mount(s.real.node, s.mount, "ext4", 0, "") }
func (s *fixture) mountOther() error { return unix.Mount(s.other.node, s.mount, "ext4", 0, "") }
func (s *fixture) bindPlain() error  { return unix.Mount(s.plain, s.mount, "", unix.MS_BIND, "") }
func (s *fixture) bindItself() error { return unix.Mount(s.mount, s.mount, "", unix.MS_BIND, "") }
func (s *fixture) unmount() error    { return unix.Unmount(s.mount, 0) }
func (s *fixture) detach() error     { return unix.Unmount(s.mount, unix.MNT_DETACH) }

// remount changes the flags of the mount alone (MS_BIND) or of the filesystem.
func (s *fixture) remount(flags uintptr) error {
	return unix.Mount("", s.mount, "", unix.MS_REMOUNT|flags, "")
}

// restore leaves the pool's own filesystem mounted there once and writable, whatever was there.
func (s *fixture) restore() error {
	for s.detach() == nil {
	}
	if err := s.mountReal(); err != nil {
		return err
	}
	return s.remount(0)
}

// tree is everything in a spot that is not of mimic or of mkfs (pool.Tree).
func (p spot) tree() ([]string, error) { return pool.Tree(p.path()) }

// act is one thing that happens to a mount, and how it ends.
type act struct {
	name     string
	do, undo func(*fixture) error
}

// acts are all that the storm knows. Each begins and ends with the pool mounted, once and writable.
var acts = []act{
	{"unmounted, mounted", (*fixture).unmount, (*fixture).mountReal},
	{"unmounted with -l, mounted", (*fixture).detach, (*fixture).mountReal},
	{"mount remounted read-only", readOnlyMount, writableMount},
	{"filesystem remounted read-only", readOnlyFilesystem, writableFilesystem},
	{"another filesystem in its place", swapIn, swapOut},
	{"another filesystem over it", (*fixture).mountOther, (*fixture).uncover},
	{"a directory bound over it", (*fixture).bindPlain, (*fixture).uncover},
	{"bound over itself", (*fixture).bindItself, (*fixture).uncover},
}

func readOnlyMount(s *fixture) error      { return s.remount(unix.MS_BIND | unix.MS_RDONLY) }
func writableMount(s *fixture) error      { return s.remount(unix.MS_BIND) }
func readOnlyFilesystem(s *fixture) error { return s.remount(unix.MS_RDONLY) }
func writableFilesystem(s *fixture) error { return s.remount(0) }

func swapIn(s *fixture) error {
	if err := s.detach(); err != nil {
		return err
	}
	return s.mountOther()
}

func swapOut(s *fixture) error {
	if err := s.uncover(); err != nil {
		return err
	}
	return s.mountReal()
}

// uncover takes away what is on top, if need be while it is in use.
func (s *fixture) uncover() error {
	err := s.unmount()
	if errors.Is(err, unix.EBUSY) {
		err = s.detach()
	}
	return err
}

// mountChanges makes the changes, and counts them.
type mountChanges struct {
	random *rand.Rand
	cycles int
	count  map[string]int // by act
	busy   map[string]int // by act: the kernel refused it, because the daemon worked there
}

func newMountChanges(seed uint64) *mountChanges {
	return &mountChanges{random: rand.New(rand.NewPCG(seed, 0)), count: map[string]int{}, busy: map[string]int{}}
}

// volumeEvery is after how many cycles the mount stays until a volume was made.
const volumeEvery = 50

// run changes the mount until the context ends or so many cycles are done (0: no limit). At the
// beginning and after each volumeEvery cycles it waits for a volume.
func (w *mountChanges) run(ctx context.Context, s *fixture, cycles int, awaitVolume func() error) error {
	for ; ctx.Err() == nil && (cycles == 0 || w.cycles < cycles); w.cycles++ {
		if w.cycles%volumeEvery == 1 {
			if err := awaitVolume(); err != nil {
				return err
			}
		}
		a := acts[w.random.IntN(len(acts))]
		if err := w.once(s, a); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		w.pause(20 * time.Millisecond)
	}
	return nil
}

func (w *mountChanges) once(s *fixture, a act) error {
	err := a.do(s)
	for tries := 0; errors.Is(err, unix.EBUSY) && tries < 100; tries++ {
		w.busy[a.name]++
		err = a.do(s)
	}
	if errors.Is(err, unix.EBUSY) {
		return nil // the daemon works there all the time; the other acts do not ask
	}
	if err != nil {
		return err
	}
	w.count[a.name]++
	w.pause(4 * time.Millisecond)
	err = a.undo(s)
	for end := time.Now().Add(harness.Timeout); errors.Is(err, unix.EBUSY) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		err = a.undo(s)
	}
	return err
}

// pause waits not at all, for some turns of the processor, or up to so long: the daemon has to see
// all stages of a fault, and to find a pool that it can work in.
func (w *mountChanges) pause(limit time.Duration) {
	switch w.random.IntN(3) {
	case 0:
	case 1:
		for end := time.Now().Add(time.Duration(w.random.Int64N(int64(limit / 20)))); time.Now().Before(end); {
		}
	default:
		time.Sleep(time.Duration(w.random.Int64N(int64(limit))))
	}
}

// writes are what must not happen in a wrong place. inotify(7) watches the inode, so a directory is
// watched under whatever is mounted on it, and a file that is there for a moment is seen as well.
const writes = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE_SELF

// placeWatcher notes every entry that is made, moved, changed or removed in some places.
type placeWatcher struct {
	fd      int
	watched map[int32]directory
	wake    [2]int

	mu   sync.Mutex
	seen map[string][]string // by place: what happened there
	done chan struct{}
}

type directory struct{ place, name string }

// watchPlaces begins to watch places. What is there already does not count.
func watchPlaces(t hosttest.T, places ...spot) *placeWatcher {
	w := &placeWatcher{watched: map[int32]directory{}, seen: map[string][]string{}, done: make(chan struct{})}
	w.fd = hosttest.Need(unix.InotifyInit1(unix.IN_CLOEXEC))(t)
	hosttest.Check(t, unix.Pipe2(w.wake[:], unix.O_CLOEXEC))
	for _, p := range places {
		all := map[string]string{"": ".", "ours/": hostcheck.PrivateDir}
		for _, d := range pool.Directories {
			all["ours/"+d+"/"] = filepath.Join(hostcheck.PrivateDir, d)
		}
		for name, dir := range all {
			// The dot at the end: the magic link itself is no directory to inotify.
			id, err := unix.InotifyAddWatch(w.fd, p.path(dir)+"/.", writes)
			if err != nil {
				t.Fatalf("watching %s of %s: %v", dir, p.name, err)
			}
			w.watched[int32(id)] = directory{p.name, name}
		}
	}
	go w.listen()
	return w
}

func (w *placeWatcher) listen() {
	defer close(w.done)
	buffer := make([]byte, 64<<10)
	for {
		fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}, {Fd: int32(w.wake[0]), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil {
			if err == unix.EINTR {
				continue
			}
			w.note("the watch of the places", err.Error())
			return
		}
		if fds[0].Revents != 0 {
			n, err := unix.Read(w.fd, buffer)
			if err != nil {
				w.note("the watch of the places", err.Error())
				return
			}
			w.decode(buffer[:n])
			continue // first everything that happened, then the end
		}
		return
	}
}

// decode reads struct inotify_event (inotify(7)).
func (w *placeWatcher) decode(events []byte) {
	for len(events) >= unix.SizeofInotifyEvent {
		id, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		name := string(bytes.TrimRight(events[unix.SizeofInotifyEvent:end], "\x00"))
		events = events[end:]
		at, known := w.watched[id]
		if !known { // the queue ran over
			w.note("the watch of the places", fmt.Sprintf("mask %#x: something was not seen", mask))
			continue
		}
		w.note(at.place, verb(mask)+" "+filepath.Join(at.name, name))
	}
}

func verb(mask uint32) string {
	for bit, word := range map[uint32]string{
		unix.IN_CREATE: "created", unix.IN_DELETE: "deleted", unix.IN_MOVED_FROM: "moved away", unix.IN_MOVED_TO: "moved here",
		unix.IN_MODIFY: "modified", unix.IN_ATTRIB: "attributes changed of", unix.IN_DELETE_SELF: "deleted itself,",
	} {
		if mask&bit != 0 {
			return word
		}
	}
	return fmt.Sprintf("mask %#x on", mask)
}

func (w *placeWatcher) note(place, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[place] = append(w.seen[place], what)
}

// close ends the watch, and returns what happened in each place.
func (w *placeWatcher) close() map[string][]string {
	unix.Close(w.wake[1])
	<-w.done
	unix.Close(w.fd)
	unix.Close(w.wake[0])
	return w.seen
}
