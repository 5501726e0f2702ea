package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	o, err := parseOptions(args, os.Stderr)
	if err != nil {
		return 2
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1e6) + 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if os.Getenv(inside) == "" {
		// Here, where Debian's archive can be reached.
		if _, err := findImage(ctx, o.cache, saying(time.Now())); err != nil {
			fmt.Fprintln(os.Stderr, "vm:", err)
			return 1
		}
	}
	return isolate(ctx, func() int { return perform(ctx, o) })
}

// chapter is a part that can be run alone with -only. It begins with a machine of its own.
type chapter struct {
	name string
	play func(*play)
}

var chapters = []chapter{
	{"selinux", (*play).selinux},
	{"disabled", (*play).disabled},
	{"nfs", (*play).nfs},
	{"shared", (*play).shared},
	{"devices", (*play).devices},
	{"quota", (*play).quota},
	{"kubelet", (*play).kubelet},
	{"cost", (*play).cost},
	{"boot", (*play).bootWithoutAPool},
	{"power", (*play).power},
	{"log", (*play).logWrites},
}

func perform(ctx context.Context, o options) int {
	p, err := newPlay(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		return 1
	}
	defer p.end()
	known := []string{}
	for _, c := range chapters {
		known = append(known, c.name)
		if o.only == "" || slices.Contains(strings.Split(o.only, ","), c.name) {
			p.chapter(c)
		}
	}
	if len(p.verdicts) == 0 {
		fmt.Fprintf(os.Stderr, "vm: -only %q names none of %s\n", o.only, strings.Join(known, ", "))
		return 2
	}
	return p.report()
}

// saying prints lines with the time since begin.
func saying(begin time.Time) func(string, ...any) {
	return func(format string, args ...any) {
		fmt.Printf("[%6.1fs] %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
}
