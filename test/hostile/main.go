// Package hostile is a tenant that makes its volume as hard to remove as it can, and goes on while
// it is removed. Each trick is played on ext4, xfs and btrfs, in a volume that a real daemon made
// for a claim of a real API server; then the claim is deleted. The PersistentVolume has to go, the
// directory and the record have to follow, or what is left has to be reported: as an event on the
// Node, a log record and a metric that name the volume and the entry. After the cause is gone, a
// reload finishes.
//
// Beside each trick another claim of the pool is made, and has to be. What is not the tenant's is
// compared whole before and after all tricks: a directory outside the pool, a volume next door and
// a directory of the pool without a record, all of which the tricks point, link, bind and move to.
//
// Files and directories that are immutable or append-only are removed: who deletes a claim with
// policy Delete says that the data goes, the flag is a tenant's way to protect it from itself and
// not from the owner of the storage, and a volume that a container could make undeletable would
// fill the disk. The daemon clears the flags only below a volume that is in its trash, and of the
// volume's own directory (daemon/disk/volume/purger.go).
//
// It does not test what package daemon/disk/volume tests of a purge alone (TestPurgeHostile and those
// after it), and it does not hang the pool (test/hang).
package hostile

import (
	"context"
	"flag"
	"fmt"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// Trial is the command line.
func Trial() harness.Trial {
	size := sizes{levels: 10_000}
	return harness.Trial{
		Name: "hostile", Short: "files=5000 rounds=1",
		Does: "Plays a tenant's tricks in volumes whose claims are then deleted, on ext4, xfs and btrfs.",
		Flags: func(flags *flag.FlagSet) {
			flags.IntVar(&size.files, "files", 30_000, "how many files the largest volume has")
			flags.IntVar(&size.rounds, "rounds", 3, "how often every trick is played")
		},
		Play: func(ctx context.Context, p *harness.Program) { play(ctx, p, size) },
	}
}

// sizes are how much the tricks make.
type sizes struct{ levels, files, rounds int }

// play plays all tricks, on all filesystems at once.
func play(ctx context.Context, p *harness.Program, size sizes) {
	e := harness.Start(ctx, p, harness.Options{Metrics: true})
	var fixtures []*fixture
	for _, fs := range []struct {
		name string
		mib  int
	}{{"ext4", 160}, {"xfs", 320}, {"btrfs", 256}} {
		fixtures = append(fixtures, newFixture(ctx, e, hosttest.Mkfs(e, fs.name, fs.mib)))
	}
	e.Must(e.Run(e.Soon()), "starting the daemon")
	for _, s := range fixtures {
		s.settle(ctx)
	}
	for round := range size.rounds {
		e.Say("round %d of %d", round+1, size.rounds)
		var all sync.WaitGroup
		for _, s := range fixtures {
			all.Go(func() { s.round(ctx, round, size) })
		}
		all.Wait()
		for _, s := range fixtures {
			s.finish()
		}
	}
	for _, s := range fixtures {
		s.inspect()
	}
	fmt.Println()
	printReport(e, fixtures)
}
