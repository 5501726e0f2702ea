package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// options is what the command line says.
type options struct {
	cuts   int    // power cuts
	claims int    // at once, in the load that is cut
	only   string // a comma-separated list of chapters
	seed   uint64
	cache  string // where images are kept between runs
	shell  bool   // leave the machine running at the end
}

const usage = `Usage: vm [flags]

Boots a Debian machine with SELinux enforcing under qemu (emulated: no KVM is needed), runs the built
daemon in it against a control plane on this host, and prints each step with its verdict. Exit code 1
if one failed. Wants root, Debian's archive for the first run, and what make builds in .build.

`

func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("vm", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() { fmt.Fprint(out, usage); flags.PrintDefaults() }
	flags.IntVar(&o.cuts, "cuts", 3, "how often the machine's power is cut under a load of claims")
	flags.IntVar(&o.claims, "claims", 12, "how many claims the load keeps")
	flags.StringVar(&o.only, "only", "", "the chapters to run, with commas between; default: all of them")
	flags.Uint64Var(&o.seed, "seed", 0, "of the random choices; 0: another one each time")
	flags.StringVar(&o.cache, "cache", defaultCache(), "directory for images, which are kept")
	flags.BoolVar(&o.shell, "wait", false, "after each chapter, run lines from standard input in its machine")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, nil
}

func defaultCache() string {
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		base = "/var/cache"
	}
	return filepath.Join(base, "hostpath-provisioner-test")
}
