package selinux

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

func source(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Go and the policy call the types by the same names.
func TestTypesOfThePolicy(t *testing.T) {
	policy := source(t, "hostpath_provisioner.te")
	for _, name := range []string{DomainType, PoolType} {
		if !strings.Contains(policy, "type "+name+";") {
			t.Errorf("the policy declares no type %s", name)
		}
	}
	if !strings.Contains(PoolsModule([]PoolLabels{{"/srv", "t"}}), "hostpath_provisioner_volume_type") || !strings.Contains(policy, "attribute hostpath_provisioner_volume_type;") {
		t.Error("module and policy do not share the attribute of volumes")
	}
}

// Volumes are born with their label: the daemon's domain is not allowed to change the label of
// anything, so a product that relabelled after mkdir would fail in the virtual machine.
func TestDaemonMayNotRelabel(t *testing.T) {
	for line := range strings.Lines(source(t, "hostpath_provisioner.te")) {
		code, _, _ := strings.Cut(line, "#")
		if regexp.MustCompile(`relabel(from|to)`).MatchString(code) {
			t.Errorf("%s", line)
		}
	}
}

// Tenants' files may be removed, and not written, executed or mapped.
func TestTenantsFilesAreNotWritten(t *testing.T) {
	rules := regexp.MustCompile(`(?m)^allow hostpath_provisioner_t hostpath_provisioner_volume_type:(\{[^}]*\}|\w+) (\{[^}]*\}|\w+);`).
		FindAllStringSubmatch(source(t, "hostpath_provisioner.te"), -1)
	if len(rules) < 3 {
		t.Fatalf("only %d rules about volumes", len(rules))
	}
	for _, r := range rules {
		if !strings.Contains(r[1], "file") {
			continue
		}
		for _, permission := range strings.Fields(strings.Trim(r[2], "{}")) {
			switch permission {
			case "getattr", "setattr", "unlink", "link", "rename", "open", "read", "ioctl":
			default:
				t.Errorf("%s: %s", r[1], permission)
			}
		}
	}
}

// The script is sound, and content on a host without a policy.
func TestScript(t *testing.T) {
	if out, err := exec.Command("sh", "-n", "selinux-module").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := os.Stat("/etc/selinux/config"); err == nil {
		t.Skip("this host has a policy, into which a test loads nothing")
	}
	for arg, code := range map[string]int{"install": 0, "pools": 0, "remove": 0, "": 2, "now": 2} {
		cmd := exec.Command("sh", "selinux-module", arg)
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != code {
			t.Errorf("%q: exit code %d\n%s", arg, cmd.ProcessState.ExitCode(), out)
		}
	}
}
