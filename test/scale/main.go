// Command scale measures what a node costs in a large cluster: the memory and the bytes of the
// daemon, with and without the claim index, of a provisioner on the usual library, and of
// client-go's informers alone, beside claims and volumes of other nodes; and how soon each of them
// makes its first volume. All are measured in one run, on one API server. What misses a limit is
// printed, and the exit code is 1.
//
// With -look it measures what a claim costs a daemon that looks for a volume that is kept for it
// (look.go).
//
// With -storm it measures what many nodes cost the API server while claims come (storm.go).
//
// The volume controllers of kube-controller-manager are off in the first part, so that claims of
// other nodes stay as they were made. Bytes are those that the API server sends, TLS included. A
// time depends on the machine: one other program is enough to miss the limit.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

func main() { os.Exit(harness.Main("scale", parseOptions, play)) }

// options is what the command line says.
type options struct {
	sizes     []int // foreign claims, in ascending order
	change    int   // of these change while they are watched
	starts    int   // of each daemon at each size
	look      bool
	storm     bool
	nodes     int // with a real provisioner, in a storm
	simulated int
	claims    int // of a storm
	json      string
	build     string
}

const usage = `Usage: scale [flags]

Measures the memory and the bytes that a node needs beside claims and volumes of other nodes. Exit code 1 if
a limit is missed. Wants root, what make builds in .build, and some 6 GB of memory for 100,000 claims.

`

func parseOptions(args []string, out io.Writer) (o options, err error) {
	flags := harness.Flags("scale", usage, out)
	sizes := flags.String("sizes", "0,10000,100000", "how many claims, with a volume each, other nodes have; the first is what the others are compared with")
	flags.IntVar(&o.change, "change", 10000, "how many of them change while they are watched, or all if they are fewer")
	flags.IntVar(&o.starts, "starts", 3, "how often each daemon is started at each size")
	flags.BoolVar(&o.look, "look", false, "measure what the look for kept volumes costs a claim, and nothing else")
	flags.BoolVar(&o.storm, "storm", false, "measure what claims cost that come at once to a cluster of many nodes, and nothing else")
	flags.IntVar(&o.nodes, "nodes", 10, "how many nodes of a storm have a real provisioner")
	flags.IntVar(&o.simulated, "simulated", 500, "how many more are simulated")
	flags.IntVar(&o.claims, "claims", 5000, "how many claims a storm has")
	flags.StringVar(&o.json, "json", "", "a file that the results are written to")
	flags.StringVar(&o.build, "build", filepath.Join(rig.Root(), ".build"), "where the programs are")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for _, text := range strings.Split(*sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < 0 || len(o.sizes) > 0 && size <= o.sizes[len(o.sizes)-1] {
			return o, fmt.Errorf("-sizes: %q is no number above the one before", text)
		}
		o.sizes = append(o.sizes, size)
	}
	if min(o.starts, o.change, o.nodes, o.simulated, o.claims) < 1 {
		return o, errors.New("each number must be at least 1")
	}
	return o, nil
}

// play is the whole program.
func play(ctx context.Context, p *harness.Program, opt options) {
	s := &scale{program: p, opt: opt}
	r := results{Machine: harness.Machine()}
	switch {
	case opt.look:
		r.Looks = s.looks(ctx)
	case opt.storm:
		r.Storms = s.storms(ctx)
	default:
		r.Rows = s.sizes(ctx)
	}
	fmt.Print("\n", r.table())
	for _, missed := range r.missed() {
		p.Fault("limits that were missed", "%s", missed)
	}
	if opt.json != "" {
		p.Must(r.write(opt.json), "writing the results")
	}
	p.Report("limits that were missed")
}

// sizes measures all contenders in clusters of several sizes.
func (s *scale) sizes(ctx context.Context) (rows []row) {
	s.build(ctx)
	for _, size := range s.opt.sizes {
		size = s.affordable(size)
		s.fill(ctx, size)
		rows = append(rows, s.measure(ctx, size)...)
	}
	return rows
}

func (r results) write(file string) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
