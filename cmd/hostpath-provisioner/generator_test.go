package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// generated is everything that the generator writes, by name.
func generated(t *testing.T, h *host) map[string]string {
	t.Helper()
	dir := h.path("normal")
	h.must(os.RemoveAll(dir))
	h.must(os.Mkdir(dir, 0o755))
	if got := h.call("generator", dir, h.path("early"), h.path("late")); got != "exit 0\n" {
		t.Fatal(got)
	}
	all := map[string]string{}
	files, err := filepath.Glob(dir + "/*/*")
	h.must(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		h.must(err)
		all[strings.TrimPrefix(file, dir+"/")] = string(text)
	}
	return all
}

func TestGenerator(t *testing.T) {
	h := newHost(t, `
[pool.fast]
path = "/srv/fast/volumes"
mount_point = "/srv/fast"
device = "LABEL=fast"
[pool.here]
path = "/home/here"
require_mount = false
`)
	want := `# Of the pools in the configuration; made by hostpath-provisioner-generator.
[Unit]
After=srv-fast.mount

[Service]
# pool at /home/here: it is in a home directory
ProtectHome=no
# pool at /srv/fast/volumes: open_tree(2) looks under its mount point
CapabilityBoundingSet=CAP_SYS_ADMIN
AmbientCapabilities=CAP_SYS_ADMIN
SystemCallFilter=open_tree
`
	all := generated(t, h)
	if got := all["hostpath-provisioner-check.service.d/50-pools.conf"]; got != want {
		t.Errorf("check: got\n%s\nwant\n%s", got, want)
	}
	want += `# pool at /srv/fast/volumes: FS_IOC_SETFLAGS lets immutable files be removed with their volume
CapabilityBoundingSet=CAP_LINUX_IMMUTABLE
AmbientCapabilities=CAP_LINUX_IMMUTABLE
# sockets of those who run programs as root
InaccessiblePaths=`
	if got := all["hostpath-provisioner.service.d/50-pools.conf"]; !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if len(all) != 2 {
		t.Errorf("%d files: %q", len(all), all)
	}
	for _, network := range []string{`device = "server:/export"`, `filesystem = "nfs4"`, `filesystem = "fuse.sshfs"`} {
		h.write("config.toml", "[pool.net]\npath = \"/srv/net\"\n"+network)
		if text := generated(t, h)["hostpath-provisioner.service.d/50-pools.conf"]; !strings.Contains(text, "\nUser=root\n") {
			t.Errorf("%s: no User=root in\n%s", network, text)
		}
	}
}

// What a pool's keys ask of the sandbox.
func TestGeneratorCapabilities(t *testing.T) {
	for keys, want := range map[string]string{
		"":                        "CAP_SYS_ADMIN CAP_LINUX_IMMUTABLE",
		`mode = "2770"`:           "CAP_SYS_ADMIN CAP_FSETID CAP_LINUX_IMMUTABLE",
		`immutable = "off"`:       "CAP_LINUX_IMMUTABLE",
		"require_mount = false":   "CAP_LINUX_IMMUTABLE",
		"on_delete = \"archive\"": "CAP_SYS_ADMIN",
		"immutable = \"off\"\non_delete = \"archive\"": "",
	} {
		h := newHost(t, "[pool.p]\npath = \"/srv/p\"\n"+keys+"\n")
		var got []string
		for _, line := range strings.Split(generated(t, h)["hostpath-provisioner.service.d/50-pools.conf"], "\n") {
			if c, is := strings.CutPrefix(line, "CapabilityBoundingSet="); is {
				got = append(got, c)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
}

// Whatever is wrong is said, and nothing is written: a boot goes on.
func TestGeneratorWithout(t *testing.T) {
	h := newHost(t, "pool = 5\n")
	h.must(os.Mkdir(h.path("normal"), 0o755))
	if got := h.call("generator", h.path("normal")); !strings.Contains(got, "want [pool.NAME]") || !strings.HasSuffix(got, "exit 2\n") {
		t.Error(got)
	}
	h.must(os.Remove(h.path("config.toml")))
	if all := generated(t, h); len(all) != 0 {
		t.Errorf("without a configuration: %q", all)
	}
}
