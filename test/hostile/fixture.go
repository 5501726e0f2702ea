package hostile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

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
	pv, err := s.Bound(ctx, s.pool, s.pool+"-next-door")
	s.Must(err, "making a claim")
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
	if s.Blame(notPlayed, wrap(trick.name, err)) {
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

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
