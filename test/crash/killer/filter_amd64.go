package killer

import "golang.org/x/sys/unix"

// harmlessHere are calls that other architectures do not have.
var harmlessHere = []uint32{unix.SYS_ARCH_PRCTL, unix.SYS_EPOLL_WAIT, unix.SYS_POLL, unix.SYS_READLINK, unix.SYS_ACCESS}
