package main

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// inside says that this process is the one in the network namespace.
const inside = "HOSTPATH_VM_INSIDE"

// isolate runs this program again in a network namespace in which there is nothing but loopback:
// the machine can reach the control plane and nothing else.
func isolate(ctx context.Context, body func() int) int {
	if os.Getenv(inside) != "" {
		err := hosttest.LoopbackUp()
		if err == nil { // what is mounted from here on stays in this mount namespace
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "vm:", err)
			return 1
		}
		return body()
	}
	cmd := process.Self(inside + "=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	child, err := process.Start(cmd)
	if err == nil {
		passOn := context.AfterFunc(ctx, func() { child.Signal(syscall.SIGTERM) })
		err = child.Wait()
		passOn()
	}
	return process.ExitCode("vm", err)
}
