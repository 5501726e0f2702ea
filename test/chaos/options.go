package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// options is what the command line says.
type options struct {
	time    time.Duration // how long the API is unkind in each phase
	rate    int           // claims made a second
	live    int           // claims at once
	seed    uint64
	only    []string // phases; empty: all
	scopes  []string // of the pool; each is a story of its own
	scope   string   // of this story
	short   bool
	daemon  string
	keepLog string
	settle  time.Duration // how long everything may take to settle after a phase
}

const usage = `Usage: chaos [flags]

Puts an unkind API between the daemon and a real API server while claims come and go, and compares
the state after each phase. Exit code 1 if anything was lost, made twice, left over or asked too often.
Wants root, and what make builds in .build.

`

func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	flags := harness.Flags(name, usage, out)
	flags.BoolVar(&o.short, "short", false, "the form for every change: -time 4s, and not the phases that need minutes")
	flags.DurationVar(&o.time, "time", time.Minute, "how long the API is unkind in each phase")
	flags.IntVar(&o.rate, "rate", 25, "how many claims are made a second")
	flags.IntVar(&o.live, "live", 60, "how many claims exist at once")
	flags.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()%1e6), "of the random choices")
	only := flags.String("only", "", "phases to play after the fair one, with commas; all: "+strings.Join(phaseNames(), ","))
	scopes := flags.String("scopes", strings.Join(allScopes, ","), "scopes of the pool to play with, each on a control plane of its own, of "+strings.Join(allScopes, ",")+"; -short plays restored alone, and at the same time, with all but the first")
	flags.DurationVar(&o.settle, "settle", 3*time.Minute, "how long everything may take to settle after a phase, and what a phase has to see to come")
	flags.StringVar(&o.daemon, "daemon", "", "the daemon's binary; default: the one in .build")
	flags.StringVar(&o.keepLog, "keep-log", "", "file to write the log of the daemons to; of the second scope and on, with .SCOPE at its end")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.short {
		if err := harness.Shorten(flags, map[string]string{"time": "4s"}); err != nil {
			return o, err
		}
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	o.scopes = strings.Split(*scopes, ",")
	for _, scope := range o.scopes {
		if !slices.Contains(allScopes, scope) {
			return o, fmt.Errorf("there is no scope %q", scope)
		}
	}
	for _, name := range o.only {
		if !slices.Contains(phaseNames(), name) {
			return o, fmt.Errorf("there is no phase %q", name)
		}
	}
	if o.live < 1 || o.rate < 1 || o.time <= 0 {
		return o, fmt.Errorf("-live, -rate and -time must be positive")
	}
	return o, nil
}

var allScopes = []string{plan.ScopeNode, plan.ScopeShared, plan.ScopeEveryNode}

// stories are what is played: in the short form, with all scopes but the first, only the phase in
// which the scopes differ most.
func (o options) stories() (all []options) {
	for i, scope := range o.scopes {
		story := o
		story.scope = scope
		if o.short && i > 0 && len(o.only) == 0 {
			story.only, story.time = []string{"restored"}, min(o.time, 2*time.Second)
		}
		if i > 0 && o.keepLog != "" {
			story.keepLog += "." + scope
		}
		all = append(all, story)
	}
	return all
}
