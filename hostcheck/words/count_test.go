package words

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 volumes", 1: "1 volume", 2: "2 volumes", 100000: "100000 volumes"} {
		if got := Count(n, "volume"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
