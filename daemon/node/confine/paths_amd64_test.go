package confine

import "golang.org/x/sys/unix"

var olderTimes = map[uintptr]string{
	unix.SYS_UTIME: "times by utime", unix.SYS_UTIMES: "times by utimes",
	unix.SYS_FUTIMESAT: "times by futimesat",
}
