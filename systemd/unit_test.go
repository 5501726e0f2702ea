package systemd

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/mountpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

const (
	unitFile   = "hostpath-provisioner.service"
	checkFile  = "hostpath-provisioner-check.service"
	socketFile = "hostpath-provisioner-metrics.socket"
	lookFile   = "hostpath-provisioner-mountpoint.service"
	askFile    = "hostpath-provisioner-mountpoint.socket"
	csiFile    = "hostpath-provisioner-csi.service"
)

func unit(t *testing.T) string { return read(t, unitFile) }

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// verify is what systemd-analyze has to say about a unit. It exits 0 on an unknown key, so its
// words count. The daemon is not installed here; a program that is stands in for it.
func verify(t *testing.T, name, text string) string {
	t.Helper()
	return verifyIn(t, hosttest.Dir(t), name, text)
}

func verifyIn(t *testing.T, dir, name, text string) string {
	t.Helper()
	service := installed(unit(t))
	text = installed(text)
	others := map[string]string{unitFile: service, lookFile: installed(read(t, lookFile)), askFile: read(t, askFile), CSISocket: read(t, CSISocket), csiFile: installed(read(t, csiFile))}
	others[name] = text
	for file, text := range others { // they want each other
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", filepath.Join(dir, name)).CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// installed is a unit with a program that is there in place of ours.
func installed(text string) string {
	return strings.NewReplacer("/usr/bin/hostpath-provisioner", "/bin/true", "/usr/libexec/hostpath-provisioner/mountpoint", "/bin/true", "/usr/libexec/hostpath-provisioner/csi-node", "/bin/true").Replace(text)
}

func TestVerify(t *testing.T) {
	for _, name := range []string{unitFile, checkFile, socketFile, lookFile, askFile, csiFile, CSISocket} {
		if said := verify(t, name, read(t, name)); said != "" {
			t.Errorf("systemd-analyze verify:\n%s", said)
		}
	}
	// The same check sees what it is there for.
	for old, mistake := range map[string]string{
		"WatchdogSec=30s": "WatchdogSecs=30s",
		"Type=notify":     "Type=notifying",
		"RestartSec=5s":   "RestartSec=soon",
		"[Install]":       "[Instal]",
		"PrivateTmp=yes":  "PrivateTmp=perhaps",
	} {
		broken := strings.Replace(unit(t), "\n"+old+"\n", "\n"+mistake+"\n", 1)
		if broken == unit(t) {
			t.Errorf("the unit has no line %q", old)
		}
		if said := verify(t, unitFile, broken); said == "" {
			t.Errorf("%s passed", mistake)
		}
	}
}

// settings are a unit's assignments, without comments.
func settings(text string) map[string][]string {
	found := map[string][]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			found[key] = append(found[key], value)
		}
	}
	return found
}

