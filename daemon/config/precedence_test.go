package config

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What is wrong in one file stays wrong when a later file has another value: the broken line is
// still there when the later file is removed.
func TestLaterFileMendsNoError(t *testing.T) {
	for _, c := range []struct{ name, base, later, want string }{
		{"value", minimal + "mode = 'rwx'\n", "[pool.p]\nmode = '0700'\n", `config.toml:4: pool.p.mode: "rwx" is not a mode: want octal digits such as "0777"`},
		{"of the daemon", "metrics = 'no'\n" + minimal, "metrics = ''\n", `config.toml:1: metrics: "no" is not host:port`},
		{"path", "node = 'n'\n[pool.p]\npath = 'srv'\n", "[pool.p]\npath = '/srv/p'\n", `config.toml:3: pool.p.path: "srv" is not an absolute path`},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, c.base, "conf.d/a.toml", c.later)
			if _, err := Load(file); err == nil || said(file, err.Error()) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// A rule about several keys looks at what the files say together, and names the file that decided.
func TestRulesSeeTheMergedPool(t *testing.T) {
	for _, c := range []struct{ name, base, later, want string }{
		{"path moves out of its mount point", minimal + "mount_point = '/srv/p'\n", "[pool.p]\npath = '/srv/q'\n",
			`conf.d/a.toml:2: pool.p.path: "/srv/q" is not at or below mount_point "/srv/p"`},
		{"path moves into it", minimal + "mount_point = '/mnt'\n", "[pool.p]\npath = '/mnt/volumes'\n", ""},
		{"scope changes under a source", minimal + "source = 'local'\n", "[pool.p]\nscope = 'shared'\n",
			`config.toml:4: pool.p.source: "local" volumes are one node's, and the pool's scope is "shared"`},
		{"scope changes back", minimal + "scope = 'shared'\nsource = 'local'\n", "[pool.p]\nscope = 'node'\n", ""},
		{"scope changes under source csi", minimal + "source = 'csi'\n", "[pool.p]\nscope = 'every-node'\n",
			`config.toml:4: pool.p.source: "csi" is not for a pool whose scope is "every-node"`},
		{"source csi of a shared pool", minimal + "source = 'csi'\nscope = 'shared'\n", "", ""},
		{"a provisioner that is no driver's name", minimal + "source = 'csi'\n", "provisioner = 'example.com/p'\n",
			`config.toml:4: pool.p.source: "csi" wants a provisioner whose name a CSI driver can have, and "example.com/p" has a capital letter, a slash, an underscore or more than 63 characters`},
		{"a pool in kubelet's directory", minimal, "kubelet_root = '/srv'\n", `config.toml:3: pool.p.path: "/srv/p" is in kubelet_root "/srv", which belongs to kubelet`},
		{"a path too long for a socket", minimal + "source = 'csi'\n", "kubelet_root = '/var/lib/" + strings.Repeat("k", 60) + "'\n", `conf.d/a.toml:1: kubelet_root: the path of the CSI driver's socket would have 116 bytes, and 107 is the most`},
		{"the root as kubelet's directory", minimal, "kubelet_root = '/'\n", `conf.d/a.toml:1: kubelet_root: "/" is not kubelet's directory`},
		{"a second default", minimal + "default = true\n", "[pool.q]\npath = '/srv/q'\ndefault = true\n",
			`conf.d/a.toml:3: pool.q.default: pool "p" is the default already`},
		{"the default moves", minimal + "default = true\n", "[pool.p]\ndefault = false\n[pool.q]\npath = '/srv/q'\ndefault = true\n", ""},
		{"alias of a name that comes later", "aliases = ['a']\n" + minimal, "provisioner = 'a'\n",
			`config.toml:1: aliases: "a" is the provisioner's own name`},
		{"alias of a name that is gone", "provisioner = 'a'\n" + minimal, "provisioner = 'b'\naliases = ['a']\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, c.base, "conf.d/a.toml", c.later)
			if _, err := Load(file); said(file, errText(err)) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// A list in a later file replaces the earlier one as a whole, also with an empty list.
func TestListsAreReplaced(t *testing.T) {
	base := "aliases = ['a', 'b']\n" + minimal + "accept = ['LaxMount', 'WrongLabel']\n"
	for _, c := range []struct{ name, aliases, accept, wantAliases, wantAccept string }{
		{"others", "['c']", "['PlainDirectory']", "c", "PlainDirectory"},
		{"none", "[]", "[]", "", ""},
	} {
		got := load(t, base, "conf.d/a.toml", "aliases = "+c.aliases+"\n[pool.p]\naccept = "+c.accept+"\n")
		if a := strings.Join(got.Aliases, ","); a != c.wantAliases || got.Pools[0].Accept != c.wantAccept {
			t.Errorf("%s: aliases %q, accept %q", c.name, a, got.Pools[0].Accept)
		}
	}
}

// Warnings on keys that have no effect name them, so that their author learns it; a pool with a
// warning is used.
func TestKeysWithoutEffect(t *testing.T) {
	for _, c := range []struct{ name, lines, want string }{
		{"exclusive of a shared pool", "scope = 'shared'\nexclusive = true\n", `config.toml:5: pool.p.exclusive: means nothing while the pool's scope is "shared"`},
		{"exclusive on every node", "scope = 'every-node'\nexclusive = true\n", `config.toml:5: pool.p.exclusive: means nothing while the pool's scope is "every-node"`},
		{"exclusive of a node's pool", "exclusive = true\n", ""},
		{"not exclusive", "scope = 'shared'\nexclusive = false\n", ""},
		{"mount_point of a plain directory", "require_mount = false\naccept = ['PlainDirectory']\nmount_point = '/srv'\n", "config.toml:6: pool.p.mount_point: means nothing while require_mount is false"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, minimal+c.lines)
			got, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			if text := said(file, strings.Join(got.Warnings, "\n")); text != c.want {
				t.Errorf("got %s, want %s", text, c.want)
			}
		})
	}
}

// Pools are found by their names, and Before is what was made ready earlier: none before the first
// and none before a name that is not configured.
func TestPoolsBefore(t *testing.T) {
	c := load(t, minimal+"[pool.a]\npath = '/srv/a'\n[pool.z]\npath = '/srv/z'\n")
	for name, want := range map[string]string{"a": "", "p": "a", "z": "a,p", "none": ""} {
		var got []string
		for _, p := range c.Before(name) {
			got = append(got, p.Name)
		}
		if strings.Join(got, ",") != want {
			t.Errorf("before %s: %q, want %q", name, got, want)
		}
	}
}

// The host's name is the node's where the file has none, and is not looked at where it has one: a
// host of a strange name can be configured.
func TestNodeOfTheHost(t *testing.T) {
	const unnamed = "[pool.p]\npath = '/srv/p'\n"
	for _, c := range []struct{ name, host, config, node, want string }{
		{"the host's name", "Node-B", unnamed, "node-b", ""},
		{"the file's name first", "node-b", minimal, "n", ""},
		{"a name that no node has", "node_b", unnamed, "", `config.toml: node: the host's name "node_b" cannot be a node's name`},
		{"a name that no node has, unused", "node_b", minimal, "n", ""},
		{"the file's name is empty, and the host's is no better", "node_b", "node = ''\n" + unnamed, "", `config.toml:1: node: "" cannot be a node's name`},
		{"the file's name is wrong", "node-b", "node = 'N'\n" + unnamed, "", `config.toml:1: node: "N" cannot be a node's name`},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, c.config)
			var got Config
			var loaded error
			failed := make(chan error)
			go func() {
				runtime.LockOSThread() // never unlocked: the thread ends with its namespace
				err := unix.Unshare(unix.CLONE_NEWUTS)
				if err == nil {
					err = unix.Sethostname([]byte(c.host))
				}
				if err == nil {
					got, loaded = Load(file)
				}
				failed <- err
			}()
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
			if got.Node != c.node || said(file, errText(loaded)) != c.want {
				t.Errorf("node %q, %v; want %q, %s", got.Node, loaded, c.node, c.want)
			}
		})
	}
}

