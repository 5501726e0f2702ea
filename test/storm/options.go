package main

import (
	"errors"
	"io"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// options is what the command line says.
type options struct {
	time    time.Duration // how long the storm lasts at most, 0: there is none
	cycles  int           // mount changes at most, 0: no limit
	rounds  int           // measurements of the gate, of each kind of unmount
	p99     time.Duration // how long 99 % of them may take, 0: however long
	live    int           // claims at once
	workers int           // that create and delete claims
	seed    uint64
	daemon  string
	keepLog string
	settle  time.Duration // how long nothing may settle
}

const usage = `Usage: storm [flags]

Measures the time from an unmount to the closed gate; then mounts, unmounts and swaps the pool as fast as
it can while claims come and go, and compares the state. Exit code 1 if a gate closed too late or anything
was lost. Wants root, and what make builds in .build; -time 0 only measures, on an idle machine.

`

func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	flags := harness.Flags(name, usage, out)
	short := flags.Bool("short", false, "the form for every change: -time 20s -rounds 100 -p99 0")
	flags.DurationVar(&o.time, "time", 10*time.Minute, "the storm ends after this time; 0: there is none")
	flags.IntVar(&o.cycles, "cycles", 0, "or after so many mount changes; 0: whenever the time is over")
	flags.IntVar(&o.rounds, "rounds", 1000, "how often the time from an unmount to the closed gate is measured, of each kind; 0: never")
	flags.DurationVar(&o.p99, "p99", 20*time.Millisecond, "how long that may take for 99 % of the unmounts; 0: however long")
	flags.IntVar(&o.live, "live", 100, "how many claims exist at once")
	flags.IntVar(&o.workers, "workers", 4, "how many create and delete claims")
	flags.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()%1e6), "of the storm's random choices")
	flags.DurationVar(&o.settle, "settle", harness.Timeout, "how long nothing may settle after the storm, before the rest is called lost")
	flags.StringVar(&o.daemon, "daemon", "", "the daemon's binary; default: the one in .build")
	flags.StringVar(&o.keepLog, "keep-log", "", "file to write the daemon's log to")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if *short {
		if err := harness.Shorten(flags, map[string]string{"time": "20s", "rounds": "100", "p99": "0"}); err != nil {
			return o, err
		}
	}
	switch {
	case o.live < 1 || o.workers < 1:
		return o, errors.New("-live and -workers must be positive")
	case o.time < 0 || o.p99 < 0 || o.rounds < 0 || o.time == 0 && o.rounds == 0:
		return o, errors.New("-time, -p99 and -rounds cannot be negative, and -time or -rounds must be positive")
	}
	return o, nil
}
