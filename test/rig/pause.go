package rig

import "time"

// Pause is how long to wait before the next look at a condition that is awaited since then, from 5 ms to 250 ms: a tenth
// of the time, so that who waits long leaves the processors to others.
func Pause(since time.Time) time.Duration {
	return min(max(time.Since(since)/10, 5*time.Millisecond), 250*time.Millisecond)
}
