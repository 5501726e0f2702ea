package config

import (
	"errors"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// csiPool is minimal with a source whose pods are known.
const csiPool = "provisioner = 'hostpath.example'\n" + minimal + "source = 'csi'\n"

// One kind of snapshots stops pods, and only with the source csi.
func TestPauses(t *testing.T) {
	for snapshots, pauses := range map[string]bool{
		plan.SnapshotsOff: false, plan.SnapshotsLive: false, plan.SnapshotsPaused: true, plan.SnapshotsSnapshot: false, plan.SnapshotsCopy: false,
	} {
		p := load(t, csiPool+"snapshots = '"+snapshots+"'\n").Pools[0]
		if p.Pauses() != pauses || p.TakesSnapshots() != (snapshots != plan.SnapshotsOff) || p.PauseLimit != 5*time.Second {
			t.Errorf("%s: pauses %t, takes snapshots %t, limit %s", snapshots, p.Pauses(), p.TakesSnapshots(), p.PauseLimit)
		}
	}
}

// What is wrong with the keys is said with all that is wrong: more than one line where more than
// one key is.
func TestPauseRefusals(t *testing.T) {
	const unknown = `config.toml:5: pool.p.snapshots: "paused" is for volumes with source "csi": the pods of others are not known`
	for _, c := range []struct{ name, config, want string }{
		{"source of the host", minimal + "source = 'hostPath'\nsnapshots = 'paused'\n", unknown},
		{"source local", minimal + "source = 'local'\nsnapshots = 'paused'\n", unknown},
		{"source not said", minimal + "\nsnapshots = 'paused'\n", unknown},
		{"source misspelt", minimal + "source = 'CSI'\nsnapshots = 'paused'\n", `config.toml:4: pool.p.source: "CSI" is not one of hostPath, local, csi`},
		{"scope shared", csiPool + "scope = 'shared'\nsnapshots = 'paused'\n", `config.toml:7: pool.p.snapshots: "paused" is for volumes of one node, and the pool's scope is "shared"`},
		{"scope every-node", minimal + "scope = 'every-node'\nsnapshots = 'paused'\n",
			"config.toml:5: pool.p.snapshots: \"paused\" is for volumes of one node, and the pool's scope is \"every-node\"\n" + unknown},
		{"snapshots misspelt", csiPool + "snapshots = 'pause'\n", `config.toml:6: pool.p.snapshots: "pause" is not one of off, live, paused, snapshot, copy`},
		{"snapshots as a truth", csiPool + "snapshots = true\n", "config.toml:6: pool.p.snapshots: want a string, got true"},
		{"limit misspelt", csiPool + "pause_limits = '5s'\n", `config.toml:6: pool.p.pause_limits: unknown key; did you mean "pause_limit"?`},
		{"limit as a number", csiPool + "pause_limit = 5\n", "config.toml:6: pool.p.pause_limit: want a string, got the number 5"},
		{"limit outside of a pool", "pause_limit = '5s'\n" + csiPool, "config.toml:1: pause_limit: unknown key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, c.config)
			if _, err := Load(file); err == nil || said(file, err.Error()) != c.want {
				t.Errorf("got\n%v\nwant\n%s", err, c.want)
			}
		})
	}
}

// A limit is a time with its unit, and both bounds are allowed. The refusal says what is.
func TestPauseLimit(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10ms": 10 * time.Millisecond, "0.01s": 10 * time.Millisecond, "10000us": 10 * time.Millisecond, "1500ms": 1500 * time.Millisecond,
		"1s500ms": 1500 * time.Millisecond, "20s": 20 * time.Second, "0.25m": 15 * time.Second,
	} {
		if p := load(t, csiPool+"snapshots = 'paused'\npause_limit = '"+text+"'\n").Pools[0]; p.PauseLimit != want {
			t.Errorf("%s: %s, want %s", text, p.PauseLimit, want)
		}
	}
	for _, text := range []string{"", "0", "5", "9.999999ms", "20.000000001s", "1m", "-5s", "5 s", "5S", "5 seconds", "5d", "s", "1e1s", "inf", "9999999h", "10%"} {
		_, err := Load(write(t, csiPool+"pause_limit = '"+text+"'\n"))
		var all Errors
		if want := `"` + text + `" is not a time from 10ms to 20s, such as "5s"`; !errors.As(err, &all) || len(all) != 1 || all[0].Text != want || all[0].Key != "pool.p.pause_limit" || all[0].Line != 6 {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// A later file changes one of the two keys and leaves the other. What the whole has is checked, not
// each file.
func TestPauseOfTwoFiles(t *testing.T) {
	base := csiPool + "snapshots = 'paused'\npause_limit = '2s'\n"
	for _, c := range []struct {
		later  string
		pauses bool
		limit  time.Duration
	}{
		{"pause_limit = '3s'", true, 3 * time.Second},
		{"snapshots = 'live'", false, 2 * time.Second},
		{"snapshots = 'live'\nsource = 'hostPath'", false, 2 * time.Second},
	} {
		if p := load(t, base, "conf.d/a.toml", "[pool.p]\n"+c.later+"\n").Pools[0]; p.Pauses() != c.pauses || p.PauseLimit != c.limit {
			t.Errorf("%s: %t, %s", c.later, p.Pauses(), p.PauseLimit)
		}
	}
	file := write(t, base, "conf.d/a.toml", "[pool.p]\nsource = 'hostPath'\n")
	const want = `config.toml:6: pool.p.snapshots: "paused" is for volumes with source "csi": the pods of others are not known`
	if _, err := Load(file); err == nil || said(file, err.Error()) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
