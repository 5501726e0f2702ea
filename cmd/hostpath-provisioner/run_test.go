package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/packaging"
	"github.com/hostpath-provisioner/hostpath-provisioner/packaging/charts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/goldenfile"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) {
	beChild()
	os.Exit(hosttest.Main(m))
}

// host is a machine to call the program on: its own directories, configuration and clock.
type host struct {
	t    *testing.T
	base string
}

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func newHost(t *testing.T, config string) *host {
	h := &host{t, hosttest.Dir(t)}
	h.write("config.toml", strings.ReplaceAll(config, "BASE", h.base))
	return h
}

func (h *host) path(elem ...string) string {
	return filepath.Join(append([]string{h.base}, elem...)...)
}

func (h *host) write(file, text string) {
	h.t.Helper()
	h.must(os.MkdirAll(filepath.Dir(h.path(file)), 0o755))
	h.must(os.WriteFile(h.path(file), []byte(text), 0o600))
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// accidental is what differs between runs and machines.
var accidental = []struct {
	find *regexp.Regexp
	is   string
}{
	// a table's text breaks by the length of the test's directory
	{regexp.MustCompile(`\n {16,}(\S)`), " $1"},
	{regexp.MustCompile(`\b[A-Z2-7]{26}\b`), "ID"},
	{regexp.MustCompile(`/dev/loop\d+`), "LOOP"},
	{regexp.MustCompile(`\d+(\.\d)? [KMGT]iB of \d+(\.\d)? [KMGT]iB`), "FREE of SIZE"},
	{regexp.MustCompile(`of 20\d\d-\d\d-\d\d\)`), "of DATE)"},
	{regexp.MustCompile(`"created": "[^"]*"`), `"created": "TIME"`},
	{regexp.MustCompile(`"(point|source|fsType|options)": "[^"]*"`), `"$1": "..."`},
	{regexp.MustCompile(`pid \d+`), "pid PID"},
	{regexp.MustCompile(`"(pid|size|available|reserve|free|used|promised|inodes|inodesFree|mountID|devMinor|inode)": [1-9]\d*`), `"$1": N`},
	{regexp.MustCompile(`"tookSeconds": [0-9.e-]+`), `"tookSeconds": S`},
	{regexp.MustCompile(`(\S) {2,}`), "$1  "}, // columns are as wide as the test's directory
	{regexp.MustCompile(`  [\d.]+ [KM]?i?B(  [^ ]+(?: [KMGT]?i?B)?  FREE of SIZE)`), "  USED$1"},
}

// call runs the program and returns all it printed: stdout, stderr after a line "--", and the exit
// code.
func (h *host) call(args ...string) string {
	h.t.Helper()
	text := strings.ReplaceAll(h.raw(args...), h.base, "")
	for _, a := range accidental {
		text = a.find.ReplaceAllString(text, a.is)
	}
	return text
}

// raw is call with the accidental parts left in.
func (h *host) raw(args ...string) string {
	var stdout, stderr bytes.Buffer
	p := &program{host: h.base, stdout: &stdout, stderr: &stderr, now: func() time.Time { return noon }}
	code := p.run(append(args, h.flags()...), strings.NewReader(""))
	text := stdout.String()
	if stderr.Len() > 0 {
		text += "--\n" + stderr.String()
	}
	return fmt.Sprintf("%sexit %d\n", text, code)
}

// flags have the program work on this host.
func (h *host) flags() []string {
	return []string{"--config", h.path("config.toml"), "--state-dir", h.path("state"), "--runtime-dir", h.path("run")}
}

// landlock is what kernels differ in.
var (
	landlock     = regexp.MustCompile(`Landlock .*is (available|not available).*`)
	landlockJSON = regexp.MustCompile(`"landlock": \d+`)
	kernel       = regexp.MustCompile(`(?m)^(the kernel lacks|whether the kernel has) .*\n`)
	kernelJSON   = regexp.MustCompile(`,\s*"has": (true|false)(,\s*"without": ".*")?`)
)

// golden compares with testdata/<name>.txt.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = landlock.ReplaceAllString(got, "Landlock is available (ABI n)")
	got = landlockJSON.ReplaceAllString(got, `"landlock": 7`)
	got = kernelJSON.ReplaceAllString(kernel.ReplaceAllString(got, ""), "")
	got = regexp.MustCompile(`(?m)^time=\S+ `).ReplaceAllString(got, "time=TIME ")
	goldenfile.Compare(t, filepath.Join("testdata", name+".txt"), got)
}

// story is a list of calls and what came of them.
type story struct {
	h *host
	b strings.Builder
}

