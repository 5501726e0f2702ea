package mountpoint

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// probe looks at a pool through the service, again and again until it is killed, and prints each
// report that finds nothing. Its arguments are the socket, and what the pool is.
func probe(args []string) error {
	if mounts.Permitted() {
		return errors.New("this process has CAP_SYS_ADMIN")
	}
	var e hostcheck.Expect
	if err := json.Unmarshal([]byte(args[1]), &e); err != nil {
		return err
	}
	p := hostcheck.NewProber(e).Asking(Service, Client{Socket: args[0], Grace: time.Minute}.Under)
	out := json.NewEncoder(os.Stdout)
	for {
		if err := out.Encode(p.Probe(context.Background())); err != nil {
			return err
		}
	}
}

// prober starts probe in a mount namespace of its own, without CAP_SYS_ADMIN.
func (env *environment) prober(e hostcheck.Expect) (next func() hostcheck.Report) {
	env.t.Helper()
	what, err := json.Marshal(e)
	must(env.t, err)
	self, err := os.Executable()
	must(env.t, err)
	cmd := exec.Command("unshare", "--mount", "--propagation", "slave", "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", self, env.client.Socket, string(what))
	cmd.Env, cmd.Stderr = append(os.Environ(), caseEnv+"=probe"), os.Stderr
	out, err := cmd.StdoutPipe()
	must(env.t, err)
	_, err = cmd.StdinPipe()
	must(env.t, err)
	must(env.t, cmd.Start())
	env.t.Cleanup(func() { env.stop(cmd) })
	reports := json.NewDecoder(bufio.NewReader(out))
	return func() (r hostcheck.Report) {
		env.t.Helper()
		must(env.t, reports.Decode(&r))
		return r
	}
}

// marked makes a filesystem with a pool's marker.
func marked(t *testing.T, m hostcheck.Marker) (dir string) {
	t.Helper()
	dir = filepath.Join(hosttest.Dir(t), "filesystem")
	must(t, os.Mkdir(dir, 0o700))
	tmpfs(t, dir)
	data, err := hostcheck.EncodeMarker(m)
	must(t, err)
	must(t, os.Chmod(dir, 0o700))
	must(t, os.Mkdir(filepath.Join(dir, hostcheck.PrivateDir), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, hostcheck.MarkerPath), data, 0o600))
	return dir
}

// storm changes between two states without pause: the good filesystem is mounted on an immutable
// directory, or the bad one on a directory that is not, which another mount has put in the place of
// the first.
type storm struct {
	good, bad, over, base, point string
}

func newStorm(t *testing.T, m hostcheck.Marker) storm {
	t.Helper()
	s := storm{good: marked(t, m), bad: marked(t, m), base: filepath.Join(hosttest.Dir(t), "base"), over: filepath.Join(hosttest.Dir(t), "over")}
	s.point = filepath.Join(s.base, "pool")
	for _, dir := range []string{s.base, s.over} {
		must(t, os.Mkdir(dir, 0o700))
		tmpfs(t, dir)
		must(t, os.Mkdir(filepath.Join(dir, "pool"), 0o700))
	}
	hosttest.SetImmutable(t, s.point, true)
	return s
}

func (s storm) blow(stop *atomic.Bool, turns *atomic.Int64) error {
	bind := func(from, to string) error { return unix.Mount(from, to, "", unix.MS_BIND, "") }
	gone := func(from string) error { return unix.Unmount(from, unix.MNT_DETACH) }
	stay := func() error { // for less than a look, or for some
		time.Sleep(rand.N(4 * time.Millisecond))
		return nil
	}
	for !stop.Load() {
		steps := []error{
			bind(s.good, s.point), stay(), gone(s.point), bind(s.over, s.base), bind(s.bad, s.point), stay(), gone(s.point), gone(s.base),
		}
		if err := errors.Join(steps...); err != nil {
			return err
		}
		turns.Add(1)
	}
	return nil
}

// While mounts come and go without pause, no look of a process that asks calls the pool good for a
// moment in which what it saw mounted did not stand on an immutable directory; and after the storm
// the next look sees what is there.
func TestStorm(t *testing.T) {
	m := hostcheck.NewMarker("fast", time.Now())
	s := newStorm(t, m)
	env := newEnvironment(t, s.point)
	next := env.prober(hostcheck.Expect{Pool: "fast", Path: s.point, MountPoint: s.point, RequireMount: true, Immutable: hostcheck.ImmutableRequire, Remembered: m.ID})
	hosttest.Mount(t, "--bind", s.good, s.point)
	for !next().Open() { // a look that began before the mount
	}
	hosttest.Unmount(t, s.point)
	var bad unix.Stat_t
	must(t, unix.Stat(s.bad, &bad))
	var stop atomic.Bool
	var turns atomic.Int64
	var blowing sync.WaitGroup
	failed := make(chan error, 1)
	blowing.Go(func() { failed <- s.blow(&stop, &turns) })
	seen := map[string]int{}
	for turns.Load() < 1000 {
		r := next()
		f, closed := r.Closed()
		what := f.Reason
		if !closed {
			what = "good"
		}
		seen[what]++
		if !closed && r.Identity.DevMajor == unix.Major(bad.Dev) && r.Identity.DevMinor == unix.Minor(bad.Dev) {
			t.Fatalf("open on a directory that is not immutable, after %v: %+v", seen, r)
		}
	}
	stop.Store(true)
	blowing.Wait()
	must(t, <-failed)
	t.Logf("%d turns of the storm; seen %s", turns.Load(), fmt.Sprint(seen))
	if seen["good"] == 0 || seen[hostcheck.ReasonNotImmutable] == 0 {
		t.Error("not both states were seen")
	}
	hosttest.Mount(t, "--bind", s.over, s.base)
	hosttest.Mount(t, "--bind", s.bad, s.point)
	for r := next(); ; r = next() {
		if f, closed := r.Closed(); closed && f.Reason == hostcheck.ReasonNotImmutable {
			break
		}
	}
}

// Where the service is in a mount namespace that does not see the same mounts, its response is
// about another directory and does not count.
func TestAnotherDirectory(t *testing.T) {
	m := hostcheck.NewMarker("fast", time.Now())
	s := newStorm(t, m)
	hosttest.Mount(t, "--make-rprivate", s.base)
	env := newEnvironment(t, s.point) // sees the immutable directory alone, whatever is mounted later
	hosttest.Mount(t, "--bind", s.over, s.base)
	hosttest.Mount(t, "--bind", s.bad, s.point)
	next := env.prober(hostcheck.Expect{Pool: "fast", Path: s.point, MountPoint: s.point, RequireMount: true, Immutable: hostcheck.ImmutableRequire, Remembered: m.ID})
	r := next()
	if f, closed := r.Closed(); !closed || f.Reason != hostcheck.ReasonLookFailed {
		t.Errorf("%+v", r)
	}
}
