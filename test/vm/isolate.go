package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// inside says that this process is the one in the network namespace.
const inside = "HOSTPATH_VM_INSIDE"

// isolate runs this program again in a network namespace in which there is nothing but loopback: the
// machine can reach the control plane and nobody else.
func isolate(ctx context.Context, body func() int) int {
	if os.Getenv(inside) != "" {
		if err := loopbackUp(); err != nil {
			fmt.Fprintln(os.Stderr, "vm:", err)
			return 1
		}
		return body()
	}
	// Pdeathsig goes with the thread that forked.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	err := cmd.Start()
	if err == nil {
		passOn := context.AfterFunc(ctx, func() { cmd.Process.Signal(syscall.SIGTERM) })
		err = cmd.Wait()
		passOn()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "vm:", err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// loopbackUp sets the flag that ip link set lo up sets.
func loopbackUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("loopback up: %w", err)
	}
	// What is mounted from here on stays in this mount namespace.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
}
