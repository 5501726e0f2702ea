package crash

import "strings"

// givenUp asks for a copy and takes that back while the daemon is in the middle of it: the daemon
// waits there until it has been told. One that was killed before is told at its next start.
func givenUp(ask step) step {
	return func(t *testCase) {
		point, _, _ := strings.Cut(t.opt.first(duringCopy), " #")
		came, goOn := make(chan struct{}, 1), make(chan struct{})
		t.killer.Hold(func(what string) <-chan struct{} {
			if what != point {
				return nil
			}
			select {
			case came <- struct{}{}:
			default:
			}
			return goOn
		})
		defer t.killer.Hold(nil)
		defer close(goOn)
		ask(t)
		if !t.until(func() bool { return len(came) > 0 || !t.Daemon.Running() }) {
			t.Fatalf("operation %q: the daemon never came to %q", t.op.name, point)
		}
		t.dropped()
		t.until(func() bool { return t.killer.Quiet(calm) })
	}
}
