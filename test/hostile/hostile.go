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
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// printReport prints a line for each trick: how often it was played, what became of it, and the
// longest times on each filesystem.
func printReport(e *harness.Environment, fixtures []*fixture) {
	fmt.Println("the longest times in s on ext4, xfs, btrfs: until the PersistentVolume was gone, until its files were or were reported, for another claim meanwhile")
	fmt.Printf("  %-38s %6s %8s %9s  %17s  %17s  %17s\n", "trick", "times", "removed", "reported", "object", "files", "another claim")
	for _, trick := range tricks {
		times, removed, reported := 0, 0, 0
		longest := make([][3]time.Duration, len(fixtures))
		for i, s := range fixtures {
			for _, a := range s.acts {
				if a.trick != trick.name {
					continue
				}
				times++
				if a.reported == "" {
					removed++
				} else {
					reported++
				}
				l := &longest[i]
				l[0], l[1], l[2] = max(l[0], a.gone), max(l[1], a.removed), max(l[2], a.beside)
			}
		}
		fmt.Printf("  %-38s %6d %8d %9d ", trick.name, times, removed, reported)
		for k := range 3 {
			fmt.Printf(" ")
			for i := range fixtures {
				fmt.Printf(" %5.2f", longest[i][k].Seconds())
			}
		}
		fmt.Println()
	}
	fmt.Println()
	for _, trick := range tricks {
		if a := firstReported(fixtures, trick.name); a != nil {
			fmt.Printf("reported, %s:\n  %.300s\n", a.trick, a.reported)
		}
	}
	e.Report(kinds...)
}

func firstReported(fixtures []*fixture, trick string) *act {
	for _, s := range fixtures {
		for _, a := range s.acts {
			if a.trick == trick && a.reported != "" {
				return a
			}
		}
	}
	return nil
}

// Kinds of faults.
const (
	notGone     = "PersistentVolumes that did not go"
	notRemoved  = "volumes neither removed nor reported"
	notReported = "things left that were not reported, or not precisely"
	notFinished = "removals that did not finish after the cause was gone"
	outside     = "things outside the volume that were touched"
	others      = "other claims of the pool that were not made"
	wrongPools  = "pools with too much or too little in them"
	notPlayed   = "tricks that could not be played"
)

var kinds = []string{notGone, notRemoved, notReported, notFinished, outside, others, wrongPools, notPlayed}

// fixture is one pool with what the tricks must not touch.
type fixture struct {
	*harness.Environment
	pool    string // and its filesystem's type
	dir     string
	outside string // a directory outside the pool
	next    string // the volume next door
	foreign string // a directory in the pool without a record
	before  string // all of these
	volumes []string
	pending []*act // reported; their cause is gone
	acts    []*act
}

// act is one trick, played once.
type act struct {
	trick    string
	claim    string
	pv       string
	gone     time.Duration // from the deletion to the PersistentVolume's end
	removed  time.Duration // to the end of its files
	beside   time.Duration // for another claim of the pool
	reported string
}

func newFixture(ctx context.Context, e *harness.Environment, image hosttest.Image) *fixture {
	s := &fixture{Environment: e, pool: image.Type, dir: filepath.Join(hosttest.Dir(e), image.Type), outside: hosttest.Dir(e)}
	s.AddPool(harness.Pool{Name: s.pool, Path: s.dir, Mount: func() { image.Mount(e, s.dir) }})
	s.AddClass(ctx, s.pool, s.Node, harness.InPool(s.pool))
	return s
}

// settle makes what must not be touched.
func (s *fixture) settle(ctx context.Context) {
	pv := harness.Need(s.Bound(ctx, s.pool, s.pool+"-next-door"))(s, "making a claim")
	s.volumes = append(s.volumes, pv)
	s.next, s.foreign = filepath.Join(s.dir, pv), filepath.Join(s.dir, "foreign")
	for _, dir := range s.protected() {
		s.Must(os.MkdirAll(filepath.Join(dir, "directory", "below"), 0o755), "making what must not be touched")
		for _, name := range []string{"file", "directory/file", "directory/below/file"} {
			s.Must(os.WriteFile(filepath.Join(dir, name), []byte("not the tenant's"), 0o644), "making what must not be touched")
		}
		s.Must(os.Symlink("/etc/hostname", filepath.Join(dir, "link")), "making what must not be touched")
	}
	s.before = s.canaries()
}

func (s *fixture) protected() []string { return []string{s.outside, s.next, s.foreign} }

// canaries is everything that must not be touched, whole: names, modes, owners, contents.
func (s *fixture) canaries() string {
	var b strings.Builder
	for _, dir := range s.protected() {
		b.WriteString(tree(dir))
	}
	return b.String()
}

func tree(root string) string {
	var b strings.Builder
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%q %s %d:%d", path, info.Mode(), st.Uid, st.Gid)
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			fmt.Fprintf(&b, " %q %v", text, err)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	return b.String()
}

// round plays every trick once.
func (s *fixture) round(ctx context.Context, round int, size sizes) {
	for i, trick := range tricks {
		if ctx.Err() != nil {
			return
		}
		a := &act{trick: trick.name, claim: fmt.Sprintf("%s-%d-%d", s.pool, round, i)}
		s.acts = append(s.acts, a)
		s.perform(ctx, a, trick, size)
		if now := s.canaries(); now != s.before {
			s.Fault(outside, "%s: %s: was\n%snow\n%s", s.pool, a.trick, s.before, now)
			s.before = now
		}
	}
}

