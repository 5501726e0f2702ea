package selinux

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
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
	for _, name := range []string{DomainType, PoolType, SocketType} {
		if !strings.Contains(policy, "type "+name+";") {
			t.Errorf("the policy declares no type %s", name)
		}
	}
	if !strings.Contains(PoolsModule([]PoolLabels{{Path: "/srv", Type: "t"}}), "hostpath_provisioner_volume_type") || !strings.Contains(policy, "attribute hostpath_provisioner_volume_type;") {
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

// rules are the permissions that the policy gives to a domain for types whose name begins with of.
func rules(t *testing.T, domain, of string) (all [][]string) {
	t.Helper()
	for _, r := range regexp.MustCompile(`(?m)^\s*allow `+domain+` `+of+`[^:]*:(\{[^}]*\}|\w+) (\{[^}]*\}|\w+);`).
		FindAllStringSubmatch(source(t, "hostpath_provisioner.te"), -1) {
		all = append(all, strings.Fields(strings.Trim(r[2], "{} ")))
	}
	return all
}

// What nothing in the program needs is not allowed: the daemon sets no quotas, and no resource
// limits. Only the configuration of a pool on a network filesystem has the daemon write to files
// that may be tenants'.
func TestRightsWithoutAUse(t *testing.T) {
	policy := source(t, "hostpath_provisioner.te")
	for _, word := range []string{"sys_resource", "hostpath_provisioner_t fs_t:filesystem { quotaget", "quotaon", "fs_manage_nfs", "use_nfs, true", "append", "execmem", "sys_ptrace", "net_admin"} {
		for line := range strings.Lines(policy) {
			if code, _, _ := strings.Cut(line, "#"); strings.Contains(code, word) {
				t.Errorf("%s: %s", word, line)
			}
		}
	}
	local := PoolsModule([]PoolLabels{{Path: "/srv", Type: "container_file_t"}})
	network := PoolsModule([]PoolLabels{{Path: "/srv", Type: "container_file_t"}, {Path: "/net", Type: "container_file_t", Network: true}})
	if strings.Contains(local, "nfs_t") || !strings.Contains(network, "(optional hostpath_provisioner_nfs_t (typeattributeset hostpath_provisioner_network_type (nfs_t)))") {
		t.Errorf("local:\n%s\nnetwork:\n%s", local, network)
	}
}

// Files of volumes may be made and written for pools that make clones alone.
func TestClonesByTheirConfiguration(t *testing.T) {
	plain, clones := PoolsModule([]PoolLabels{{Path: "/srv", Type: "container_file_t"}}), PoolsModule([]PoolLabels{{Path: "/srv", Type: "container_file_t", Clones: true}})
	const line = "(optional hostpath_provisioner_clone_container_file_t (typeattributeset hostpath_provisioner_clone_type (container_file_t)))"
	if strings.Contains(plain, "clone") || !strings.Contains(clones, line) {
		t.Errorf("without:\n%s\nwith:\n%s", plain, clones)
	}
	if got := rules(t, "hostpath_provisioner_t", "hostpath_provisioner_clone_type"); len(got) != 3 {
		t.Errorf("%d rules: %v", len(got), got)
	}
}

// The daemon's domain writes no unit: the generator has one of its own.
func TestOnlyTheGeneratorWritesUnits(t *testing.T) {
	for _, of := range []string{"init_runtime_t", "init_var_run_t", "systemd_unit"} {
		for _, r := range rules(t, "hostpath_provisioner_t", of) {
			for _, permission := range r {
				if regexp.MustCompile(`write|create|manage|append|rename|unlink`).MatchString(permission) {
					t.Errorf("%s: %s", of, permission)
				}
			}
		}
	}
	// What /run/systemd/generator has: reference policy, Fedora before, Fedora now (systemd.fc).
	for _, of := range []string{"init_runtime_t", "init_var_run_t", "systemd_unit_file_t"} {
		got := fmt.Sprint(rules(t, "hostpath_provisioner_generator_t", of))
		if got != "[[manage_dir_perms] [manage_file_perms]]" {
			t.Errorf("the generator, %s: %s", of, got)
		}
	}
}

// fakes are programs by these names that write their arguments into a file.
func fakes(t *testing.T, names ...string) (dir string, calls func() string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range names {
		script := "#!/bin/sh\necho " + name + " \"$@\" >> " + dir + "/calls\n"
		if err := os.WriteFile(dir+"/"+name, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir, func() string {
		text, err := os.ReadFile(dir + "/calls")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// What is below the daemon's own directory, and is not its own, may be a pool: no label there is
// changed. It is tried with the script's function on a tree, because this host has no policy.
func TestScriptEntersNoPool(t *testing.T) {
	root := t.TempDir()
	for _, file := range []string{"state/pools/a.json", "pools/a.json", "pools/data/file", "fast/pvc-1/file", "fast/state/file"} {
		if err := os.MkdirAll(root+"/"+file[:strings.LastIndexByte(file, '/')], 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+"/"+file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := source(t, "selinux-module")
	begin := strings.Index(script, "relabel_own() {")
	if begin < 0 {
		t.Fatal("the script has no relabel_own")
	}
	body := script[begin : begin+strings.Index(script[begin:], "\n}")+2]
	bin, calls := fakes(t, "restorecon")
	cmd := exec.Command("sh", "-euc", "program=/nonesuch generator=/nonesuch looker=/nonesuch driver=/nonesuch state="+root+"\n"+body+"\nrelabel_own")
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "restorecon " + root + "\nrestorecon " + root + "/pools\nrestorecon " + root + "/pools/a.json\nrestorecon -R -x " + root + "/state\n"
	got := ""
	for line := range strings.Lines(calls()) {
		if strings.Contains(line, root) { // the host's own directories may be there
			got += line
		}
	}
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for line := range strings.Lines(script) {
		if strings.Contains(line, "restorecon") && strings.Contains(line, "-R") && !strings.Contains(line, "-x") {
			t.Errorf("crosses into other filesystems: %s", line)
		}
	}
}

// Each directory in /run that the policy has a label for gets it when the policy is loaded: it may
// have been made before, and systemd keeps it.
func TestScriptLabelsRuntimeDirectories(t *testing.T) {
	script := source(t, "selinux-module")
	all := regexp.MustCompile(`(?m)^(/run/\S+)\(/\.\*\)\?`).FindAllStringSubmatch(source(t, "hostpath_provisioner.fc"), -1)
	if len(all) < 3 {
		t.Fatalf("the policy has %d such directories", len(all))
	}
	line := regexp.MustCompile(`(?m)^\tfor path in (.*); do\n.*restorecon -R`).FindStringSubmatch(script)
	if line == nil {
		t.Fatal("the script relabels no directory")
	}
	for _, one := range all {
		if !slices.Contains(strings.Fields(line[1]), one[1]) {
			t.Errorf("%s is not relabelled", one[1])
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

// The daemon, which talks to the network, has no sys_admin; what looks under mount points and what
// mounts volumes have no network.
func TestWhoHasAdmin(t *testing.T) {
	for domain, want := range map[string]bool{"hostpath_provisioner_t": false, "hostpath_provisioner_mountpoint_t": true, "hostpath_provisioner_csi_t": true, "hostpath_provisioner_generator_t": false} {
		got := false
		for _, r := range rules(t, domain, "self") {
			got = got || slices.Contains(r, "sys_admin")
		}
		if got != want {
			t.Errorf("%s: sys_admin %t", domain, got)
		}
	}
	const admin = `provisioner_(mountpoint|csi)_t`
	if network := regexp.MustCompile(`(corenet_|tcp_socket|udp_socket|sysnet_).*` + admin + `|` + admin + `.*(tcp_socket|udp_socket)`).FindString(source(t, "hostpath_provisioner.te")); network != "" {
		t.Error(network)
	}
}

// What mounts volumes reads records and no tenant's file, and writes neither: its own list of what
// it paused alone.
func TestDriverWritesNoFile(t *testing.T) {
	const domain = "hostpath_provisioner_csi_t"
	allowed := map[string][]string{
		"hostpath_provisioner_pool_t": {"ioctl"}, "hostpath_provisioner_volume_type": {"getattr", "search"},
		"hostpath_provisioner_kubelet_type": {"getattr", "search", "write", "add_name", "remove_name", "create", "rmdir", "mounton"},
	}
	for of, want := range allowed {
		all := rules(t, domain, of)
		if len(all) != 1 || !slices.Equal(all[0], want) {
			t.Errorf("%s: %q, want %q", of, all, want)
		}
	}
	for line := range strings.Lines(source(t, "hostpath_provisioner.te")) {
		code, _, _ := strings.Cut(line, "#")
		if strings.Contains(code, domain) && !strings.Contains(code, "hostpath_provisioner_csi_runtime_t") && regexp.MustCompile(`(manage|write|create|rw|append|delete)_(files|dirs)_pattern|:(file|lnk_file) \{?[^;]*(write|create|append|unlink|rename|setattr)`).MatchString(code) {
			t.Errorf("%s", line)
		}
	}
}

// The sockets of each driver have a label by their paths, whatever the module that is loaded knows.
func TestSocketsLabels(t *testing.T) {
	module := PoolsModule(nil, "/var/lib/kubelet/plugins/a.b/csi.sock", "/k/plugins_registry/a.b-reg.sock")
	for _, want := range []string{
		`(optional hostpath_provisioner_socket_0 (filecon "/var/lib/kubelet/plugins/a\.b/csi\.sock" socket (system_u object_r hostpath_provisioner_csi_socket_t ((s0) (s0)))))`,
		`(optional hostpath_provisioner_socket_1 (filecon "/k/plugins_registry/a\.b-reg\.sock" socket (system_u object_r hostpath_provisioner_csi_socket_t ((s0) (s0)))))`,
	} {
		if !strings.Contains(module, want+"\n") {
			t.Errorf("no %s in\n%s", want, module)
		}
	}
}

// On an upgrade kubelet keeps the driver: the sockets are made again only where their label, or
// that of the program behind them, is not the policy's.
func TestScriptKeepsTheDriver(t *testing.T) {
	script := source(t, "selinux-module")
	begin := strings.Index(script, "label() {")
	end := strings.Index(script, "installed() {")
	if begin < 0 || end < begin {
		t.Fatal("the script has no new_driver_sockets before installed")
	}
	root := t.TempDir()
	socket := root + "/csi.sock"
	datagrams := root + "/inline.sock"
	if err := errors.Join(os.WriteFile(socket, nil, 0o600), os.WriteFile(datagrams, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	body := strings.ReplaceAll(script[begin:end], "/run/systemd/system", root)
	for _, c := range []struct {
		name, before, wrong string
		restart             bool
	}{
		{"nothing changed", "same", "/nonesuch", false},
		{"the program has another label", "other", "/nonesuch", true},
		{"a socket has another label", "same", socket, true},
		{"one for datagrams has another label", "same", datagrams, true},
	} {
		bin, calls := fakes(t, "try")
		for name, text := range map[string]string{
			"stat": "echo same", "restorecon": `[ "$3" != ` + c.wrong + ` ] || echo Would relabel`,
			"systemctl": `[ "$1" != show ] && exec try "$@"; echo "` + socket + ` (Stream)"; echo "/nonesuch (Stream)"; echo "` + datagrams + ` (Datagram)"`,
		} {
			if err := os.WriteFile(bin+"/"+name, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("sh", "-euc", "driver=/nonesuch\n"+body+"\ntry begin\nnew_driver_sockets "+c.before)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c.name, err, out)
		}
		want := "try begin\n"
		if c.restart {
			want += "try try-restart hostpath-provisioner-csi.socket\n"
		}
		if got := calls(); got != want {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
	}
}
