package hosttest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// Environment that makes the test binary an automounter: its mount point and its kind of map.
const (
	automountEnv     = "HOSTPATH_HOSTTEST_AUTOMOUNT"
	automountKindEnv = automountEnv + "_KIND"
)

// Automounter is an automounter of the kernel's autofs, as systemd is for x-systemd.automount: a
// process of its own, because the kernel never lets an automounter's process group wait for itself.
type Automounter struct {
	t      T
	orders io.Writer
	events *bufio.Reader
	child  *process.Child
}

// Orders for what the automounter does when its mount point is opened.
const (
	mountOrder = "mount" // with the arguments of mount(8), separated by tabs
	failOrder  = "fail"
	holdOrder  = "hold"
)

// Automount covers dir with autofs. Opening dir has it call mount(8) with these arguments, of which
// the last is dir; or, for an indirect map (autofs(5)), a directory in dir, which is made when it
// is looked for. The automounter ends with the test.
func Automount(t interface {
	T
	Cleanup(func())
}, dir string, mount ...string) *Automounter {
	t.Helper()
	a, cmd := &Automounter{t: t}, exec.Command("/proc/self/exe")
	kind := "direct"
	if mount[len(mount)-1] != dir {
		kind = "indirect"
	}
	cmd.Env = append(os.Environ(), automountEnv+"="+dir, automountKindEnv+"="+kind)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	orders, err := cmd.StdinPipe()
	Check(t, err)
	events, err := cmd.StdoutPipe()
	Check(t, err)
	a.orders, a.events = orders, bufio.NewReader(events)
	if a.child, err = process.Start(cmd); err != nil {
		t.Fatalf("starting an automounter: %v", err)
	}
	t.Cleanup(a.Stop)
	a.Mounts(mount...)
	return a
}

// Mounts has it call mount(8) with these arguments from now on, also for an opening that it holds.
func (a *Automounter) Mounts(args ...string) { a.t.Helper(); a.order(mountOrder, args...) }

// Fails has it tell the kernel that it cannot mount, from now on.
func (a *Automounter) Fails() { a.t.Helper(); a.order(failOrder) }

// Holds has it let wait every process that opens the mount point, from now on.
func (a *Automounter) Holds() { a.t.Helper(); a.order(holdOrder) }

func (a *Automounter) order(what string, args ...string) {
	a.t.Helper()
	fmt.Fprintln(a.orders, strings.Join(append([]string{what}, args...), "\t"))
	if line, err := a.events.ReadString('\n'); err != nil || line != "ok\n" {
		a.t.Fatalf("the automounter: %q, %v", line, err)
	}
}

// Stop ends the automounter, as the end of the test does: the mount point is served no longer.
func (a *Automounter) Stop() {
	_ = a.child.Kill()
}

// automounter is the life of the other process.
type automounter struct {
	mu     sync.Mutex
	order  []string
	tokens []uint32 // of those that wait
	root   int      // of the autofs
}

// serveAutomount covers dir with autofs and serves it until its standard input ends.
func serveAutomount(dir string) error {
	packets, kernel, err := os.Pipe()
	if err != nil {
		return err
	}
	options := fmt.Sprintf("fd=%d,pgrp=%d,minproto=5,maxproto=5,%s", kernel.Fd(), syscall.Getpgrp(), os.Getenv(automountKindEnv))
	if err := unix.Mount("hosttest", dir, autofsType, 0, options); err != nil {
		return fmt.Errorf("mounting autofs on %s: %w", dir, err)
	}
	if err := kernel.Close(); err != nil { // the kernel has it
		return err
	}
	a := &automounter{order: []string{holdOrder}}
	if a.root, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	go a.packets(packets)
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		a.obey(strings.Split(orders.Text(), "\t"))
		fmt.Println("ok")
	}
	return nil
}

const (
	autofsType = "autofs"

	// struct autofs_v5_packet of linux/auto_fs.h, on 64 bits; the token follows two numbers of four
	// bytes.
	autofsPacket = 304
	autofsReady  = 0x9360 // AUTOFS_IOC_READY
	autofsFail   = 0x9361 // AUTOFS_IOC_FAIL: ENOENT for the processes that wait
)

func (a *automounter) packets(from io.Reader) {
	packet := make([]byte, autofsPacket)
	for {
		if _, err := io.ReadFull(from, packet); err != nil {
			return
		}
		a.mu.Lock()
		a.tokens = append(a.tokens, binary.NativeEndian.Uint32(packet[8:]))
		a.serve()
		a.mu.Unlock()
	}
}

func (a *automounter) obey(order []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.order = order
	a.serve()
}

// serve responds to those that wait, as it was ordered.
func (a *automounter) serve() {
	if a.order[0] == holdOrder {
		return
	}
	for _, token := range a.tokens {
		request := uint(autofsFail)
		if a.order[0] == mountOrder {
			request = autofsReady
			_ = os.Mkdir(a.order[len(a.order)-1], 0o755) // of an indirect map
			if out, err := exec.Command("mount", a.order[1:]...).CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "automounter: %v: %s", err, out)
				request = autofsFail
			}
		}
		if err := unix.IoctlSetInt(a.root, request, int(token)); err != nil && !errors.Is(err, unix.EINVAL) {
			fmt.Fprintln(os.Stderr, "automounter:", err)
		}
	}
	a.tokens = nil
}
