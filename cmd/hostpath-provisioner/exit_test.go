package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/follow"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/prepare"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// Units and scripts decide by the exit code: systemd does not repeat 78, and kubelet starts after 3.
func TestExitCodes(t *testing.T) {
	wrong := config.Errors{{File: "config.toml", Text: "is a directory"}}
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"all as it should be":                   {nil, 0},
		"a pool is not as it should be":         {errNot, 1},
		"a pool is full":                        {errFull, 3},
		"an error beside a full pool":           {errors.Join(errors.New("x"), errFull), 3},
		"any error":                             {errors.New("x"), 1},
		"no daemon":                             {fmt.Errorf("%w: x", errNoDaemon), 1},
		"the command line":                      {usageError{errors.New("x")}, 2},
		"a pool that is not configured":         {usageError{noPoolError{"x", config.Config{}}}, 2},
		"a command's configuration":             {wrong, 2},
		"a command's configuration, and others": {errors.Join(wrong, errors.New("x")), 2},
		"the daemon's configuration":            {startError{wrong}, 78},
		"the daemon's, told in the journal":     {loggedError{startError{wrong}}, 78},
		"another error, told in the journal":    {loggedError{errors.New("x")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := exitCode(c.err); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

// What was told already is not repeated; each error of a configuration has a line, and all have one
// hint.
func TestComplain(t *testing.T) {
	bad := config.Errors{{File: "a.toml", Line: 2, Key: "node", Text: "x"}, {File: "b.toml", Text: "y"}}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"no error":                       {nil, ""},
		"told by the command":            {errNot, ""},
		"a full pool, told as well":      {errFull, ""},
		"told in the journal":            {loggedError{bad}, ""},
		"two errors of a configuration":  {bad, "hostpath-provisioner: a.toml:2: node: x\nhostpath-provisioner: b.toml: y\nhint: correct it, then run: hostpath-provisioner check --config-only\n"},
		"no hint":                        {errors.New("x"), "hostpath-provisioner: x\n"},
		"text that commands a terminal":  {errors.New("a\x1b[2Jb"), "hostpath-provisioner: a\\x1b[2Jb\n"},
		"a command that is much alike":   {usageError{unknownCommandError{"chek", []string{"check"}}}, "hostpath-provisioner: unknown command \"chek\"\nhint: did you mean: hostpath-provisioner check\n"},
		"a command like none":            {usageError{unknownCommandError{"x", nil}}, "hostpath-provisioner: unknown command \"x\"\nhint: run: hostpath-provisioner --help\n"},
		"a command like two of the many": {usageError{unknownCommandError{"x", []string{"a", "b"}}}, "hostpath-provisioner: unknown command \"x\"\nhint: did you mean: hostpath-provisioner a, or hostpath-provisioner b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			(&program{stderr: &b}).complain(c.err)
			if b.String() != c.want {
				t.Errorf("%q, want %q", b.String(), c.want)
			}
		})
	}
}

// Each error that an operator can do something about tells what, also below the words of those who
// passed it on.
func TestHints(t *testing.T) {
	pool := config.Pool{Name: "fast", Path: "/srv/fast/volumes", MountPoint: "/srv/fast"}
	found := func(reason string) hostcheck.Finding { return hostcheck.Finding{Reason: reason, Message: "x"} }
	configured := config.Config{Pools: []config.Pool{{Name: "fast"}, {Name: "slow"}}}
	here := t.TempDir()
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"pool":                    {usageError{noPoolError{"x", configured}}, "the pools are: fast, slow"},
		"closed pool":             {closedError{pool, found(hostcheck.ReasonNotMounted)}, "mount it, then run: hostpath-provisioner check fast"},
		"closed pool, its paths":  {closedError{pool, found(hostcheck.ReasonWrongMount)}, "look at: findmnt -R /srv/fast; then unmount what stands in between, or set mount_point of [pool.fast] to it"},
		"unfit storage":           {&prepare.UnfitError{Pool: pool, Finding: found(hostcheck.ReasonPathUnreadable)}, "run it as root, and look at: ls -ld /srv/fast/volumes"},
		"reason without a hint":   {closedError{pool, found("NoSuchReason")}, ""},
		"no configuration":        {config.Errors{{File: here + "/config.toml", Text: "x"}}, "write one, /usr/share/doc/hostpath-provisioner/config.toml is an example; or name another one with --config"},
		"unreadable file":         {config.Errors{{File: here, Text: "x"}}, "make the file readable, or name another one with --config"},
		"error in a line":         {config.Errors{{File: here, Line: 1, Text: "x"}}, "correct it, then run: hostpath-provisioner check --config-only"},
		"own directory":           {config.Errors{{File: here, Line: 1, Key: "a"}, {File: here, Line: 2, Key: "b", Own: true}}, "give the pool a directory elsewhere, and move its volumes as docs/upgrade.md describes"},
		"kubeconfig":              {&kube.KubeconfigError{}, "run: hostpath-provisioner enroll --admin-kubeconfig FILE"},
		"held state":              {&state.HeldError{}, "stop the other one, or give each a --state-dir and pools of its own"},
		"another process":         {&daemon.RestartError{}, "run: systemctl daemon-reload; then: systemctl restart hostpath-provisioner"},
		"a right that is lacking": {daemon.ErrNotCapable, "run: systemctl daemon-reload; then: systemctl restart hostpath-provisioner"},
		"no daemon":               {errNoDaemon, "run: systemctl status hostpath-provisioner"},
		"immutable files":         {volume.ErrUnlabelled, "look at: lsattr; immutable files keep their labels; then run this again"},
		"no labels":               {selinux.ErrNoLabels, "volumes there have the label that the mount has: mount option context=, see mount(8)"},
		"interrupted":             {context.Canceled, "run it again: it goes on where it was"},
		"another node's":          {prepare.ErrNotOwner, "name the node that the marker or the records name: hostpath-provisioner check says which"},
		"another pool's":          {prepare.ErrOtherPool, "mount the pool's own filesystem, or call the pool in the configuration as the marker does"},
		"another stream":          {fmt.Errorf("a: %w", follow.ErrBase), "send all of it, without -i"},
		"a file of no stream":     {treecopy.ErrNotKept, "send all of it, without -i"},
		"damaged marker":          {hostcheck.ErrMarkerDamaged, "replace the file that is named by a sound copy; or run with --replace to write again what this host remembers"},
		"not permitted":           {&fs.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}, permissionHint(0)},
		"out of space":            {syscall.ENOSPC, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range []error{c.err, fmt.Errorf("doing: %w", c.err)} {
				if got := hintFor(err); got != c.want {
					t.Errorf("%v: %q, want %q", err, got, c.want)
				}
			}
		})
	}
}

