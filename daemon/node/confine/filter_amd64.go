package confine

import "golang.org/x/sys/unix"

// refusedHere are older system calls, which arm64 does not have. The Go library uses none of them.
var refusedHere = []uint32{
	unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
	unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_MKNOD, unix.SYS_CREATE_MODULE, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT,
}

func (p program) older(bits uint32) program {
	return p.creating(unix.SYS_OPEN, 1, bits).when(unix.SYS_CREAT, anyOf(1, bits)...)
}
