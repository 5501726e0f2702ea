package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/confine"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// What a configuration opens to the confined process: what its pools and its kubeconfig need, and
// no more.
func TestConfinementOfAConfiguration(t *testing.T) {
	dir := hosttest.Dir(t)
	plain, plugin := filepath.Join(dir, "plain"), filepath.Join(dir, "plugin")
	for file, text := range map[string]string{
		plain:  kubeconfig,
		plugin: strings.Replace(kubeconfig, `{"name": "u"}`, `{"name": "u", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh"}}}`, 1),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Config: "/etc/hostpath-provisioner/config.toml", StateDir: "/var/lib/hostpath-provisioner/state", RuntimeDir: "/run/hostpath-provisioner"}
	pool := func(path string, mode fs.FileMode) config.Pool {
		return config.Pool{Path: path, MountPoint: path, RequireMount: true, Mode: mode}
	}
	for _, c := range []struct {
		name       string
		notify     string
		cfg        config.Config
		want       func(confine.Rules) bool
		wantInWord string
	}{
		{"no pool needs the set-group-ID bit", "", config.Config{Kubeconfig: plain, Pools: []config.Pool{pool("/srv/a", 0o1777|fs.ModeSticky)}},
			func(r confine.Rules) bool { return !r.SetGroupID }, "SetGroupID false"},
		{"one of two pools needs it", "", config.Config{Kubeconfig: plain, Pools: []config.Pool{pool("/srv/a", fs.ModeSetgid), pool("/srv/b", 0o777)}},
			func(r confine.Rules) bool { return r.SetGroupID }, "SetGroupID true"},
		{"pools beside each other need one directory", "", config.Config{Kubeconfig: plain, Pools: []config.Pool{pool("/srv/a", 0), pool("/srv/b", 0)}},
			func(r confine.Rules) bool { return len(r.Work) == 4 && slices.Contains(r.Work, "/srv") }, "one /srv in Work"},
		{"no program is run without a plugin", "", config.Config{Kubeconfig: plain},
			func(r confine.Rules) bool { return len(r.Execute) == 0 }, "no Execute"},
		{"a plugin may run programs", "", config.Config{Kubeconfig: plugin},
			func(r confine.Rules) bool { return slices.Contains(r.Execute, "/bin") }, "/bin in Execute"},
		{"a kubeconfig is read with its directory", "", config.Config{Kubeconfig: plain},
			func(r confine.Rules) bool { return slices.Contains(r.Read, dir) }, "its directory in Read"},
		{"systemd's socket in the filesystem", "/run/systemd/notify", config.Config{Kubeconfig: plain},
			func(r confine.Rules) bool { return !r.Abstract }, "Abstract false"},
		{"systemd's abstract socket", "@/org/notify", config.Config{Kubeconfig: plain},
			func(r confine.Rules) bool { return r.Abstract }, "Abstract true"},
		{"no file of the keys in /etc", "", config.Config{Kubeconfig: plain},
			func(r confine.Rules) bool {
				return !slices.Contains(r.Read, "/etc") && !slices.Contains(r.Read, "/") && !slices.Contains(r.Read, "/etc/shadow") && !slices.Contains(r.Read, "/etc/kubernetes")
			}, "neither / nor /etc in Read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("NOTIFY_SOCKET", c.notify)
			if r := confinement(o, c.cfg); !c.want(r) {
				t.Errorf("want %s: %+v", c.wantInWord, r)
			}
		})
	}
}

// With confine = false the process keeps what it has, and the directories are not made either.
func TestConfineOff(t *testing.T) {
	o := Options{StateDir: filepath.Join(t.TempDir(), "state")}
	got, err := Confine(o, config.Config{})
	if err != nil || !reflect.DeepEqual(got, &confine.Confined{Off: true}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := os.Stat(o.StateDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("made %s: %v", o.StateDir, err)
	}
}

// The state directory's parent is the daemon's own only in the packages' layout. In any other it is
// others'.
func TestAroundState(t *testing.T) {
	for dir, want := range map[string]string{
		"/var/lib/hostpath-provisioner/state": "/var/lib/hostpath-provisioner",
		"/srv/own/state":                      "/srv/own",
		"/var/lib/state":                      "/var/lib/state",
		"/state":                              "/state",
		"/var/lib/hostpath-provisioner":       "/var/lib/hostpath-provisioner",
		"/var/lib/hostpath-provisioner/other": "/var/lib/hostpath-provisioner/other",
	} {
		if got := aroundState(dir); got != want {
			t.Errorf("%s: %s, want %s", dir, got, want)
		}
	}
}

// A process that is to end for another one ends only where a service manager starts the other one.
func TestStartAgainNeedsAServiceManager(t *testing.T) {
	for _, c := range []struct {
		name, invocation string
		ends             bool
	}{{"by hand", "", false}, {"by systemd", "0a1b", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("INVOCATION_ID", c.invocation)
			d := &daemon{Options: Options{Log: slog.New(slog.DiscardHandler)}, confined: &confine.Confined{ABI: 7}}
			var ctx context.Context
			ctx, d.end = context.WithCancelCause(t.Context())
			d.remounted.Store(true)
			why := d.outside("/data", "/data")
			if why != "/data came after the daemon confined itself: it has to be restarted" {
				t.Errorf("got %q", why)
			}
			if ended := errors.As(context.Cause(ctx), new(*RestartError)); ended != c.ends {
				t.Errorf("ended: %v, want %v", ended, c.ends)
			}
		})
	}
}