// full refuses each write, as a disk does.
type full struct{ tries int }

func (f *full) Write([]byte) (int, error) {
	f.tries++
	return 0, syscall.ENOSPC
}

// A script that keeps the output in a file must not take half of it, or nothing, for the whole.
func TestOutputThatCannotBeWritten(t *testing.T) {
	h := newHost(t, "kubeconfig = 'BASE/kubeconfig'\n"+minimal+"require_mount = false\naccept = ['PlainDirectory']\n")
	if said := h.call("prepare", "fast"); !strings.HasSuffix(said, "exit 0\n") {
		t.Fatal(said)
	}
	h.status(daemon.Status{PID: 1, Ready: true})
	for _, line := range []string{"version", "--version", "check --config-only", "check", "check --json", "status", "status --json", "volumes", "volumes --json", "manifests", "prepare fast", "--help", "help check", "completion bash"} {
		t.Run(line, func(t *testing.T) {
			var to full
			var stderr bytes.Buffer
			p := &program{host: h.base, stdout: &to, stderr: &stderr, now: time.Now}
			code := p.run(append(strings.Fields(line), h.flags()...), strings.NewReader(""))
			if code != exitNot || to.tries == 0 || !strings.Contains(stderr.String(), "no space left on device") {
				t.Errorf("exit %d after %d writes, %q", code, to.tries, stderr.String())
			}
		})
	}
}
