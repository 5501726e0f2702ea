package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Status is the fields of /proc/PID/status that begin with a number, by name: VmRSS and VmHWM in
// KiB, Threads.
func Status(pid int) (map[string]int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	return parseStatus(string(data)), nil
}

func parseStatus(text string) map[string]int {
	all := map[string]int{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		if fields := strings.Fields(value); len(fields) > 0 {
			if n, err := strconv.Atoi(fields[0]); err == nil {
				all[key] = n
			}
		}
	}
	return all
}

// Descriptors is the number of file descriptors that a process has open.
func Descriptors(pid int) (int, error) {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(all), err
}

// Threads is the number of threads that a process has, those of a process that has ended too, if
// the kernel could not end them; 0 for a process that does not exist.
func Threads(pid int) int {
	all, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return len(all)
}

// tick is the unit of processor time in /proc: USER_HZ is 100 on every architecture that Go
// supports (proc(5)).
const tick = 10 * time.Millisecond

// CPUTime is the processor time that a process has used, in user and kernel mode, in steps of 10
// ms.
func CPUTime(pid int) (time.Duration, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	return parseCPUTime(fields)
}

// parseCPUTime adds utime and stime, fields 14 and 15 of /proc/PID/stat.
func parseCPUTime(fields []string) (time.Duration, error) {
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat has %d fields after the name", len(fields))
	}
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * tick, err
}

// Zombie reports whether the first thread of a process has ended. Other threads may wait in the
// kernel, where no signal ends them.
func Zombie(pid int) bool {
	fields, err := stat(pid)
	return err == nil && len(fields) > 0 && fields[0] == "Z"
}

// stat is the fields of /proc/PID/stat from the third on, the state. The second, the name, may have
// spaces and parentheses in it.
func stat(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	return afterName(data), nil
}

func afterName(stat []byte) []string {
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}
