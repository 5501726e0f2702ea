package main

import (
	"errors"
	"io"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// options is what the command line says.
type options struct {
	only   string
	play   string        // a file with one order
	states int           // of each world at most, 0: all
	time   time.Duration // for all worlds together
}

const usageText = `Usage: model [flags]

Plays every order of events in small worlds with the product's own controllers, and checks invariants
in each state. Exit code 1 if one does not hold: the shortest order that leads there is printed. Wants
root.

`

func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	flags := harness.Flags(name, usageText, out)
	short := flags.Bool("short", false, "the form for every change: -time 110s")
	flags.StringVar(&o.only, "only", "", "only worlds whose name contains this")
	flags.StringVar(&o.play, "play", "", "play the order in this file, and nothing else")
	flags.IntVar(&o.states, "states", 20_000_000, "so many states of each world at most; 0: all")
	flags.DurationVar(&o.time, "time", time.Hour, "how long all worlds are explored at most, each for an equal part of what is left")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if *short {
		if err := harness.Shorten(flags, map[string]string{"time": "110s"}); err != nil {
			return o, err
		}
	}
	if o.states < 0 || o.time <= 0 {
		return o, errors.New("-states cannot be negative, -time must be positive")
	}
	return o, nil
}
