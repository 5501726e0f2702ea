package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func main() {
	if os.Getenv(socketEnv) != "" { // this copy is to be the daemon
		fmt.Fprintln(os.Stderr, "crash: becoming the daemon:", become(os.Args))
		os.Exit(1)
	}
	os.Exit(hosttest.Isolate(run))
}

func run() (code int) {
	opt, err := parseOptions(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "crash:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	w := &world{opt: opt, ctx: ctx, begin: time.Now()}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			fmt.Printf("\ncrash: %s\n", r)
			code = 1
		default:
			panic(r)
		}
		w.stop()
	}()
	return w.play()
}

// play is the whole story.
func (w *world) play() int {
	w.build()
	var all report
	for _, op := range operations {
		if w.ctx.Err() == nil && strings.Contains(op.name, w.opt.only) {
			all = append(all, w.prove(op))
		}
	}
	if w.opt.kills > 0 && w.ctx.Err() == nil {
		all = append(all, w.killAtRandom())
	}
	w.say("%d volumes stayed whole in the trash, killed between the removal of the object and the note of it", w.stayed)
	ok := all.print(os.Stdout)
	if strangers := w.killer.strangers(); len(strangers) > 0 {
		fmt.Println("the daemon makes system calls that this program does not know: " + strings.Join(strangers, ", "))
		ok = false
	}
	if w.ctx.Err() != nil {
		fmt.Println("interrupted")
		ok = false
	}
	if ok {
		fmt.Printf("nothing was leaked, lost or made twice, in %s\n", time.Since(w.begin).Round(time.Second))
		return 0
	}
	fmt.Printf("NOT PROVEN, in %s\n", time.Since(w.begin).Round(time.Second))
	return 1
}