func (s *story) call(args ...string) {
	s.h.t.Helper()
	fmt.Fprintf(&s.b, "$ hostpath-provisioner %s\n%s\n", strings.Join(args, " "), s.h.call(args...))
}

func (s *story) says(what string) { fmt.Fprintf(&s.b, "# %s\n", what) }

// status is what a daemon has left.
func (h *host) status(s daemon.Status) {
	h.t.Helper()
	text, err := json.Marshal(s)
	h.must(err)
	h.write("run/status.json", string(text))
}

const minimal = "node = 'node-a'\n[pool.fast]\npath = 'BASE/pool'\n"

func TestUsage(t *testing.T) {
	s := &story{h: newHost(t, minimal)}
	for _, line := range []string{
		"", "chek", "nosuch", "help nosuch", "nosuch --help", "--help nosuch",
		"check --config-only --cluster", "check --deadline 0", "check --deadline -1s", "--verbose",
		"run now", "check a b", "check slow", "check --json=maybe",
		"prepare", "prepare slow", "prepare fast slow",
		"volumes slow", "adopt", "adopt slow", "status fast", "manifests --namespace Storage", "manifests more", "version please",
		"forget-node", "forget-node NODE", "forget-node a --force=b",
		"import", "import fast", "import slow --from-node a",
		"volume", "volume send", "volume send nosuch", "volume receive", "volume receive slow",
		"volume receive fast --claims", "volume drop", "volume drop nosuch",
	} {
		s.call(strings.Fields(line)...)
	}
	golden(t, "usage", s.b.String())
}

func TestHelp(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", "")
	t.Setenv("RUNTIME_DIRECTORY", "")
	s := &story{h: newHost(t, minimal)}
	for _, line := range []string{"--help", "run --help", "check --help", "prepare --help", "relabel --help", "volumes --help", "adopt --help", "status --help", "manifests --help", "version --help",
		"forget-node --help", "import --help",
		"volume --help", "volume send --help", "volume receive --help", "volume drop --help"} {
		s.call(strings.Fields(line)...)
	}
	golden(t, "help", s.b.String())
}

// systemd names the directories in the environment, and the flags win.
func TestDirectories(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", "/var/lib/a:/var/lib/b")
	t.Setenv("RUNTIME_DIRECTORY", "")
	p := &program{}
	p.root()
	if p.stateDir != "/var/lib/a" || p.runtimeDir != "/run/hostpath-provisioner" {
		t.Errorf("%q, %q", p.stateDir, p.runtimeDir)
	}
}

// A configuration that is wrong ends every command that reads it with 2, and says everything.
func TestBadConfiguration(t *testing.T) {
	h := newHost(t, "nod = 'node-a'\n[pool.fast]\npath = 'pool'\nmode = 777\n")
	s := &story{h: h}
	for _, line := range []string{"run", "check", "check --config-only", "prepare fast", "volumes", "manifests"} {
		s.call(strings.Fields(line)...)
	}
	h.must(os.Remove(h.path("config.toml")))
	s.says("without any")
	s.call("check")
	golden(t, "bad-configuration", s.b.String())
}

// A pool that shares files with the daemon's own directories, as an earlier version took it.
func TestOwnDirectory(t *testing.T) {
	h := newHost(t, strings.Replace(minimal, "BASE/pool", "BASE/state/volumes", 1))
	s := &story{h: h}
	for _, line := range []string{"check --config-only", "check", "prepare fast", "run"} {
		s.call(strings.Fields(line)...)
	}
	golden(t, "own-directory", s.b.String())
}

func TestGoodConfiguration(t *testing.T) {
	h := newHost(t, minimal+"require_mount = false\n")
	s := &story{h: h}
	s.call("check", "--config-only")
	golden(t, "good-configuration", s.b.String())
}

// What keeps the daemon from starting. Neither is the configuration's fault, so systemd tries
// again.
func TestNoStart(t *testing.T) {
	h := newHost(t, "confine = false\nkubeconfig = 'BASE/kubeconfig'\n"+minimal) // it would confine this test
	s := &story{h: h}
	s.call("run")
	release, err := state.Lock(h.path("state"))
	h.must(err)
	defer release()
	s.says("while another holds the state directory")
	s.call("run")
	golden(t, "no-start", s.b.String())
}

