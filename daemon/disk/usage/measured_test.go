package usage

import (
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Probes that say the same are enough when there are some; those that differ much go on until
// enough entries were looked at. An estimate is their mean, and no less than what was seen.
func TestSample(t *testing.T) {
	var same, differ Sample
	for i := range fewestProbes {
		if same.Enough() || differ.Enough() {
			t.Fatalf("%d probes are enough", i)
		}
		same.Add(100, 2)
		differ.Add(float64(i%2)*100, 2)
	}
	if !same.Enough() || differ.Enough() {
		t.Errorf("equal probes: %t, other ones: %t", same.Enough(), differ.Enough())
	}
	many := differ
	for range 100 {
		many = many.Plus(differ)
	}
	if !many.Enough() {
		t.Error("thousands of probes are not enough")
	}
	if differ.Entries = mostEntries; !differ.Enough() {
		t.Error("it goes on without end")
	}
	for _, c := range []struct {
		of   Sample
		seen Measured
		want Measured
	}{
		{same, Measured{Bytes: 7, Inodes: 1}, Measured{Bytes: 100, Inodes: 2, Estimate: true}},
		{differ, Measured{}, Measured{Bytes: 50, Inodes: 2, Estimate: true}},
		{same, Measured{Bytes: 700, Inodes: 9}, Measured{Bytes: 700, Inodes: 9, Estimate: true}},
		{Sample{}, Measured{Bytes: 7, Inodes: 1}, Measured{Bytes: 7, Inodes: 1, Estimate: true}},
	} {
		if got := c.of.Estimate(c.seen); got != c.want {
			t.Errorf("%+v and %+v: %+v, want %+v", c.of, c.seen, got, c.want)
		}
	}
}

// Volumes have their turns one after the other, those that were never read first; one that failed
// has to wait as well. What is not in the pool has none, and no figure.
func TestFigures(t *testing.T) {
	var f Figures
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	next := func(before time.Time, want string) {
		t.Helper()
		if r, _, is := f.Next(before); r.PV != want || is != (want != "") {
			t.Errorf("next is %q, %t, want %q", r.PV, is, want)
		}
	}
	all := []record.Record{
		{PV: "a", Kind: record.Volume, Place: record.InPool, Namespace: "ns", Claim: "c"},
		{PV: "t", Kind: record.Volume, Place: record.InTrash},
		{PV: "s", Kind: record.Snapshot, Place: record.InPool},
	}
	next(noon, "")
	if p := f.Pool(); !p.Oldest.IsZero() || len(p.Measured) > 0 {
		t.Errorf("of nothing: %+v", p)
	}
	f.Expect(all)
	next(noon, "a")
	f.Begin("a", noon)
	next(noon, "s")
	f.Begin("s", noon.Add(time.Second))
	next(noon, "")
	next(noon.Add(time.Minute), "a")
	f.Set("a", Measured{Bytes: 5, Inodes: 1, At: noon})
	if p := f.Pool(); !p.Oldest.IsZero() || p.Used != 5 || len(p.Volumes) != 1 {
		t.Errorf("with one figure: %+v", p)
	}
	f.Set("s", Measured{Bytes: 6, Inodes: 1, Estimate: true, At: noon.Add(-time.Hour)})
	f.Expect(all)
	p := f.Pool()
	if p.Used != 11 || !p.Estimate || !p.Oldest.Equal(noon.Add(-time.Hour)) ||
		len(p.Measured) != 2 {
		t.Errorf("with both: %+v", p)
	}
	if len(p.Volumes) != 1 || p.Volumes[0].Claim != "c" || p.Volumes[0].Bytes != 5 ||
		p.Volumes[0].Measured == nil || p.Volumes[0].Measured.Estimate {
		t.Errorf("the volumes are %+v", p.Volumes)
	}
	next(noon.Add(time.Second), "a")
	f.Expect(all[:2])
	f.Begin("a", noon.Add(time.Hour))
	next(noon.Add(time.Minute), "")
	if p := f.Pool(); p.Used != 5 || p.Estimate || len(p.Measured) != 1 {
		t.Errorf("after the snapshot went: %+v", p)
	}
	f.Expect(all)
	next(noon, "s")
}
