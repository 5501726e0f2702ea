package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ticks are processor time as /proc counts it: 100 a second on every architecture that Go knows
// (USER_HZ, proc(5)).
type ticks int64

func (t ticks) duration() time.Duration { return time.Duration(t) * 10 * time.Millisecond }

// processTicks is the processor time of a process so far; 0 if it is gone.
func processTicks(pid int) ticks {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	return parseProcessTicks(string(data))
}

// parseProcessTicks adds utime and stime, the 14th and 15th field. The second may hold spaces and
// parentheses.
func parseProcessTicks(stat string) ticks {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	return number(fields[11]) + number(fields[12])
}

func number(field string) ticks {
	n, err := strconv.ParseInt(field, 10, 64)
	if err != nil {
		return 0
	}
	return ticks(n)
}

// machine time: that of all processes, and all there is.
type machineTime struct{ busy, total ticks }

func machineTicks() machineTime {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machineTime{}
	}
	return parseMachineTicks(string(data))
}

// parseMachineTicks reads the first line: user nice system idle iowait irq softirq steal; the
// guests' time is in user already (proc(5)).
func parseMachineTicks(stat string) (m machineTime) {
	line, _, _ := strings.Cut(stat, "\n")
	for i, field := range strings.Fields(line) {
		if i == 0 || i > 8 {
			continue
		}
		m.total += number(field)
		if i != 4 && i != 5 {
			m.busy += number(field)
		}
	}
	return m
}

// share is the part of the machine's processors that was used between two looks, besides ours.
func share(now, before machineTime, ours ticks) float64 {
	total := now.total - before.total
	if total <= 0 {
		return 0
	}
	return max(0, float64(now.busy-before.busy-ours)/float64(total))
}

// peakMemory is the most that a process had resident, in bytes; 0 if it is gone.
func peakMemory(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			return int64(number(strings.Fields(value)[0])) << 10
		}
	}
	return 0
}

// machine says where the numbers come from.
func machine() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err.Error()
	}
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%d processors, Linux %s, load %s at the start", runtime.NumCPU(), unix.ByteSliceToString(name.Release[:]), strings.Join(strings.Fields(string(load))[:min(3, len(strings.Fields(string(load))))], " "))
}