// A chart and a kustomization are written in a directory that has nothing else.
func TestChart(t *testing.T) {
	h := newHost(t, minimal)
	chart, kustomization := filepath.Join(h.base, "chart"), filepath.Join(h.base, "kustomization")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--helm-chart", chart}, "exit 0\n"},
		{[]string{"--helm-chart", chart}, "is not empty\nexit 1\n"},
		{[]string{"--helm-chart", chart, "--pool-path", "/srv"}, "--helm-chart: the other options are values of the chart, or of its release\n"},
		{[]string{"--kustomization", kustomization, "--pool-path", "/srv", "--provisioner", "p", "--namespace", "storage"}, "exit 0\n"},
		{[]string{"--kustomization", chart}, "is not empty\nexit 1\n"},
	} {
		if got := h.raw(append([]string{"manifests"}, c.args...)...); !strings.Contains(got, c.want) {
			t.Errorf("%q: %s", c.args, got)
		}
	}
	want := charts.Kustomization(packaging.Options{Namespace: "storage", Provisioner: "p", Confine: packaging.Confinement{Paths: []string{"/srv"}}})
	for name, text := range want {
		if got, err := os.ReadFile(filepath.Join(kustomization, name)); err != nil || string(got) != text {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
	for name := range charts.Helm("v0.0.0") {
		if _, err := os.Stat(filepath.Join(chart, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestManifests(t *testing.T) {
	h := newHost(t, "provisioner = 'torchbox.com/hostpath'\n"+minimal)
	for _, c := range []struct {
		args []string
		want packaging.Options
	}{
		{nil, packaging.Options{Namespace: "hostpath-provisioner", Provisioner: "torchbox.com/hostpath"}},
		{[]string{"--namespace", "storage", "--provisioner", "hostpath", "--token-secret"}, packaging.Options{Namespace: "storage", Provisioner: "hostpath", TokenSecret: true}},
		{[]string{"--provisioner", "p", "--pool-path", "/srv", "--hostname", "a=b", "--alias", "q"}, packaging.Options{Namespace: "hostpath-provisioner", Provisioner: "p", Confine: packaging.Confinement{
			Paths: []string{"/srv"}, Aliases: []string{"q"}, Hostnames: map[string]string{"a": "b"}}}},
		{[]string{"--delete", "--provisioner", "p"}, packaging.Options{Namespace: "hostpath-provisioner", Provisioner: "p", Delete: true}},
	} {
		if got, want := h.raw(append([]string{"manifests"}, c.args...)...), packaging.Manifests(c.want)+"exit 0\n"; got != want {
			t.Errorf("%q: %s", c.args, got)
		}
	}
	for _, c := range []struct{ flag, value, says string }{
		{"--namespace", "Foo", `--namespace: "Foo" cannot be a namespace`},
		{"--provisioner", "foo bar", `--provisioner: "foo bar" cannot be a StorageClass's provisioner`},
		{"--pool-path", "/", `--pool-path: "/" is not the path of a pool, or of a directory with pools and /*`},
		{"--shared-pool-path", "srv", `--pool-path: "srv" is not the path of a pool, or of a directory with pools and /*`},
		{"--every-node-pool-path", "/srv/../etc", `--pool-path: "/srv/../etc" is not the path of a pool, or of a directory with pools and /*`},
		{"--alias", "a b", `--alias: "a b" cannot be a StorageClass's provisioner`},
		{"--hostname", "node-a", `--hostname: "node-a" cannot be a node, or "" its label`},
		{"--class-prefix", "Foo", `--class-prefix: "Foo" cannot begin the name of a StorageClass`},
	} {
		want := "--\nhostpath-provisioner: " + c.says + "\nhint: run: hostpath-provisioner manifests --help\nexit 2\n"
		if got := h.raw("manifests", c.flag, c.value); got != want {
			t.Errorf("%s %s: got %s, want %s", c.flag, c.value, got, want)
		}
	}
	h.must(os.Remove(h.path("config.toml")))
	want := packaging.Manifests(packaging.Options{Namespace: "hostpath-provisioner", Provisioner: "hostpath-provisioner"}) + "exit 0\n"
	if got := h.raw("manifests"); got != want {
		t.Errorf("without a configuration: %s", got)
	}
}

func TestVersion(t *testing.T) {
	built := func(module string, settings ...string) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Version: module}}
		for i := 0; i < len(settings); i += 2 {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return info
	}
	for _, c := range []struct {
		name   string
		linked string
		info   *debug.BuildInfo
		want   string
	}{
		{"set by the linker", "v1.2.3", built("v0.0.1"), "v1.2.3"},
		{"of go install", "", built("v0.9.0"), "v0.9.0"},
		{"of a commit", "", built("(devel)", "vcs.revision", "0123456789abcdef0123", "vcs.modified", "false"), "0123456789ab"},
		{"of a commit with changes", "", built("", "vcs.revision", "0123", "vcs.modified", "true"), "0123-dirty"},
		{"of no repository", "", built("(devel)"), "unknown"},
		{"without build information", "", nil, "unknown"},
	} {
		if got := versionOf(c.linked, c.info); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	defer func(was string) { version = was }(version)
	version = "v1.2.3"
	if got, want := newHost(t, minimal).call("version"), "hostpath-provisioner v1.2.3\nexit 0\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCompletion(t *testing.T) {
	h := newHost(t, minimal)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := h.call("completion", shell); !strings.Contains(got, "hostpath-provisioner") || !strings.HasSuffix(got, "exit 0\n") {
			t.Errorf("%s: %.200s", shell, got)
		}
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	table := newTable(&b, "POOL", "PATH", "FREE")
	table.row("fast", "/srv/fast", "")
	table.row("a-long-name", "/srv", "9.0 GiB of 10 GiB")
	want := "POOL         PATH       FREE\nfast         /srv/fast  -\na-long-name  /srv       9.0 GiB of 10 GiB\n"
	if err := table.flush(); err != nil || b.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestStatus(t *testing.T) {
	h := newHost(t, minimal)
	s := &story{h: h}
	s.says("no daemon")
	s.call("status")
	free, promised, little, used := uint64(9<<30), uint64(3<<29), uint64(11<<10), uint64(5<<20)
	good := daemon.Status{
		Time: noon.Add(-3 * time.Second), PID: os.Getpid(), Version: "v1.2.3", Node: "node-a", Provisioner: "hostpath-provisioner", Ready: true,
		Sentence: "1 of 1 pool open on node node-a, 12 volumes, 9.0 GiB for new ones",
		Pools: []daemon.PoolStatus{{Name: "fast", Path: "/srv/fast", Scope: "node", Open: true,
			Since: noon.Add(-3 * time.Hour), Size: 10 << 30, Free: &free, Promised: &promised,
			Used: &used, Volumes: 12}},
	}
	put := h.status
	put(good)
	s.says("all is well")
	s.call("status")
	s.call("status", "--json")
	full := good
	full.Pools = []daemon.PoolStatus{full.Pools[0]}
	full.Pools[0].Open, full.Pools[0].Full, full.Pools[0].Free = false, true, &little
	full.Pools[0].Reason, full.Pools[0].Message = "Promised", "one more volume can get 11 KiB"
	put(full)
	s.says("all is promised")
	s.call("status")
	typo := good
	typo.OldConfig, typo.Config = true, "/etc/config.toml:3: pool.fast.moed: unknown key"
	put(typo)
	s.says("a reload that the check refused")
	s.call("status")
	s.call("check")
	bad := good
	bad.Ready, bad.API, bad.Sentence = false, "connection refused", "waiting for the API: connection refused; pool bulk is closed: it is not mounted"
	bad.Pools = append(bad.Pools, daemon.PoolStatus{Name: "bulk", Path: "/srv/bulk", Since: noon.Add(-50 * time.Hour), Reason: "NotMounted", Message: "nothing is mounted at /srv/bulk"},
		daemon.PoolStatus{Name: "new", Path: "/srv/new", Open: true, Used: &used,
			UsedEstimate: true, Findings: []hostcheck.Finding{
				{Reason: "ModeTooOpen", Severity: hostcheck.Warn, Message: "the directory /srv/new has mode 0755"}}},
		daemon.PoolStatus{Name: "files", Path: "/srv/files", Open: true, Scope: "shared", Worker: "node-b"},
		daemon.PoolStatus{Name: "more", Path: "/srv/more", Open: true, Scope: "shared"})
	bad.Left = map[string]int{"old": 3}
	half, left := 50.5, 90.0
	for i := range workMost + 3 {
		one := daemon.Work{Kind: "purge", Pool: "fast", Volume: fmt.Sprint("pvc-", i),
			Files: 1234, Seconds: 9, Sentence: "1234 files"}
		if i == 0 {
			one.Kind, one.TotalFiles, one.Percent, one.SecondsLeft = "clone", 2440, &half, &left
			one.Sentence = "1234 of 2440 files, 50%, about 2m0s left"
		}
		bad.Work = append(bad.Work, one)
	}
	put(bad)
	s.says("nothing is well")
	s.call("status")
	s.says("the API alone is away")
	away := good
	away.API = "connection refused"
	away.Pools = full.Pools
	put(away)
	s.call("status")
	s.call("status", "--json")
	s.says("killed")
	dead := good
	dead.PID = 1 << 30 // above pid_max
	put(dead)
	s.call("status")
	s.says("damaged")
	h.write("run/status.json", "{")
	s.call("status")
	golden(t, "status", s.b.String())
}
