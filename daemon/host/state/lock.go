package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// HeldError says that another daemon works with a state directory.
type HeldError struct {
	File string // the lock
	PID  int    // of the holder, as it wrote itself; 0 if it has not yet
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("another daemon holds %s", e.File)
	}
	return fmt.Sprintf("another daemon (pid %d) holds %s", e.PID, e.File)
}

// Lock takes dir/lock for this process, without waiting; *HeldError says that another one has it.
// The kernel gives it back when the process ends, however it ends (flock(2)): a file that is left
// behind is no lock. The file is never removed: it might be the one that another process has locked
// since.
func Lock(dir string) (release func(), err error) {
	d, err := openDir(dir, "", 0o700, true)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	name := filepath.Join(dir, "lock")
	f, err := openPlain(d, "lock", unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &HeldError{name, holder(f)}
		}
		return nil, &os.PathError{Op: "flock", Path: name, Err: err}
	}
	if err := sign(f, strconv.Itoa(os.Getpid())); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

// sign writes who holds the lock, for the message that the next one gets. A full disk does not
// matter to that: the lock holds without it.
func sign(f *os.File, text string) error {
	err := f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(text+"\n"), 0)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil
	}
	return err
}

func holder(f *os.File) int {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

// PoolLocks is where the locks of pools are. It is one place for the whole host, whatever state and
// runtime directories a daemon was given: those are what two daemons by mistake differ in.
//
// It is a directory of /run, because /run is this host's own even where root is on the network, and
// its flocks are the host's: the daemons of other nodes may work in the same shared pool. A file in
// the pool would keep its mount busy, and an abstract socket would be per network namespace and
// could be bound by any process.
const PoolLocks = "/run/hostpath-provisioner/pools"

// PoolHeldError says that another daemon of this host works in a pool.
type PoolHeldError struct {
	PID   int    // of the holder, in its own PID namespace; 0 if it is not known
	State string // the holder's state directory, "" if it is not known
}

func (e *PoolHeldError) Error() string {
	if e.PID == 0 {
		return "another daemon uses this pool"
	}
	return fmt.Sprintf("another daemon (pid %d, state directory %s) uses this pool", e.PID, e.State)
}

// PoolLock says that this process, and no other of the host, works in the pool with this marker.
type PoolLock struct{ file *os.File }

// holding is a lock file's text. It is only for messages: a file that is left behind is no lock.
type holding struct {
	PID   int    `json:"pid"`
	State string `json:"stateDirectory"`
}

// LockPool takes dir/<marker id>.lock without waiting; *PoolHeldError says that another process has
// it. stateDir is for the message of the one that is refused. The kernel gives the lock back when
// the process ends (flock(2)).
func LockPool(dir, id, stateDir string) (*PoolLock, error) {
	// Only what is above may be believed: the runtime directory is the daemon's.
	d, err := openDir(filepath.Dir(dir), filepath.Base(dir), 0o755, true)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for {
		l, err := lockFile(d, id+".lock")
		if err != nil {
			return nil, err
		}
		if l.Held() {
			return l, l.sign(stateDir)
		}
		l.Release() // the file was removed between the open and the lock
	}
}

func lockFile(dir *os.File, name string) (*PoolLock, error) {
	f, err := openPlain(dir, name, unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		return nil, err
	}
	// A user who can read a file can lock it.
	_ = f.Chmod(0o600) // its owner or root can; to another user it is no lock of his
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return &PoolLock{f}, nil
	}
	defer f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, poolHolder(f)
	}
	return nil, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
}

// Held reports whether the lock still counts: whether its file is the one that the next daemon
// would find. Removing the directory, as systemd does with a stopped service's, takes the lock
// away.
func (l *PoolLock) Held() bool {
	ours, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(l.file.Name())
	return err == nil && os.SameFile(ours, there)
}

// Release lets the next one have the pool. The file stays.
func (l *PoolLock) Release() { l.file.Close() }

// sign writes who holds the lock.
func (l *PoolLock) sign(stateDir string) error {
	text, err := json.Marshal(holding{os.Getpid(), stateDir})
	if err == nil {
		err = sign(l.file, string(text))
	}
	if err != nil {
		l.Release()
	}
	return err
}

func poolHolder(f *os.File) *PoolHeldError {
	var h holding
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 8<<10))
	if err != nil || json.Unmarshal(text, &h) != nil {
		return &PoolHeldError{} // the holder has not signed yet
	}
	return &PoolHeldError{h.PID, Printable(h.State)}
}
