package cost

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// good is a run that misses no limit.
func good() results {
	return results{Rows: []row{
		{Foreign: 0, Contender: daemonIndexed, Resident: 24, First: time.Second / 2},
		{Foreign: 0, Contender: daemonAll, Resident: 24},
		{Foreign: 0, Contender: plain, StartBytes: 1000},
		{Foreign: 100, Contender: daemonIndexed, Resident: 26, StartBytes: 1000, First: time.Second, Changed: 100, ChangeByte: 100},
		{Foreign: 100, Contender: daemonAll, Resident: 36, StartBytes: 50_000, Changed: 100, ChangeByte: 100_000, First: time.Minute},
		{Foreign: 100, Contender: plain, StartBytes: 1_000_000},
	}}
}

func TestLimits(t *testing.T) {
	const indexed, unindexed = 3, 4
	for _, test := range []struct {
		name   string
		change func(rows []row)
		missed []string // the beginnings of what is printed
	}{
		{"all as it should be", func([]row) {}, nil},
		{"memory grows with the cluster", func(rows []row) { rows[indexed].Resident = 26.1 }, []string{"100 foreign claims: MiB resident with the index"}},
		{"more than is left for anybody", func(rows []row) { rows[0].Resident, rows[indexed].Resident = 41, 41 }, []string{"0 foreign claims: MiB", "100 foreign claims: MiB"}},
		{"memory without the index", func(rows []row) { rows[unindexed].Resident = 36.1 }, []string{"100 foreign claims: MiB resident without"}},
		{"bytes at the start", func(rows []row) { rows[indexed].StartBytes++ }, []string{"100 foreign claims: share of the informers' bytes with the"}},
		{"bytes at the start without the index", func(rows []row) { rows[unindexed].StartBytes++ }, []string{"100 foreign claims: share of the informers' bytes without"}},
		{"events of foreign claims", func(rows []row) { rows[indexed].ChangeByte++ }, []string{"100 foreign claims: bytes received with the index"}},
		{"a late volume", func(rows []row) { rows[indexed].First++ }, []string{"100 foreign claims: seconds to the first volume"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := good()
			test.change(r.Rows)
			if got := r.missed(); !slices.EqualFunc(got, test.missed, strings.HasPrefix) {
				t.Errorf("got %q, want %q", got, test.missed)
			}
		})
	}
}

// An index that was not found, or not found whole, is told from one that was, in both files.
func TestKnows(t *testing.T) {
	for text, want := range map[string]bool{"": false, "\nhostpath-provisioner/claim in (,p)": false, `{"identity":""}`: false, "a/1 b/1\nselection": true, `{"identity":"a/1 b/1"}`: true} {
		if knows([]byte(text)) != want {
			t.Errorf("of %q: %t", text, !want)
		}
	}
}
