// Command rights shows that the daemons need each right that the manifests give, and that none is
// unused. It takes one right after the other out of the roles of a real API server and runs a test:
// the API server has to refuse the daemon just that, and the test has to be red. With -used it
// reads the audit logs of a whole run of tests (HOSTPATH_AUDIT in their environment) and names what
// was never asked for.
//
// The table is in table.go. That the tests are green with all rights is shown by their own run.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/packaging"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("rights", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "only rights that match this regular expression")
	used := flags.String("used", "", "name the rights that are in no audit log of this directory")
	parallel := flags.Int("parallel", 2, "how many tests run at the same time")
	if flags.Parse(args) != nil {
		return 2
	}
	matches, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(stderr, "rights:", err)
		return 2
	}
	if *used != "" {
		err = unused(stdout, *used)
	} else {
		err = needed(ctx, stdout, *parallel, slices.DeleteFunc(slices.Clone(table), func(r row) bool { return !matches.MatchString(r.right) }))
	}
	if err != nil {
		fmt.Fprintln(stderr, "rights:", err)
		return 1
	}
	return 0
}

// given are the rights that the manifests give, each once.
func given() (all []string) {
	for _, r := range packaging.Rights(packaging.Options{Namespace: "n", Provisioner: "p", Confine: packaging.Confinement{Paths: []string{"/srv"}}}) {
		right := r.Verb + " " + r.Resource
		if r.Subresource != "" {
			right += "/" + r.Subresource
		}
		all = append(all, right)
	}
	return slices.Compact(slices.Sorted(slices.Values(all)))
}

// unused names the rights that no daemon asked for.
func unused(out io.Writer, dir string) error {
	asked, err := requests(dir)
	if err != nil {
		return err
	}
	lacks := slices.DeleteFunc(given(), func(right string) bool { return asked[right].sent > 0 || excused(right) })
	for _, right := range lacks {
		fmt.Fprintln(out, "UNUSED", right)
	}
	fmt.Fprintf(out, "%d rights, %d of them unused\n", len(given()), len(lacks))
	if len(lacks) > 0 {
		return fmt.Errorf("%d rights are unused", len(lacks))
	}
	return nil
}

// excused reports whether a whole run need not ask for a right: only API servers of another kind,
// or none of the tests of the run, want it.
func excused(right string) bool {
	return elsewhere[right] != "" || slices.ContainsFunc(table, func(r row) bool { return r.right == right && r.setting == noWatchList })
}

// needed runs the rows' tests without their rights.
func needed(ctx context.Context, out io.Writer, parallel int, rows []row) error {
	dir, err := os.MkdirTemp("", "rights-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, where := range []string{"e2e", "everynode", "identity"} {
		if err := compile(ctx, dir, where); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	var running sync.WaitGroup
	slots, failed := make(chan struct{}, max(1, parallel)), 0
	for i, r := range rows {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			began := time.Now()
			verdict := r.try(ctx, dir, filepath.Join(dir, fmt.Sprint(i)))
			mu.Lock()
			defer mu.Unlock()
			if verdict != "" {
				failed++
			}
			fmt.Fprintf(out, "%-12s %5.1fs without %s: %s (%s, test/%s)\n", cmp.Or(verdict, "NEEDED"), time.Since(began).Seconds(), r.right, r.breaks, r.test, r.where)
		})
	}
	running.Wait()
	if failed > 0 {
		return fmt.Errorf("%d of %d rights were not seen to be needed", failed, len(rows))
	}
	fmt.Fprintf(out, "each of %d rights is needed\n", len(rows))
	return nil
}

func compile(ctx context.Context, dir, where string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-trimpath", "-c", "-o", filepath.Join(dir, where), "./test/"+where)
	cmd.Dir, cmd.Env = rig.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// try runs the row's test without its right. The verdict is "" if the API server refused that and
// the test is red.
func (r row) try(ctx context.Context, binaries, dir string) (verdict string) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "BROKEN"
	}
	ctx, cancel := context.WithTimeout(ctx, 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, r.where), "-test.run", "^"+r.test+"$", "-test.timeout", "7m")
	cmd.Dir = filepath.Join(rig.Root(), "test", r.where)
	cmd.Env = append(os.Environ(), fixture.Without+"="+r.right, fixture.Audited+"="+dir, fixture.Timeout+"=30s", r.setting)
	out, err := cmd.CombinedOutput()
	asked, auditErr := requests(dir)
	switch {
	case ctx.Err() != nil, auditErr != nil:
		return "BROKEN"
	case err == nil:
		return "GREEN"
	case !strings.Contains(string(out), "--- FAIL: "+r.test):
		return "BROKEN"
	case asked[r.right].refused == 0:
		return "NOT REFUSED"
	}
	return ""
}
