package progress

import (
	"testing"
	"time"
)

// What is said of a piece of work, and when there is an estimate.
func TestState(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		name  string
		state State
		want  string
	}{
		{"nothing known", State{Files: 7, Took: time.Minute}, "7 files"},
		{"bytes without a total", State{Files: 7, Bytes: gib, Took: time.Minute}, "7 files, 1.0 GiB"},
		{"a quarter", State{Files: 20, Total: Total{Files: 80}, Took: time.Minute},
			"20 of 80 files, 25%, about 3m0s left"},
		{"seconds", State{Files: 3, Total: Total{Files: 4}, Took: 10 * time.Second},
			"3 of 4 files, 75%, about 3s left"},
		{"not begun", State{Total: Total{Files: 80}, Took: time.Hour}, "0 of 80 files, 0%"},
		{"too early", State{Files: 40, Total: Total{Files: 80}, Took: soonest - 1}, "40 of 80 files, 50%"},
		{"done", State{Files: 80, Total: Total{Files: 80}, Took: time.Minute}, "80 of 80 files, 100%"},
		{"files came", State{Files: 81, Total: Total{Files: 80}, Took: time.Minute}, "81 files"},
		{"one large file", State{Files: 3, Bytes: gib, Total: Total{Files: 4, Bytes: 4 * gib},
			Took: time.Minute}, "3 of 4 files, 1.0 GiB, 25%, about 3m0s left"},
		{"empty files in large directories", State{Files: 5000,
			Total: Total{Files: 10_000, Bytes: 1 << 20}, Took: time.Minute},
			"5000 of 10000 files, 49%, about 1m0s left"},
		{"bytes, and no number of files", State{Files: 3, Bytes: gib, Total: Total{Bytes: 4 * gib},
			Took: time.Minute}, "3 files, 1.0 GiB"},
	} {
		if got := c.state.String(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A Work counts from its beginning; none at all can be counted to.
func TestWork(t *testing.T) {
	w := Begin(Total{Files: 10})
	w.Add(1, 0)
	w.Add(1, 5)
	if now := w.Now(); now.Files != 2 || now.Bytes != 5 || now.Total.Files != 10 || now.Took <= 0 {
		t.Errorf("%+v", now)
	}
	w = nil
	w.Add(1, 1)
}
