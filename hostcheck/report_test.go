package hostcheck

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

func TestReserve(t *testing.T) {
	for _, c := range []struct {
		name           string
		percent        float64
		bytes, size    uint64
		available      uint64
		reserve, free  uint64
		open, removing bool
	}{
		{"no reserve", 0, 0, 1000, 0, 0, 0, true, true},
		{"reserve just left", 5, 0, 1000, 50, 50, 0, true, true},
		{"a byte less than the reserve", 5, 0, 1000, 49, 50, 0, false, true},
		{"reserve in bytes", 0, 100, 1000, 300, 100, 200, true, true},
		{"reserve larger than the filesystem", 0, 2000, 1000, 900, 2000, 0, false, true},
		{"negative percentage", -1, 0, 1000, 300, 0, 300, true, true},
		{"more than the whole", 200, 0, 1000, 300, 1000, 0, false, true},
	} {
		e, f := good()
		e.ReservePercent, e.ReserveBytes = c.percent, c.bytes
		f.Space.Size, f.Space.Available = c.size, c.available
		r := Check(e, f)
		if r.Reserve != c.reserve || r.Free != c.free || r.Open() != c.open || r.Removable() != c.removing {
			t.Errorf("%s: %+v: %+v", c.name, c, r)
		}
	}
}

func TestInodes(t *testing.T) {
	for _, c := range []struct {
		name         string
		inodes, free uint64
		full         bool
	}{
		{"filesystem that counts none", 0, 0, false},
		{"few, one free", 10, 1, false},
		{"few, none free", 10, 0, true},
		{"one in a hundred free", 4096, 40, false},
		{"less than one in a hundred free", 4096, 39, true},
		{"many, a thousand free", 1 << 40, 1000, false},
		{"many, less than a thousand free", 1 << 40, 999, true},
	} {
		e, f := good()
		f.Space.Inodes, f.Space.InodesFree = c.inodes, c.free
		if got := slices.Contains(reasons(Check(e, f)), ReasonLowInodes); got != c.full {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A full pool says so, but a closed one is closed for its own reason, whatever the order.
func TestClosedComesBeforeFull(t *testing.T) {
	r := Report{Findings: []Finding{{Reason: "W", Severity: Warn}, {Reason: "F", Severity: Full}, {Reason: "C", Severity: Close}}}
	if f, closed := r.Closed(); !closed || f.Reason != "C" || r.Removable() {
		t.Fatalf("%+v %v", f, closed)
	}
	r.Findings = r.Findings[:2]
	if f, closed := r.Closed(); !closed || f.Reason != "F" || !r.Removable() || r.Open() {
		t.Fatalf("%+v %v", f, closed)
	}
	r.Findings = r.Findings[:1]
	if _, closed := r.Closed(); closed || !r.Open() {
		t.Fatal("a warning closed the pool")
	}
}

func TestSeverityText(t *testing.T) {
	for _, s := range []Severity{Close, Full, Warn} {
		data, err := json.Marshal(s)
		must(t, err)
		var back Severity = -1
		if err := json.Unmarshal(data, &back); err != nil || back != s {
			t.Errorf("%s: %v, %v", data, back, err)
		}
	}
	var s Severity
	if err := json.Unmarshal([]byte(`"fatal"`), &s); err == nil {
		t.Error("an unknown severity was taken")
	}
	if Severity(7).String() != "close" || Severity(-1).String() != "close" {
		t.Error("an unknown severity must count as the worst")
	}
}

// What was accepted is left out of the warnings, and of nothing else.
func TestWithout(t *testing.T) {
	r := Report{Findings: []Finding{{Reason: "A", Severity: Warn}, {Reason: "B", Severity: Warn}, {Reason: "A", Severity: Close}, {Reason: "A", Severity: Full}}}
	got := r.Without(func(reason string) bool { return reason == "A" })
	if fmt.Sprint(got.Findings) != fmt.Sprint(r.Findings[1:]) || got.Open() || got.Removable() {
		t.Errorf("%v", got.Findings)
	}
}
