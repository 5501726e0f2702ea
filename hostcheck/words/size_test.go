package words

import (
	"math"
	"testing"
)

func TestSize(t *testing.T) {
	cases := []struct {
		name string
		n    uint64
		want string
	}{
		{"nothing", 0, "0 B"},
		{"bytes have no decimal", 1023, "1023 B"},
		{"the first of a unit", 1 << 10, "1.0 KiB"},
		{"below the next unit", 1023 << 20, "1023 MiB"},
		{"rounded up to the next unit", 1<<30 - 1, "1.0 GiB"},
		{"one decimal", 1<<40 + 1<<39, "1.5 TiB"},
		{"below 100", 99<<30 + 921<<20, "99.9 GiB"},
		{"rounded up to 100", 100<<30 - 1, "100 GiB"},
		{"no decimal from 100 on", 150<<30 + 1<<29 - 1, "150 GiB"},
		{"the most that there is", math.MaxUint64, "16.0 EiB"},
	}
	for _, c := range cases {
		if got := Size(c.n); got != c.want {
			t.Errorf("%s: Size(%d) = %q, want %q", c.name, c.n, got, c.want)
		}
	}
}
