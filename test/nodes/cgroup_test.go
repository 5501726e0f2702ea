package nodes

import "testing"

// What is not ours, or of a run that goes on, stays.
func TestMayRemove(t *testing.T) {
	const own, running, ended = 10, 20, 30
	alive := func(pid int) bool { return pid == own || pid == running }
	for name, want := range map[string]bool{
		cgroupName("10", "node-a"): true,
		cgroupName("20", "node-a"): false,
		cgroupName("30", "node-a"): true,
		"hostpath-nodes-30":        false,
		"hostpath-nodes--node-a":   false,
		"hostpath-nodes-x-node-a":  false,
		"hostpath-nodes--1-node-a": false,
		"kubepods":                 false,
		"":                         false,
	} {
		if got := mayRemove(name, own, alive); got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
	}
}
