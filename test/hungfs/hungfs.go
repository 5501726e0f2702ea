// Package hungfs is a filesystem in memory that can be told to stop responding, as a dead NFS
// server does: altogether, or only to certain requests. It can also refuse requests as network
// filesystems do: no extended attributes, no flags of rename, root squashed, stale handles. It
// speaks the kernel's FUSE protocol itself, so that nothing has to be installed.
//
// It is for tests. It will not lose its data while it hangs, it will not check permissions (the
// kernel does not either, for root), and it will not leave a thread behind that nothing can kill.
package hungfs

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// FS is a mounted filesystem.
type FS struct {
	wake int // eventfd

	mu       sync.Mutex
	fuse     int // in the server thread's own table of descriptors
	tree     *tree
	silent   bool
	holding  []Op
	failing  map[Op]unix.Errno
	killable bool
	held     []request
	asked    map[Op]int
	arrived  *sync.Cond
	ended    chan struct{}
}

// Mount mounts a new, empty filesystem at dir; the test's end releases everything and unmounts it.
func Mount(t testing.TB, dir string) *FS {
	t.Helper()
	return MountAs(t, dir, "fuse.hungfs", "hungfs")
}

// MountAs is Mount of a filesystem that the mount table shows with this type, which begins with
// "fuse.", and this source.
func MountAs(t testing.TB, dir, fsType, source string) *FS {
	t.Helper()
	fs, err := start(dir, fsType, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Stop(dir) })
	return fs
}

// Start mounts a new, empty filesystem at dir, for programs. Stop ends it.
func Start(dir string) (*FS, error) { return start(dir, "fuse.hungfs", "hungfs") }

func start(dir, fsType, source string) (*FS, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	fs := &FS{wake: wake, tree: newTree(), asked: map[Op]int{}, failing: map[Op]unix.Errno{}, ended: make(chan struct{})}
	fs.arrived = sync.NewCond(&fs.mu)
	ready := make(chan error)
	go fs.serve(dir, fsType, source, ready)
	if err := <-ready; err != nil {
		return fs, err
	}
	if err := fs.unpoll(dir); err != nil {
		return fs, fmt.Errorf("polling on hungfs at %s: %w", dir, err)
	}
	return fs, nil
}

// unpoll has the kernel ask once whether files can be polled, and remember that they cannot.
// Package os asks by a raw system call, in which the garbage collector waits for the thread: if the
// response is to come from this process, it never does.
func (fs *FS) unpoll(dir string) error {
	name := filepath.Join(dir, ".poll")
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	err = errors.Join(err, unix.Close(fd), unix.Unlink(name))
	fs.mu.Lock()
	defer fs.mu.Unlock()
	clear(fs.asked)
	return err
}

// Stop releases everything and unmounts the filesystem.
func (fs *FS) Stop(dir string) {
	fs.Resume()
	_ = unix.Unmount(dir, unix.MNT_DETACH) // the test may have unmounted it
	<-fs.ended
	_ = unix.Close(fs.wake)
}

// Killable lets go who waits for a held request and gets a signal, with EINTR, as NFS does.
// Otherwise he waits whatever happens, as for a disk.
func (fs *FS) Killable(yes bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.killable = yes
}

// Silence stops all responses. Requests are left unread, so that a process that waits can be
// killed.
func (fs *FS) Silence() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.silent = true
}

// Hold stops the responses to these requests only.
func (fs *FS) Hold(ops ...Op) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.holding = ops
}

// Fail makes these requests fail with an error; 0 is as before. ENOSYS says that the filesystem
// does not know them, which the kernel remembers for the mount's life.
func (fs *FS) Fail(errno unix.Errno, ops ...Op) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, op := range ops {
		fs.failing[op] = errno
	}
}

// TakeQuotas has the filesystem take CephFS's quota attributes; without it there are none at all.
func (fs *FS) TakeQuotas() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.tree.quotas = true
}

// Resume responds to everything, also what was asked meanwhile.
func (fs *FS) Resume() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.silent, fs.holding = false, nil
	_, _ = unix.Write(fs.wake, encode(uint64(1)))
}