func TestLifecycle(t *testing.T) {
	wantSettings(t, unitFile, map[string][]string{
		"Type":                     {"notify"},
		"ExecStart":                {"/usr/bin/hostpath-provisioner run"},
		"ExecReload":               {"/usr/bin/hostpath-provisioner check --config-only", `/bin/sh -c 'kill -HUP "$MAINPID"'`},
		"WatchdogSec":              {"30s"},
		"Restart":                  {"on-failure"},
		"RestartPreventExitStatus": {"78"},
		"StateDirectory":           {"hostpath-provisioner/state"},
		"RuntimeDirectory":         {"hostpath-provisioner"},
		"ConfigurationDirectory":   nil, // it would be writable (systemd.exec(5), ProtectSystem=)
		"BindReadOnlyPaths":        {"/dev:" + hostcheck.ShownDev + ":norbind"},
		"LoadCredential":           {CredentialKubeconfig + ":hostpath-provisioner.kubeconfig"},
		"Requires":                 nil,
		"BindsTo":                  nil,
		"RequiresMountsFor":        nil,
		"Wants":                    {"network-online.target " + askFile},
		"RestartSteps":             nil, // systemd 254; Debian 12 and RHEL 9 have 252, and warn
		"RestartMaxDelaySec":       nil,
	})
	wantSettings(t, checkFile, map[string][]string{
		"Type":              {"oneshot"},
		"ExecStart":         {"/usr/bin/hostpath-provisioner check"},
		"SuccessExitStatus": {"3"},
		"Before":            {"kubelet.service k3s.service k3s-agent.service rke2-server.service rke2-agent.service"},
		"RequiredBy":        {"kubelet.service k3s.service k3s-agent.service rke2-server.service rke2-agent.service"},
		"StateDirectory":    {"hostpath-provisioner/state"},
		"Wants":             {askFile},
	})
	wantSettings(t, lookFile, map[string][]string{
		"ExecStart":             {"/usr/libexec/hostpath-provisioner/mountpoint"},
		"Requires":              {askFile}, // or its socket could not be started again beside it
		"PartOf":                {unitFile},
		"StartLimitIntervalSec": {"0"},
		"Restart":               {"on-failure"},
		"User":                  {"hostpath-mountpoint"},
		"PrivateNetwork":        {"yes"},
		"SELinuxContext":        nil, // where the policy does not know it, the socket does not start
		"WantedBy":              nil,
	})
	wantSettings(t, askFile, map[string][]string{
		"FileDescriptorName":      {SocketMountpoint},
		"ListenDatagram":          {mountpoint.Socket},
		"SocketUser":              {"root"},
		"SocketMode":              {"0660"},
		"TriggerLimitIntervalSec": {"0"},
		"WantedBy":                nil, // those who ask want it
	})
	for _, name := range []string{unitFile, checkFile} {
		if text := read(t, name); !strings.Contains(text, askFile+"\n# What lies under") {
			t.Errorf("%s is not ordered after %s", name, askFile)
		}
		wantSettings(t, name, map[string][]string{"Group": settings(read(t, askFile))["SocketGroup"]})
	}
	wantSettings(t, csiFile, map[string][]string{
		"ExecStart":               {"/usr/libexec/hostpath-provisioner/csi-node"},
		"ExecStopPost":            {"/usr/libexec/hostpath-provisioner/csi-node --thaw"},
		"Delegate":                {""}, // in a cgroup of its own
		"Requires":                {CSISocket},
		"StartLimitIntervalSec":   {"0"},
		"CapabilityBoundingSet":   {"CAP_SYS_ADMIN CAP_DAC_READ_SEARCH"},
		"NoNewPrivileges":         {"yes"},
		"RestrictAddressFamilies": {"AF_UNIX"},
		"WantedBy":                nil, // kubelet's call starts it
	})
	wantSettings(t, CSISocket, map[string][]string{
		"FileDescriptorName": {SocketCSI},
		"ListenStream":       csi.SocketPaths("/var/lib/kubelet", "hostpath-provisioner"),
		"SocketMode":         {"0600"},
		"Before":             settings(read(t, checkFile))["Before"],
		"WantedBy":           {"sockets.target"},
	})
	wantSettings(t, socketFile, map[string][]string{
		"FileDescriptorName": {SocketMetrics},
		"Service":            {unitFile},
	})
}

func wantSettings(t *testing.T, name string, all map[string][]string) {
	t.Helper()
	got := settings(read(t, name))
	for key, want := range all {
		if !slices.Equal(got[key], want) {
			t.Errorf("%s: %s is %q, want %q", name, key, got[key], want)
		}
	}
}

// readOnly are directories of programs that no pool is put into.
var readOnly = []string{
	"-/run/systemd/resolve", "-/run/NetworkManager", "-/run/resolvconf", "-/run/connman",
	"-/run/netconfig", "-/run/udev", "-/var/lib/ca-certificates",
	"-/proc/stat", "-/proc/filesystems",
}

