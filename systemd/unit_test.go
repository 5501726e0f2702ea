package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

const unitFile = "hostpath-provisioner.service"

func unit(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// verify is what systemd-analyze has to say about a unit. It exits 0 on an unknown key, so its words
// count. The daemon is not installed here; a program that is stands in for it.
func verify(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(hosttest.Dir(t), unitFile)
	text = strings.ReplaceAll(text, "/usr/bin/hostpath-provisioner", "/bin/true")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", file).CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestVerify(t *testing.T) {
	if said := verify(t, unit(t)); said != "" {
		t.Errorf("systemd-analyze verify:\n%s", said)
	}
	// The same check sees what it is there for.
	for old, mistake := range map[string]string{
		"WatchdogSec=30s": "WatchdogSecs=30s",
		"Type=notify":     "Type=notifying",
		"RestartSec=5s":   "RestartSec=soon",
		"[Install]":       "[Instal]",
	} {
		broken := strings.Replace(unit(t), "\n"+old+"\n", "\n"+mistake+"\n", 1)
		if broken == unit(t) {
			t.Errorf("the unit has no line %q", old)
		}
		if said := verify(t, broken); said == "" {
			t.Errorf("%s passed", mistake)
		}
	}
}

// settings are the unit's assignments, without comments.
func settings(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for line := range strings.Lines(unit(t)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			found[key] = append(found[key], value)
		}
	}
	return found
}

func TestLifecycle(t *testing.T) {
	got := settings(t)
	for key, want := range map[string][]string{
		"Type":                     {"notify"},
		"ExecStart":                {"/usr/bin/hostpath-provisioner run"},
		"ExecReload":               {"/usr/bin/hostpath-provisioner check --config-only", `/bin/sh -c 'kill -HUP "$MAINPID"'`},
		"WatchdogSec":              {"30s"},
		"Restart":                  {"on-failure"},
		"RestartPreventExitStatus": {"78"},
		"StateDirectory":           {"hostpath-provisioner"},
		"RuntimeDirectory":         {"hostpath-provisioner"},
		"ConfigurationDirectory":   {"hostpath-provisioner"},
	} {
		if !slices.Equal(got[key], want) {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
}

// Settings that put the service into a mount namespace, or bind a path there, hide the host's mounts
// and unmounts or make a missing one look present (systemd.exec(5)). RestrictSUIDSGID forbids a
// volume with mode 2770.
func TestPoolsStayVisible(t *testing.T) {
	for key := range settings(t) {
		for _, bad := range []string{
			"ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "BindPaths", "BindReadOnlyPaths", "TemporaryFileSystem", "RootDirectory", "RootImage",
			"PrivateTmp", "PrivateDevices", "PrivateMounts", "PrivateUsers", "MountFlags", "ProtectSystem", "ProtectHome", "ProtectKernelTunables",
			"ProtectControlGroups", "ProtectKernelLogs", "ProtectKernelModules", "ProtectProc", "ProcSubset", "DynamicUser", "RestrictSUIDSGID",
		} {
			if key == bad {
				t.Errorf("%s is set", key)
			}
		}
	}
}

// What the checks and the hands need of the kernel: a clone of the parent mount, other people's
// directories, owners and modes, immutable flags.
func TestCapabilities(t *testing.T) {
	bound := strings.Fields(strings.Join(settings(t)["CapabilityBoundingSet"], " "))
	for _, need := range []string{"CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_CHOWN", "CAP_FOWNER", "CAP_FSETID", "CAP_LINUX_IMMUTABLE"} {
		if !slices.Contains(bound, need) {
			t.Errorf("%s is not in %q", need, bound)
		}
	}
}