// Asked is how many requests of this kind were read so far, with a response or held.
func (fs *FS) Asked(op Op) int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.asked[op]
}

// AwaitHeld returns once a request is being held.
func (fs *FS) AwaitHeld() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for len(fs.held) == 0 {
		fs.arrived.Wait()
	}
}

// serve opens the connection in a descriptor table of its thread alone. If the test process is
// killed, a thread that waits for a held request cannot die before the request ends
// (request_wait_answer in fs/fuse/dev.c), and with a shared table it would keep open the very
// descriptor whose closing ends it.
func (fs *FS) serve(dir, fsType, source string, ready chan<- error) {
	defer close(fs.ended)
	runtime.LockOSThread() // never unlocked: the thread ends here, and closes what it opened
	if err := fs.connect(dir, fsType, source); err != nil {
		ready <- fmt.Errorf("mounting hungfs on %s: %w", dir, err)
		return
	}
	ready <- nil
	buffer := make([]byte, maxWrite+4096)
	for fs.turn(buffer) {
	}
	_ = unix.Close(fs.fuse)
}

func (fs *FS) connect(dir, fsType, source string) (err error) {
	if err = unix.Unshare(unix.CLONE_FILES); err != nil {
		return err
	}
	if fs.fuse, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
		return err
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fs.fuse)
	return unix.Mount(source, dir, fsType, 0, options)
}

// turn waits for something to do and does it; false when the filesystem is unmounted.
func (fs *FS) turn(buffer []byte) bool {
	fds := []unix.PollFd{{Fd: int32(fs.wake), Events: unix.POLLIN}, {Fd: int32(fs.fuse), Events: unix.POLLIN}}
	fs.mu.Lock()
	if fs.silent {
		fds = fds[:1]
	}
	fs.mu.Unlock()
	_, _ = unix.Poll(fds, -1)
	fs.mu.Lock()
	defer fs.mu.Unlock()
	_, _ = unix.Read(fs.wake, make([]byte, 8))
	fs.release()
	if fs.silent {
		return true
	}
	n, err := unix.Read(fs.fuse, buffer)
	if err == unix.ENODEV {
		return false
	}
	if r, ok := parseRequest(buffer[:max(n, 0)]); ok {
		fs.take(r)
	}
	return true
}

func (fs *FS) take(r request) {
	fs.asked[r.op]++
	if r.op == interrup && fs.killable {
		fs.interrupt(r.u64(0))
		return
	}
	if slices.Contains(fs.holding, r.op) {
		fs.held = append(fs.held, r)
		fs.arrived.Broadcast()
		return
	}
	fs.reply(r)
}

// interrupt responds to a held request, by its number. One that is not held gets its response.
func (fs *FS) interrupt(unique uint64) {
	for i, r := range fs.held {
		if r.unique == unique {
			fs.held = slices.Delete(fs.held, i, i+1)
			fs.send(r, nil, unix.EINTR)
			return
		}
	}
}

// release responds to what was held and no longer is.
func (fs *FS) release() {
	var still []request
	for _, r := range fs.held {
		if slices.Contains(fs.holding, r.op) {
			still = append(still, r)
		} else {
			fs.reply(r)
		}
	}
	fs.held = still
}

func (fs *FS) reply(r request) {
	if r.op == forget || r.op == forgets || r.op == interrup {
		return // want no response
	}
	body, errno := []byte(nil), fs.failing[r.op]
	if errno == 0 {
		body, errno = fs.tree.perform(r)
	}
	fs.send(r, body, errno)
}

func (fs *FS) send(r request, body []byte, errno unix.Errno) {
	if errno != 0 {
		body = nil
	}
	out := order.AppendUint32(nil, uint32(outHeader+len(body)))
	out = order.AppendUint32(out, uint32(-int32(errno)))
	out = order.AppendUint64(out, r.unique)
	_, _ = unix.Write(fs.fuse, append(out, body...)) // ENOENT: the asker was killed
}