// A pool is not outside of a confinement that is not in force: another start would not help it, and
// the daemon would end again and again.
func TestOutsideIsOfTheConfinement(t *testing.T) {
	for _, c := range []struct {
		name      string
		confined  *confine.Confined
		remounted bool
		want      bool
	}{
		{"nothing is confined", nil, true, false},
		{"Landlock is absent", &confine.Confined{}, true, false},
		{"in reach, mounts changed", &confine.Confined{ABI: 7, Work: []string{"/data"}}, true, true},
		{"out of reach, no mount changed", &confine.Confined{ABI: 7, Work: []string{"/srv"}}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("INVOCATION_ID", "")
			d := &daemon{Options: Options{Log: slog.New(slog.DiscardHandler)}, confined: c.confined}
			d.remounted.Store(c.remounted)
			if why := d.outside("/data", "/data"); (why != "") != c.want {
				t.Errorf("got %q", why)
			}
		})
	}
}

// The pool that the service's unit cannot serve is named; a configuration without such a mode asks
// for nothing.
func TestCapable(t *testing.T) {
	plain, setgid := config.Pool{Name: "plain", Mode: 0o777}, config.Pool{Name: "team", Mode: 0o770 | fs.ModeSetgid}
	if err := capable(config.Config{Pools: []config.Pool{plain}}); err != nil {
		t.Errorf("without the bit: %v", err)
	}
	if err := capable(config.Config{Pools: []config.Pool{plain, setgid}}); err != nil {
		t.Errorf("with the capability: %v", err)
	}
	hosttest.Without(t, func() {
		err := capable(config.Config{Pools: []config.Pool{plain, setgid}})
		if text(err) != `pool "team": its mode has the set-group-ID bit, for which this process has no CAP_FSETID` || !errors.Is(err, ErrNotCapable) {
			t.Errorf("without the capability: %v", err)
		}
	}, unix.CAP_FSETID)
	if has(63) { // more than the kernel has
		t.Error("a capability that no kernel has is there")
	}
}

// What the units are told of a pool.
func TestUnitPools(t *testing.T) {
	pool := config.DefaultPool("p")
	pool.Path, pool.MountPoint = "/srv/p/volumes", "/srv/p"
	cases := []struct {
		name   string
		change func(*config.Pool)
		want   systemd.Pool
	}{
		{"mounted", func(*config.Pool) {}, systemd.Pool{MountPoint: "/srv/p", Path: "/srv/p/volumes", Purge: true}},
		{"that archives", func(p *config.Pool) { p.OnDelete = plan.OnDeleteArchive }, systemd.Pool{MountPoint: "/srv/p", Path: "/srv/p/volumes"}},
		{"without a mount", func(p *config.Pool) { p.RequireMount = false }, systemd.Pool{Path: "/srv/p/volumes", Purge: true}},
		{"with setgid", func(p *config.Pool) { p.Mode = 0o770 | fs.ModeSetgid }, systemd.Pool{MountPoint: "/srv/p", Path: "/srv/p/volumes", SetGroupID: true, Purge: true}},
	}
	var all config.Config
	for _, c := range cases {
		changed := pool
		c.change(&changed)
		all.Pools = append(all.Pools, changed)
	}
	for i, got := range UnitPools(all) {
		if got != cases[i].want {
			t.Errorf("a pool %s: got %+v, want %+v", cases[i].name, got, cases[i].want)
		}
	}
}

// Under a mount point is looked where there is one and the configuration asks for it.
func TestLookedUnder(t *testing.T) {
	pool := func(at string, mount bool, immutable string) config.Pool {
		return config.Pool{MountPoint: at, RequireMount: mount, Immutable: immutable}
	}
	got := LookedUnder(config.Config{Pools: []config.Pool{
		pool("/a", true, config.ImmutableRequire), pool("/b", true, config.ImmutableWarn), pool("/c", true, config.ImmutableOff), pool("/d", false, config.ImmutableRequire),
	}})
	if !slices.Equal(got, []string{"/a", "/b"}) {
		t.Errorf("got %q", got)
	}
}

