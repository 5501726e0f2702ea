package report

import (
	"testing"
	"time"
)

// The first changes are reported at once, and a state that goes on changing in a bounded number of
// reports, which tell all changes.
func TestChanges(t *testing.T) {
	var c Changes
	now := time.Unix(1e9, 0)
	if due, _, _ := c.Due(now); due {
		t.Error("nothing changed")
	}
	reports, told := 0, 0
	for second := range 600 {
		c.Note()
		due, changes, lasted := c.Due(now)
		if due {
			reports, told = reports+1, told+changes
			if changes > 1 && lasted.Round(time.Second) != time.Duration(changes)*time.Second {
				t.Errorf("%d changes in %s, want one each second", changes, lasted)
			}
		}
		if second < changesBurst && !due {
			t.Errorf("change %d is not reported at once", second)
		}
		now = now.Add(time.Second)
	}
	if most := changesBurst + 600/int(changesEvery.Seconds()) + 1; reports > most || reports < changesBurst+10 {
		t.Errorf("%d reports in ten minutes, want %d at most", reports, most)
	}
	now = now.Add(changesEvery)
	if due, changes, _ := c.Due(now); due {
		told += changes
	}
	if told != 600 {
		t.Errorf("%d of 600 changes were told", told)
	}
	now = now.Add(time.Hour)
	c.Note()
	if due, changes, _ := c.Due(now); !due || changes != 1 {
		t.Error("a change after a calm hour is not reported at once")
	}
}
