package main

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

// killer decides about every watched call of one host's daemons, and kills at the one it waits for.
type killer struct {
	socket *net.UnixListener
	name   string
	scope  scope

	mu     sync.Mutex
	armed  bool
	target string // a point, "" for none
	after  int    // or: the point that comes as the n-th, 0 for none
	counts map[string]int
	points []string // in the order in which they came
	last   time.Time
	hit    chan string

	unknown map[int32]int // system calls that this program does not know, by number
}

// newKiller waits at the socket for the daemons of one host.
func newKiller(socket string, s scope) (*killer, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	k := &killer{socket: l, name: socket, scope: s, unknown: map[int32]int{}}
	go k.accept()
	return k, nil
}

// env makes the rig's daemon one that this killer watches.
func (k *killer) env(program string) []string {
	return []string{socketEnv + "=" + k.name, programEnv + "=" + program}
}

// arm counts from now on, and kills at the point, or at the n-th that comes, or never ("", 0). The
// point at which it killed is sent once.
func (k *killer) arm(point string, after int) <-chan string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.armed, k.target, k.after = true, point, after
	k.counts, k.points, k.last = map[string]int{}, nil, time.Now()
	k.hit = make(chan string, 1)
	return k.hit
}

// disarm returns the points that came since arm.
func (k *killer) disarm() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.armed = false
	return k.points
}

// quiet reports whether no point came for that long.
func (k *killer) quiet(d time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Since(k.last) > d
}

func (k *killer) isArmed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.armed
}

// came notes a point and reports whether it is the one to die at.
func (k *killer) came(what string) bool {
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

func (k *killer) accept() {
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
func (k *killer) receive(conn *net.UnixConn) error {
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
func (k *killer) supervise(listener int, p process) {
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
		if dead = k.asked(p, &n); dead {
			unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0)
			continue
		}
		a := verdict{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a)))
	}
}

// asked reports whether the daemon is to die instead of making the call.
func (k *killer) asked(p process, n *notification) bool {
	if !k.isArmed() {
		return false
	}
	what, known := k.scope.describe(p, n)
	if !known {
		k.stranger(n.nr)
		return false
	}
	return what != "" && k.came(what)
}

func (k *killer) stranger(nr int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unknown[nr]++
}

// strangers are the numbers of the system calls that this program does not know, and how often they came.
func (k *killer) strangers() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []string
	for nr, times := range k.unknown {
		all = append(all, fmt.Sprintf("system call %d, %d times", nr, times))
	}
	slices.Sort(all)
	return all
}

// union adds the points of b that are not in a.
func union(a, b []string) []string {
	for _, p := range b {
		if !slices.Contains(a, p) {
			a = append(a, p)
		}
	}
	return a
}
