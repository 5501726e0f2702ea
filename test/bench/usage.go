package main

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// machine time: that of all processes, and all there is.
type machineTime struct{ busy, total time.Duration }

func machineCPU() machineTime {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machineTime{}
	}
	return parseMachineCPU(string(data))
}

// parseMachineCPU reads the first line: user nice system idle iowait irq softirq steal; the
// guests' time is in user already (proc(5)).
func parseMachineCPU(stat string) (m machineTime) {
	line, _, _ := strings.Cut(stat, "\n")
	for i, field := range strings.Fields(line) {
		if i == 0 || i > 8 {
			continue
		}
		n, _ := strconv.ParseInt(field, 10, 64)
		used := time.Duration(n) * 10 * time.Millisecond // USER_HZ is 100 on every architecture that Go supports
		m.total += used
		if i != 4 && i != 5 {
			m.busy += used
		}
	}
	return m
}

// share is the part of the machine's processors that was used between two looks, besides ours.
func share(now, before machineTime, ours time.Duration) float64 {
	total := now.total - before.total
	if total <= 0 {
		return 0
	}
	return max(0, float64(now.busy-before.busy-ours)/float64(total))
}

// processCPU is the processor time of a process so far; 0 if it is gone.
func processCPU(pid int) time.Duration {
	used, _ := process.CPUTime(pid)
	return used
}

// peakMemory is the most that a process had resident, in bytes; 0 if it is gone.
func peakMemory(pid int) int64 {
	status, _ := process.Status(pid)
	return int64(status["VmHWM"]) << 10
}