// A drop-in that cannot be read is refused, and does not count as absent: its link's target may be
// on a disk that is not mounted yet.
func TestDropInWithoutTarget(t *testing.T) {
	file := write(t, minimal)
	dir := filepath.Join(filepath.Dir(file), "conf.d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nonexistent/pools.toml", filepath.Join(dir, "a.toml")); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); said(file, errText(err)) != "conf.d/a.toml: no such file or directory" {
		t.Errorf("got %v", err)
	}
}

// Each kind of TOML value is named as its author wrote it.
func TestWrongTypes(t *testing.T) {
	for value, want := range map[string]string{
		"5.5": "the number 5.5", "-3": "the number -3", "true": "true", "[1]": "an array", "2026-01-01T00:00:00Z": "a date",
		"{ a = 1 }": "a table", "07:32:00": "a date",
	} {
		file := write(t, minimal+"directory = "+value+"\n")
		if _, err := Load(file); said(file, errText(err)) != "config.toml:4: pool.p.directory: want a string, got "+want {
			t.Errorf("%s: %v", value, err)
		}
	}
	file := write(t, "confine = 'yes'\n"+minimal)
	if _, err := Load(file); said(file, errText(err)) != `config.toml:1: confine: want true or false, got the string "yes"` {
		t.Errorf("%v", err)
	}
	file = write(t, "namespace = 'kube.system'\n"+minimal)
	if _, err := Load(file); said(file, errText(err)) != `config.toml:1: namespace: "kube.system" cannot be a namespace` {
		t.Errorf("%v", err)
	}
}
