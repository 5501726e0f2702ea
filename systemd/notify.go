// Package systemd speaks with the service manager: sd_notify, the watchdog and the journal, and
// keeps the unit file with the tests that assert it.
//
// It decides nothing: what to say and when is the daemon's. It does not talk D-Bus, does not log,
// and outside a service every call is silent and succeeds.
package systemd

import (
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notifier sends states to the service manager, over the socket that NOTIFY_SOCKET names
// (sd_notify(3)). Its zero value is ready; it is safe for concurrent use. Where there is no socket
// nothing is sent and nothing is wrong. An error means that the manager could not be told; it is
// for the log alone.
type Notifier struct{}

// Ready says that start-up or a reload has finished, with a status line for people. It also resets
// the watchdog, which Extend has put off.
func (Notifier) Ready(status string) error { return send("READY=1", line(status), "WATCHDOG=1") }

// Status is the sentence that `systemctl status` shows.
func (Notifier) Status(status string) error { return send(line(status)) }

// Reloading says that the configuration is being read again; Ready ends it. The time is for
// Type=notify-reload (systemd 253 and later), which would otherwise take the response to an earlier
// SIGHUP for this one; older managers ignore it.
func (Notifier) Reloading() error {
	return send("RELOADING=1", strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
}

// Stopping says that shutdown has begun, so that the manager does not take the end for a failure.
func (Notifier) Stopping(status string) error { return send("STOPPING=1", line(status)) }

// Alive resets the watchdog (WatchdogSec=). Call it at half of WatchdogInterval or more often, and
// only from what proves that work goes on.
func (Notifier) Alive() error { return send("WATCHDOG=1") }

// Extend asks for that much more time, from now, for the start, reload or stop that is under way
// (systemd 236 and later). It has to be repeated before the time is over; nothing else bounds it.
// The watchdog is put off as well, at any time (service_extend_timeout in systemd's
// core/service.c): never call it after Ready.
func (Notifier) Extend(more time.Duration) error {
	return send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", more.Microseconds()))
}

// line is a STATUS assignment. A newline would begin the next assignment, whatever follows it.
func line(status string) string {
	return "STATUS=" + strings.Join(strings.Fields(status), " ")
}

func send(assignments ...string) error {
	if _, err := daemon.SdNotify(false, strings.Join(assignments, "\n")); err != nil {
		return fmt.Errorf("telling systemd %s: %w", assignments[0], err)
	}
	return nil
}

// WatchdogInterval is the time within which Alive has to be called (WATCHDOG_USEC,
// sd_watchdog_enabled(3)). It is 0 where no watchdog is asked of this process.
func WatchdogInterval() (time.Duration, error) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0, fmt.Errorf("the watchdog's interval: %w", err)
	}
	return interval, nil
}