// Settings that bind a path of the host on itself, or make read-only what is mounted at start, hide
// the host's mounts and unmounts or make a missing one look present (systemd.exec(5)).
// RestrictSUIDSGID forbids a volume with mode 2770, and openat2. That the rest does not is proven
// by test/systemd.
func TestPoolsStayVisible(t *testing.T) {
	for _, name := range []string{unitFile, checkFile, lookFile} {
		got := settings(read(t, name))
		for _, bad := range []string{
			"ReadWritePaths", "InaccessiblePaths", "BindPaths", "TemporaryFileSystem", "RootDirectory",
			"RootImage",
			"PrivateUsers", "MountFlags", "DynamicUser", "RestrictSUIDSGID",
		} {
			if got[bad] != nil {
				t.Errorf("%s: %s is set", name, bad)
			}
		}
		for _, path := range strings.Fields(strings.Join(got["ReadOnlyPaths"], " ")) {
			if !slices.Contains(readOnly, path) {
				t.Errorf("%s: ReadOnlyPaths has %s, and a pool may be there", name, path)
			}
		}
		if !slices.Equal(got["ProtectSystem"], []string{"full"}) {
			t.Errorf("%s: ProtectSystem is %q", name, got["ProtectSystem"])
		}
	}
}

// What is mounted in a namespace of its own never reaches the pods: no setting of the unit wants
// one (exec_needs_mount_namespace in systemd's core/execute.c).
func TestCSIHasNoMountNamespace(t *testing.T) {
	got := settings(read(t, csiFile))
	for _, bad := range []string{
		"ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "ExecPaths", "NoExecPaths", "BindPaths", "BindReadOnlyPaths", "TemporaryFileSystem",
		"RootDirectory", "RootImage", "MountImages", "ExtensionImages", "MountFlags", "MountAPIVFS", "DynamicUser", "PrivateTmp", "PrivateDevices",
		"PrivateMounts", "PrivateUsers", "PrivateIPC", "PrivateNetwork", "ProtectSystem", "ProtectHome", "ProtectKernelTunables", "ProtectKernelModules",
		"ProtectKernelLogs", "ProtectControlGroups", "ProtectProc", "ProcSubset", "LogNamespace", "StateDirectory", "CacheDirectory", "LoadCredential",
		"RestrictSUIDSGID",
	} {
		if got[bad] != nil {
			t.Errorf("%s is set", bad)
		}
	}
}

// Each capability has a comment that names the call that needs it, is given to the user, and there
// is no other.
func TestCapabilities(t *testing.T) {
	for _, name := range []string{unitFile, checkFile, lookFile} {
		text := read(t, name)
		got := settings(text)
		bound := strings.Fields(strings.Join(got["CapabilityBoundingSet"], " "))
		var explained []string
		for _, m := range regexp.MustCompile(`(?m)^# (CAP_[A-Z_]+) +\S`).FindAllStringSubmatch(text, -1) {
			explained = append(explained, m[1])
		}
		if len(bound) == 0 || !slices.Equal(bound, explained) {
			t.Errorf("%s: CapabilityBoundingSet is %q, and %q are explained", name, bound, explained)
		}
		if ambient := strings.Fields(strings.Join(got["AmbientCapabilities"], " ")); !slices.Equal(ambient, bound) {
			t.Errorf("%s: AmbientCapabilities is %q, CapabilityBoundingSet %q", name, ambient, bound)
		}
	}
}

// fault is a line of `systemd-analyze security`.
type fault struct {
	Name     string  `json:"name"`
	Set      *bool   `json:"set"`
	Exposure *string `json:"exposure"`
}

