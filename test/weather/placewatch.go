package weather

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

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
func watchPlaces(places ...spot) (*placeWatcher, error) {
	w := &placeWatcher{watched: map[int32]directory{}, seen: map[string][]string{}, done: make(chan struct{})}
	var err error
	if w.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
		return nil, err
	}
	if err := unix.Pipe2(w.wake[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	for _, p := range places {
		all := map[string]string{"": ".", "ours/": hostcheck.PrivateDir}
		for _, d := range pool.Directories {
			all["ours/"+d+"/"] = filepath.Join(hostcheck.PrivateDir, d)
		}
		for name, dir := range all {
			// The dot at the end: the magic link itself is no directory to inotify.
			id, err := unix.InotifyAddWatch(w.fd, p.path(dir)+"/.", writes)
			if err != nil {
				return nil, fmt.Errorf("watching %s of %s: %w", dir, p.name, err)
			}
			w.watched[int32(id)] = directory{p.name, name}
		}
	}
	go w.listen()
	return w, nil
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