// Storage of the network is known by what the configuration says of it.
func TestOnNetwork(t *testing.T) {
	for _, c := range []struct {
		name string
		pool config.Pool
		want bool
	}{
		{"nothing is said", config.Pool{Scope: plan.ScopeNode}, false},
		{"shared", config.Pool{Scope: plan.ScopeShared}, true},
		{"every node", config.Pool{Scope: plan.ScopeEveryNode}, false},
		{"device of this host", config.Pool{Device: "/dev/sda1"}, false},
		{"by its UUID", config.Pool{Device: "UUID=0a"}, false},
		{"an export", config.Pool{Device: "nas:/export"}, true},
		{"nfs4", config.Pool{Filesystem: "nfs4"}, true},
		{"in user space", config.Pool{Filesystem: "fuse.sshfs"}, true},
		{"a name that begins with fuse", config.Pool{Filesystem: "fuseblk"}, false},
		{"ext4", config.Pool{Filesystem: "ext4"}, false},
	} {
		if got := OnNetwork(c.pool); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A pool's part of the status, from what the gate holds.
func TestPoolStatus(t *testing.T) {
	pool := config.Pool{Name: "fast", Path: "/srv/fast/volumes", MountPoint: "/srv/fast", Scope: "node"}
	finding := func(severity hostcheck.Severity, reason string) hostcheck.Finding {
		return hostcheck.Finding{Severity: severity, Reason: reason, Message: "about " + reason}
	}
	for _, c := range []struct {
		name   string
		report hostcheck.Report
		want   string // open, full, reason, message, warnings, free
	}{
		{"open", hostcheck.Report{Size: 10, Free: 4}, `true false "" "" [] 4`},
		{"open and full to the last byte", hostcheck.Report{Size: 10}, `true false "" "" [] 0`},
		{"open with a warning", hostcheck.Report{Size: 10, Free: 4, Findings: []hostcheck.Finding{finding(hostcheck.Warn, "LaxMount")}}, `true false "" "" [about LaxMount] 4`},
		{"full", hostcheck.Report{Size: 10, Free: 1, Findings: []hostcheck.Finding{finding(hostcheck.Full, "LowSpace")}}, `false true "LowSpace" "about LowSpace" [] 1`},
		{"closed", hostcheck.Report{Findings: []hostcheck.Finding{finding(hostcheck.Warn, "LaxMount"), finding(hostcheck.Close, "NotMounted")}}, `false false "NotMounted" "about NotMounted" [about LaxMount] absent`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := poolStatus(gate.State{Report: c.report, Checked: true}, pool)
			free := "absent"
			if p.Free != nil {
				free = fmt.Sprint(*p.Free)
			}
			if got := fmt.Sprintf("%v %v %q %q %v %s", p.Open, p.Full, p.Reason, p.Message, p.Warnings, free); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if p.Name != "fast" || p.Path != "/srv/fast/volumes" || p.MountPoint != "/srv/fast" || p.Scope != "node" {
				t.Errorf("of another pool: %+v", p)
			}
		})
	}
	if p := poolStatus(gate.State{Since: time.Unix(5, 0)}, pool); p.Open || p.Full || p.Reason != "NotChecked" || freeBytes(p) != 0 || !p.Since.Equal(time.Unix(5, 0)) {
		t.Errorf("before the first check: %+v", p)
	}
}

// Another user may have written the file that the status command prints.
func TestStatusIsPrintable(t *testing.T) {
	dir := t.TempDir()
	const evil = "a\x1b[2J\nb"
	bad := Status{Version: evil, Node: evil, Provisioner: evil, API: evil, Sentence: evil, Pools: []PoolStatus{{
		Name: evil, Path: evil, Reason: evil, Message: evil, Warnings: []string{evil}, Scope: evil, Device: evil, MountPoint: evil, Worker: evil,
	}}}
	if err := bad.write(dir); err != nil {
		t.Fatal(err)
	}
	s, err := ReadStatus(dir)
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%v", s); strings.ContainsAny(text, "\x1b\n") {
		t.Errorf("commands the terminal: %q", text)
	}
}

// The socket of the metrics is TCP's alone: what one of MPTCP accepts, SELinux refuses to read
// before Linux 6.4.
func TestMetricsSocketHasNoMPTCP(t *testing.T) {
	l, err := new(daemon).listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	protocol := 0
	if wrong := socket.Control(func(fd uintptr) {
		protocol, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL)
	}); wrong != nil || err != nil || protocol != unix.IPPROTO_TCP {
		t.Errorf("protocol %d, %v, %v", protocol, wrong, err)
	}
}