// perform is one trick: make the volume, spoil it, delete its claim, see what becomes of it.
func (s *fixture) perform(ctx context.Context, a *act, trick trick, size sizes) {
	pv, err := s.Bound(s.Soon(), s.pool, a.claim)
	if s.Blame(notPlayed, err) {
		return
	}
	a.pv = pv
	dir := filepath.Join(s.dir, pv)
	end, err := trick.play(s, dir, size)
	if err != nil {
		s.Fault(notPlayed, "%s: %v", trick.name, err)
		s.Blame(notPlayed, s.Delete(ctx, a.claim))
		return
	}
	began := time.Now()
	if s.Blame(notPlayed, s.Delete(ctx, a.claim)) {
		return
	}
	s.Blame(notGone, s.Cluster.WaitVolumeGone(s.Soon(), pv))
	a.gone = time.Since(began)
	s.another(ctx, a)
	if s.waitRemoved(ctx, a, began, trick.reported) {
		end()
		return
	}
	end()
	s.pending = append(s.pending, a)
}

// another makes a claim of the same pool while the files are being removed.
func (s *fixture) another(ctx context.Context, a *act) {
	began := time.Now()
	pv, err := s.Bound(s.Soon(), s.pool, a.claim+"-beside")
	if s.Blame(others, err) {
		return
	}
	a.beside = time.Since(began)
	s.volumes = append(s.volumes, pv)
}

// waitRemoved waits for the files and the record to go, which is true, or for the report of what is
// left.
func (s *fixture) waitRemoved(ctx context.Context, a *act, began time.Time, want []string) bool {
	gone := false
	err := harness.Eventually(s.Soon(), func() bool {
		if gone = s.removed(a.pv); gone {
			return true
		}
		a.reported = s.report(a.pv)
		return a.reported != ""
	})
	a.removed = time.Since(began)
	switch {
	case err != nil:
		s.Fault(notRemoved, "%s: %s: after %s", s.pool, a.trick, a.removed)
	case gone && want != nil && want[0] != "":
		s.Fault(notReported, "%s: %s: it is gone, and should have been left", s.pool, a.trick)
	case !gone && want == nil:
		s.Fault(notRemoved, "%s: %s: left: %s", s.pool, a.trick, a.reported)
	case !gone:
		s.precisely(a, want)
	}
	return gone
}

// removed: neither directory nor record.
func (s *fixture) removed(pv string) bool {
	for _, name := range []string{pv, ".hostpath-provisioner/trash/" + pv, ".hostpath-provisioner/trash/" + pv + "~", ".hostpath-provisioner/volumes/" + pv + ".json"} {
		if _, err := os.Lstat(filepath.Join(s.dir, name)); !os.IsNotExist(err) {
			return false
		}
	}
	return true
}

// report is the message of the Node's event about a volume that could not be removed, "" if there
// is none.
func (s *fixture) report(pv string) string {
	events, err := s.Client.CoreV1().Events(corev1.NamespaceDefault).List(context.Background(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Node,reason=PurgeIncomplete"})
	if err != nil {
		return ""
	}
	for _, e := range events.Items {
		if strings.Contains(e.Message, pv) {
			return e.Message
		}
	}
	return ""
}

// precisely: the event and the log name the volume and what is left, and the metric counts it.
func (s *fixture) precisely(a *act, want []string) {
	for _, words := range want {
		if !strings.Contains(a.reported, words) {
			s.Fault(notReported, "%s: %s: the event does not say %q: %s", s.pool, a.trick, words, a.reported)
		}
	}
	n, err := s.Metric(fmt.Sprintf("hostpath_provisioner_volumes_removed_total{pool=%q,reason=\"PurgeIncomplete\"}", s.pool))
	if err != nil || n < 1 {
		s.Fault(notReported, "%s: %s: the metric is %v, %v", s.pool, a.trick, n, err)
	}
	found := false
	for line := range strings.Lines(s.Daemon.Log()) {
		found = found || strings.Contains(line, "reason=PurgeIncomplete") && strings.Contains(line, a.pv)
	}
	if !found {
		s.Fault(notReported, "%s: %s: the log does not name %s", s.pool, a.trick, a.pv)
	}
}

// finish lets the daemon try again what it reported, now that the causes are gone.
func (s *fixture) finish() {
	if len(s.pending) == 0 {
		return
	}
	s.Must(s.Daemon.Signal(syscall.SIGHUP), "reloading")
	for _, a := range s.pending {
		if err := harness.Eventually(s.Soon(), func() bool { return s.removed(a.pv) }); err != nil {
			s.Fault(notFinished, "%s: %s: %s", s.pool, a.trick, tree(filepath.Join(s.dir, ".hostpath-provisioner/trash")))
		}
	}
	s.pending = nil
}

// inspect compares the whole pool: the other claims' volumes, what is foreign, and nothing else.
func (s *fixture) inspect() {
	s.Must(os.RemoveAll(s.foreign), "removing what is foreign")
	s.Blame(wrongPools, harness.WaitDisk(s.Soon(), s.dir, s.volumes...))
}
