package killer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Killer decides about every watched call of one host's daemons, and kills at the one it waits for.
type Killer struct {
	socket *net.UnixListener
	name   string
	scope  Scope

	mu     sync.Mutex
	armed  bool
	target string // a point, "" for none
	after  int    // or: the point that comes as the n-th, 0 for none
	counts map[string]int
	points []string // in the order in which they came
	last   time.Time
	hit    chan string
	hold   func(point string) <-chan struct{}

	unknown map[int32]int // system calls that this program does not know, by number
}

// New waits at the socket for the daemons of one host.
func New(socket string, s Scope) (*Killer, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	k := &Killer{socket: l, name: socket, scope: s, unknown: map[int32]int{}}
	go k.accept()
	return k, nil
}

// Close ends the waiting for daemons.
func (k *Killer) Close() error { return k.socket.Close() }

// Env makes the rig's daemon one that this killer watches.
func (k *Killer) Env(program string) []string {
	return []string{socketEnv + "=" + k.name, programEnv + "=" + program}
}

// Arm counts from now on, and kills at the point, or at the n-th that comes, or never ("", 0). The
// point at which it killed is sent once.
func (k *Killer) Arm(point string, after int) <-chan string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.armed, k.target, k.after = true, point, after
	k.counts, k.points, k.last = map[string]int{}, nil, time.Now()
	k.hit = make(chan string, 1)
	return k.hit
}

// Disarm returns the points that came since Arm.
func (k *Killer) Disarm() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.armed = false
	return k.points
}

// Quiet reports whether no point came for that long.
func (k *Killer) Quiet(d time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Since(k.last) > d
}

// Hold has each point wait, of whatever daemon, until the channel is closed that f returns for its
// name; nil is no wait. It is called again and again for the same name. A point that waits is one
// to die at no more.
func (k *Killer) Hold(f func(point string) <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hold = f
}

// watches reports whether points matter, and returns what lets them wait.
func (k *Killer) watches() (armed bool, hold func(string) <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.armed, k.hold
}

// came notes a point and reports whether it is the one to die at.
func (k *Killer) came(what string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.armed {
		return false
	}
	k.counts[what]++
	point := fmt.Sprintf("%s #%d", what, k.counts[what])
	k.points, k.last = append(k.points, point), time.Now()
	if point != k.target && len(k.points) != k.after {
		return false
	}
	k.armed = false
	k.hit <- point
	return true
}

func (k *Killer) accept() {
	for {
		conn, err := k.socket.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			err = k.receive(conn)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "crash: a daemon's listener was not received:", err)
		}
	}
}

// receive takes one daemon's listener over.
func (k *Killer) receive(conn *net.UnixConn) error {
	defer conn.Close()
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("%d control messages, %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil {
		return err
	}
	pidfd, err := unix.PidfdOpen(int(peer.Pid), 0)
	if err != nil {
		return err
	}
	go k.supervise(fds[0], process{pid: int(peer.Pid), pidfd: pidfd})
	return nil
}

// supervise decides until the daemon is gone.
func (k *Killer) supervise(listener int, p process) {
	defer unix.Close(listener)
	defer unix.Close(p.pidfd)
	for dead := false; ; {
		poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			if poll[0].Revents != 0 {
				return // no process is left that could ask
			}
			continue
		}
		var n notification
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); errno != 0 {
			continue // who asked died meanwhile
		}
		if dead {
			continue
		}
		wait, dies := k.asked(p, &n)
		switch dead = dies; {
		case dead:
			unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0)
		case wait != nil:
			go func() { <-wait; goOn(listener, n.id) }()
		default:
			goOn(listener, n.id)
		}
	}
}

// goOn lets the kernel begin with a call. That of a process that died meanwhile is none any more.
func goOn(listener int, id uint64) {
	a := verdict{id: id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a)))
}

// asked reports whether the daemon is to die instead of making the call, and returns what the call
// waits for, nil for nothing.
func (k *Killer) asked(p process, n *notification) (wait <-chan struct{}, dies bool) {
	armed, hold := k.watches()
	if !armed && hold == nil {
		return nil, false
	}
	what, known := k.scope.describe(p, n)
	if !known {
		k.stranger(n.nr)
	}
	if what != "" && k.came(what) {
		return nil, true
	}
	if what != "" && hold != nil {
		wait = hold(what)
	}
	return wait, false
}

func (k *Killer) stranger(nr int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unknown[nr]++
}

// Strangers are the numbers of the system calls that this program does not know, and how often they
// came.
func (k *Killer) Strangers() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []string
	for nr, times := range k.unknown {
		all = append(all, fmt.Sprintf("system call %d, %d times", nr, times))
	}
	slices.Sort(all)
	return all
}
