package harness

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is a line that tells on which machine something was measured, and how busy it was.
func Machine() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err.Error()
	}
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%d processors, Linux %s, load %s at the start", runtime.NumCPU(), unix.ByteSliceToString(name.Release[:]), strings.Join(strings.Fields(string(load))[:min(3, len(strings.Fields(string(load))))], " "))
}