// judged is what systemd-analyze finds fault with in a unit, and its exposure: the least number at
// which --threshold lets it pass.
func judged(t *testing.T, name, text string) (faults []string, exposure float64) {
	t.Helper()
	file := filepath.Join(hosttest.Dir(t), name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--json=short", file).Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var all []fault
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for _, f := range all {
		if f.Exposure != nil && (f.Set == nil || !*f.Set) {
			faults = append(faults, f.Name)
		}
	}
	table, _ := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", file).Output()
	m := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+) `).FindSubmatch(table)
	if m == nil || len(all) < 50 {
		t.Fatalf("no judgement in\n%s", table)
	}
	exposure, err = strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return faults, exposure
}

// generated is the [Service] section that a configuration adds.
func generated(name string, p Pool) string {
	_, settings, _ := strings.Cut(GeneratedDropIn(name, []Pool{p}), "[Service]\n")
	return settings
}

// with adds settings to a unit's section.
func with(text, settings string) string {
	return strings.Replace(text, "\n[Install]\n", "\n"+settings+"\n[Install]\n", 1)
}

// A pool as it is when the configuration says nothing but its path; one with quota = "project"; and
// one that needs everything.
var (
	limitedPool = Pool{MountPoint: "/srv/x", Path: "/srv/x", Purge: true, Quota: true}
	defaultPool = Pool{MountPoint: "/srv/x", Path: "/srv/x", Purge: true}
	neediest    = Pool{MountPoint: "/srv/x", Path: "/srv/x", Purge: true, SetGroupID: true, Quota: true}
)

// The daemon talks to the network, and CAP_SYS_ADMIN is another process's, whatever the pools are.
func TestNetworkWithoutAdmin(t *testing.T) {
	everything := []Pool{neediest, {MountPoint: "/net", Path: "/net", Network: true}, {Path: "/home/x"}, {Path: "/tmp/x"}}
	for _, name := range []string{unitFile, checkFile, lookFile} {
		all := settings(read(t, name) + GeneratedDropIn(name, everything))
		may := strings.Contains(strings.Join(slices.Concat(all["CapabilityBoundingSet"], all["SystemCallFilter"]), " "), "CAP_SYS_ADMIN")
		clones := strings.Contains(strings.Join(all["SystemCallFilter"], " "), "open_tree")
		if looks := name == lookFile; may != looks || clones != looks {
			t.Errorf("%s: CAP_SYS_ADMIN %t, open_tree %t", name, may, clones)
		}
	}
}

// Each fault that is found is explained in the unit's last comment, and none that is not.
func TestExposure(t *testing.T) {
	for name, limit := range map[string]struct{ alone, usual, limited float64 }{unitFile: {2.0, 2.0, 2.0}, checkFile: {1.2, 1.2, 1.3}, lookFile: {1.3, 1.3, 1.4}, csiFile: {3.7, 3.7, 3.7}} {
		text := read(t, name)
		if _, exposure := judged(t, name, text); exposure > limit.alone {
			t.Errorf("%s: exposure %.1f, want at most %.1f", name, exposure, limit.alone)
		}
		if _, exposure := judged(t, name, with(text, generated(name, defaultPool))); exposure > limit.usual {
			t.Errorf("%s with a usual pool: exposure %.1f, want at most %.1f", name, exposure, limit.usual)
		} else {
			t.Logf("%s with a usual pool: exposure %.1f", name, exposure)
		}
		if _, exposure := judged(t, name, with(text, generated(name, limitedPool))); exposure > limit.limited {
			t.Errorf("%s with a pool with project quotas: exposure %.1f, want at most %.1f", name, exposure, limit.limited)
		}
		faults, _ := judged(t, name, with(text, generated(name, neediest)))
		_, reasons, _ := strings.Cut(text, "finds fault with, and why it stays:\n")
		for _, fault := range faults {
			for _, part := range partsOf(fault) {
				if !strings.Contains(reasons, part) {
					t.Errorf("%s: no reason for %s", name, fault)
				}
			}
		}
		for _, m := range regexp.MustCompile(`\b([A-Z]\w+)=`).FindAllStringSubmatch(strings.Split(reasons, "\n\n")[0], -1) {
			explained := slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, m[1]+"=") })
			named := slices.Contains([]string{"ProtectClock", "IPAddressAllow", "DevicePolicy"}, m[1])
			if !explained && !named {
				t.Errorf("%s: %s= is explained, and no tool finds fault with it", name, m[1])
			}
		}
	}
	// The measure moves when the sandbox does.
	if _, exposure := judged(t, unitFile, strings.Replace(unit(t), "\nPrivateDevices=yes\n", "\n", 1)); exposure <= 2.0 {
		t.Errorf("without PrivateDevices= the exposure is %.1f as well", exposure)
	}
}

// partsOf "SystemCallFilter=~@mount" are "SystemCallFilter=" and "~@mount".
func partsOf(fault string) []string {
	key, value, _ := strings.Cut(fault, "=~")
	if value == "" {
		return []string{fault}
	}
	return []string{key + "=", "~" + value}
}
