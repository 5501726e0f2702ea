package report

import "time"

// Changes bounds the reports of a state that changes to and fro, as that of a pool whose mount
// comes and goes. The first changes are reported at once; then one report in changesEvery tells the
// state as it is by then, and how often it changed. The zero value is ready for use, by one
// goroutine.
type Changes struct {
	spent     float64   // reports that count still: one less each changesEvery
	at        time.Time // when that was so
	last      time.Time // when a change was reported last
	unwritten int       // changes since then
}

const (
	// changesBurst is how many reports are made at once: a few mounts and unmounts by hand.
	changesBurst = 6
	changesEvery = 30 * time.Second
)

// Note notes a change.
func (c *Changes) Note() { c.unwritten++ }

// Due reports whether the state is to be reported now. changes is how many there were since the
// last report, which was lasted ago; both are for the message if changes is more than one.
func (c *Changes) Due(now time.Time) (due bool, changes int, lasted time.Duration) {
	c.spent = max(0, c.spent-now.Sub(c.at).Seconds()/changesEvery.Seconds())
	c.at = now
	if c.unwritten == 0 || c.spent > changesBurst-1 {
		return false, 0, 0
	}
	changes, lasted = c.unwritten, now.Sub(c.last)
	c.spent, c.unwritten, c.last = c.spent+1, 0, now
	return true, changes, lasted
}
