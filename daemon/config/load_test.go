package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/goldenfile"
)

// write makes a configuration directory: "config.toml" and, with the other pairs, files beside it.
func write(t testing.TB, config string, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	files := append([]string{"config.toml", config}, more...)
	for i := 0; i < len(files); i += 2 {
		file := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "config.toml")
}

// said is an error or a list of warnings without the directory of the test.
func said(file, text string) string {
	return strings.ReplaceAll(text, filepath.Dir(file)+"/", "")
}

func load(t testing.TB, config string, more ...string) Config {
	t.Helper()
	c, err := Load(write(t, config, more...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func same(t testing.TB, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

const minimal = "node = 'n'\n[pool.p]\npath = '/srv/p'\n"

func TestDefaults(t *testing.T) {
	want := Default()
	want.Node = "n"
	pool := DefaultPool("p")
	pool.Path, pool.MountPoint, pool.Default = "/srv/p", "/srv/p", true
	want.Pools = []Pool{pool}
	same(t, load(t, minimal), want)
}

func TestEveryKey(t *testing.T) {
	got, err := Load("testdata/full/config.toml")
	if err != nil {
		t.Fatal(err)
	}
	bulk := DefaultPool("bulk")
	bulk.Path, bulk.MountPoint, bulk.RequireMount, bulk.ReservePercent = "/srv/bulk", "/srv/bulk", false, 2.5
	bulk.Clones, bulk.Snapshots = plan.ClonesCopy, plan.SnapshotsCopy
	bulk.PauseLimit = 1500 * time.Millisecond
	bulk.Quota, bulk.QuotaFirst, bulk.QuotaLast, bulk.InodesPerGiB = plan.QuotaProject, 2000000000, 2000000999, 65536
	bulk.Set = "bulk"
	ofBulk := bulk
	ofBulk.Name, ofBulk.Path, ofBulk.MountPoint = "bulk-b", "/mnt/b", "/mnt/b"
	same(t, got, Config{
		Provisioner:       "torchbox.com/hostpath",
		Aliases:           []string{"hostpath", "microk8s.io/hostpath", "kubevirt.io.hostpath-provisioner"},
		Node:              "node-a.example",
		Kubeconfig:        "/nonexistent/kubeconfig",
		Namespace:         "storage",
		Metrics:           "[::1]:9812",
		MetricsWebConfig:  "/dev/null",
		Confine:           false,
		VolumeMetrics:     50,
		KubeletRoot:       "/var/lib/k0s/kubelet",
		CSIDrivers:        []string{"kubevirt.io.hostpath-provisioner"},
		ActOnSelectedNode: true,
		Pools: []Pool{bulk, ofBulk, {
			Name: "fast", Path: "/srv/fast/volumes", MountPoint: "/srv/fast", RequireMount: true,
			Immutable: "warn", Filesystem: "ext4", Device: "UUID=0a1b2c3d-1111-2222-3333-444455556666",
			Scope: "node", Exclusive: true, Source: "local", SourceSet: true, Mode: 0o770 | fs.ModeSetgid, Owner: "root", Group: "1000", GID: 1000,
			Directory: Pattern{"{{.Namespace}}-{{.Claim}}-{{.PV}}"}, OnDelete: "archive", SELinuxType: "svirt_file_t",
			ReclaimPolicy: "Retain", Accept: "LaxMount", Clones: plan.ClonesOff, Snapshots: plan.SnapshotsOff, PauseLimit: 5 * time.Second, Quota: plan.QuotaCeph, QuotaFirst: QuotaFirst, QuotaLast: QuotaLast, ReserveBytes: 10 << 30, Overcommit: 1.5, Default: true,
		}},
		Warnings: []string{
			"testdata/full/config.toml:41: pool.bulk.require_mount: false: /srv/bulk may be a plain directory on the host's own filesystem, which volumes can fill",
			"testdata/full/config.toml:41: pool.bulk.require_mount: false: /mnt/b may be a plain directory on the host's own filesystem, which volumes can fill",
		},
	})
	// The file above has every key there is, so that this test cannot forget one.
	text, err := os.ReadFile("testdata/full/config.toml")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range Keys() {
		if name := strings.TrimPrefix(key, "pool.NAME."); !strings.Contains(string(text), "\n"+name+" ") && !strings.HasPrefix(string(text), name+" ") {
			t.Errorf("testdata/full/config.toml has no %s", key)
		}
	}
}

// Everything wrong is said in one run, in the order of files and lines.
func TestEverythingAtOnce(t *testing.T) {
	_, err := Load("testdata/everything/config.toml")
	var all Errors
	if !errors.As(err, &all) {
		t.Fatalf("%T %v, want Errors", err, err)
	}
	goldenfile.Compare(t, "testdata/everything/expected.txt", err.Error()+"\n")
}

func TestRefusals(t *testing.T) {
	pool := func(lines string) string { return minimal + lines }
	for _, c := range []struct{ name, config, want string }{
		{"empty", "", "config.toml: pool: no pool is configured"},
		{"no pool in the table", "node='n'\n[pool]\n", "config.toml: pool: no pool is configured"},
		{"no path", "node='n'\n\n[pool.p]\nmode='0777'\n", "config.toml:3: pool.p.path: is missing"},
		{"syntax", "node='n'\n[pool.p\n", "config.toml:2: expected '.' or ']' to end table name, but got '\\n' instead"},
		{"key twice", minimal + "path = '/srv/q'\n", "config.toml:4: Key 'pool.p.path' has already been defined."},
		{"not UTF-8", "node = '\xff'\n", "config.toml:1: invalid UTF-8 byte: 0xff"},
		{"pool is no table", "pool = 3\n", "config.toml:1: pool: want [pool.NAME], got the number 3"},
		{"array of pools", "node='n'\n[[pool]]\nname='fast'\n", "config.toml:2: pool: want [pool.NAME], got an array"},
		{"pool key outside", "node='n'\npath='/srv/q'\n[pool.p]\npath='/srv/p'\n", "config.toml:2: path: unknown key"},
		{"forgot the name", "node='n'\n[pool]\npath='/srv/p'\n", "config.toml:3: pool.path: want a table, got the string \"/srv/p\""},
		{"unknown table", minimal + "[qool.q]\nx=1\n", "config.toml:4: qool: unknown key; did you mean \"pool\"?"},
		{"table for a value", minimal + "[pool.p.mode]\nx=1\n", "config.toml:4: pool.p.mode: want a string, got a table"},
		{"array for a value", pool("owner = ['root']\n"), "config.toml:4: pool.p.owner: want a string, got an array"},
		{"bare octal number", pool("mode = 0777 # all\n"), `config.toml:4: mode: write it in quotes: mode = "0777"`},
		{"bare octal number that hides nothing", pool("mode = 0777\nmoed = 1\n"),
			"config.toml:4: mode: write it in quotes: mode = \"0777\"\nconfig.toml:5: pool.p.moed: unknown key; did you mean \"mode\"?"},
		{"date for a value", pool("owner = 2026-01-01\n"), "config.toml:4: pool.p.owner: want a string, got a date"},
		{"misspelt", pool("immutible = 'off'\n"), `config.toml:4: pool.p.immutible: unknown key; did you mean "immutable"?`},
		{"nothing near", pool("compression = 'off'\n"), `config.toml:4: pool.p.compression: unknown key`},
		{"case matters", pool("Mode = '0700'\n"), `config.toml:4: pool.p.Mode: unknown key; did you mean "mode"?`},
		{"dotted", "node='n'\npool.p.path='srv'\n", `config.toml:2: pool.p.path: "srv" is not an absolute path`},
		{"inline", "node='n'\npool = { p = { path='srv' } }\n", `config.toml:2: pool.p.path: "srv" is not an absolute path`},
		{"crlf", "node='n'\r\n[pool.p]\r\npath='srv'\r\n", `config.toml:3: pool.p.path: "srv" is not an absolute path`},
		{"byte order mark", "\xef\xbb\xbfnode='n'\n[pool.p]\npath='srv'\n", `config.toml:3: pool.p.path: "srv" is not an absolute path`},

		{"provisioner", "provisioner=''\n" + minimal, `config.toml:1: provisioner: "" cannot be a StorageClass's provisioner`},
		{"aliases as a string", "aliases='hostpath'\n" + minimal, `config.toml:1: aliases: want an array of strings, got the string "hostpath"`},
		{"aliases with a number", "aliases=['hostpath', 3]\n" + minimal, `config.toml:1: aliases: want an array of strings, got one with the number 3`},
		{"alias that is no name", "aliases=['host path']\n" + minimal, `config.toml:1: aliases: "host path" cannot be a StorageClass's provisioner`},
		{"alias twice", "aliases=['a', 'a']\n" + minimal, `config.toml:1: aliases: "a" is listed twice`},
		{"alias of itself", "provisioner='a'\naliases=['b', 'a']\n" + minimal, `config.toml:2: aliases: "a" is the provisioner's own name`},
		{"node empty", "node = ''\n[pool.p]\npath = '/srv/p'\n", `config.toml:1: node: "" cannot be a node's name`},
		{"kubeconfig", "kubeconfig='~/.kube/config'\n" + minimal, `config.toml:1: kubeconfig: "~/.kube/config" is not an absolute path`},
		{"metrics no port", "metrics='127.0.0.1'\n" + minimal, `config.toml:1: metrics: "127.0.0.1" is not host:port`},
		{"metrics bad port", "metrics='127.0.0.1:http'\n" + minimal, `config.toml:1: metrics: "127.0.0.1:http" is not host:port: port "http" is not a number up to 65535`},
		{"metrics any port", "metrics=':0'\n" + minimal, `config.toml:1: metrics: ":0" has port 0; want one from 1 to 65535`},

		{"pool name", "node='n'\n[pool.'a b']\npath='/srv/p'\n", `config.toml:2: pool."a b": "a b" is not a pool's name: want lower-case letters, digits and - between them, 63 at most`},
		{"pool name long", "node='n'\n[pool." + strings.Repeat("a", 64) + "]\npath='/srv/p'\n",
			"config.toml:2: pool." + strings.Repeat("a", 64) + `: "` + strings.Repeat("a", 64) + `" is not a pool's name: want lower-case letters, digits and - between them, 63 at most`},
		{"path empty", "node='n'\n[pool.p]\npath=''\n", `config.toml:3: pool.p.path: "" is not an absolute path`},
		{"path with dots", "node='n'\n[pool.p]\npath='/srv/../etc'\n", `config.toml:3: pool.p.path: path "/srv/../etc" is not clean: use "/etc"`},
		{"path with a slash behind", "node='n'\n[pool.p]\npath='/srv/p/'\n", `config.toml:3: pool.p.path: path "/srv/p/" is not clean: use "/srv/p"`},
		{"path with a newline", "node='n'\n[pool.p]\npath=\"/srv/\\n\"\n", `config.toml:3: pool.p.path: "/srv/\n" has a control character`},
		{"root", "node='n'\n[pool.p]\npath='/'\n", `config.toml:3: pool.p.path: "/" belongs to the operating system`},
		{"system", "node='n'\n[pool.p]\npath='/var'\n", `config.toml:3: pool.p.path: "/var" belongs to the operating system`},
		{"below a system tree", "node='n'\n[pool.p]\npath='/etc/volumes'\n", `config.toml:3: pool.p.path: "/etc/volumes" is in /etc, which belongs to the operating system`},
		{"temporary", "node='n'\n[pool.p]\npath='/tmp/p'\n", `config.toml:3: pool.p.path: "/tmp/p" is in /tmp, which is emptied by systemd-tmpfiles, and every user can write to it`},
		{"temporary for longer", "node='n'\n[pool.p]\npath='/var/tmp'\n", `config.toml:3: pool.p.path: "/var/tmp" is emptied by systemd-tmpfiles, and every user can write to it`},
		{"gone with a reboot", "node='n'\n[pool.p]\npath='/run/p'\n", `config.toml:3: pool.p.path: "/run/p" is in /run, which is emptied by a reboot`},
		{"gone, by its link", "node='n'\n[pool.p]\npath='/var/run/p'\n", `config.toml:3: pool.p.path: "/var/run/p" is in /var/run, which is emptied by a reboot`},
		{"kubelet's", "node='n'\n[pool.p]\npath='/var/lib/kubelet/pools/p'\n", `config.toml:3: pool.p.path: "/var/lib/kubelet/pools/p" is in /var/lib/kubelet, which belongs to kubelet`},
		{"k3s's kubelet's", "node='n'\n[pool.p]\npath='/var/lib/rancher/k3s/agent/kubelet'\n", `config.toml:3: pool.p.path: "/var/lib/rancher/k3s/agent/kubelet" is in /var/lib/rancher/k3s/agent, which belongs to k3s`},
		{"microk8s's containerd's", "node='n'\n[pool.p]\npath='/var/snap/microk8s/common/var/lib/containerd'\n", `config.toml:3: pool.p.path: "/var/snap/microk8s/common/var/lib/containerd" is in /var/snap/microk8s/common/var, which belongs to MicroK8s`},
		{"containerd's", "node='n'\n[pool.p]\npath='/var/lib/containerd'\n", `config.toml:3: pool.p.path: "/var/lib/containerd" belongs to containerd`},
		{"on kubelet's mount", pool("mount_point='/var/lib/docker'\n"), `config.toml:4: pool.p.mount_point: "/var/lib/docker" belongs to Docker`},
		{"path with a space behind", "node='n'\n[pool.p]\npath='/srv/p '\n", `config.toml:3: pool.p.path: "/srv/p " has a space at the edge of "p "`},
		{"path with a space before a name", "node='n'\n[pool.p]\npath='/srv/ p/q'\n", `config.toml:3: pool.p.path: "/srv/ p/q" has a space at the edge of " p"`},
		{"long name", "node='n'\n[pool.p]\npath='/srv/" + strings.Repeat("n", 256) + "'\n",
			`config.toml:3: pool.p.path: "` + strings.Repeat("n", 32) + `"... has 256 bytes, more than a file system takes for a name`},
		{"long path", "node='n'\n[pool.p]\npath='" + strings.Repeat("/long", 1000) + "'\n",
			`config.toml:3: pool.p.path: "` + strings.Repeat("/long", 7)[:32] + `"... has 5000 bytes, more than the kernel takes for a path`},
		{"provisioner inside Kubernetes", "provisioner='kubernetes.io/host-path'\n" + minimal, `config.toml:1: provisioner: "kubernetes.io/host-path" begins with kubernetes.io/, which is reserved for provisioners inside Kubernetes`},
		{"a driver that is no alias", "csi_drivers=['kubevirt.io.hostpath-provisioner']\n" + minimal, `config.toml:1: csi_drivers: "kubevirt.io.hostpath-provisioner" is not one of aliases`},
		{"a driver that is not known", "csi_drivers=['rancher.io']\n" + minimal, `config.toml:1: csi_drivers: "rancher.io" is not one of kubevirt.io.hostpath-provisioner`},
		{"alias inside Kubernetes", "aliases=['kubernetes.io/host-path']\n" + minimal, `config.toml:1: aliases: "kubernetes.io/host-path" begins with kubernetes.io/, which is reserved for provisioners inside Kubernetes`},
		{"device with a space behind", pool("device='UUID=1234 '\n"), `config.toml:4: pool.p.device: "UUID=1234 " has a space at its edge`},
		{"reserve beyond all", pool("reserve='100E'\n"), `config.toml:4: pool.p.reserve: "100E" is more than a filesystem can have`},
		{"reserve of many digits", pool("reserve='1e999999999'\n"), `config.toml:4: pool.p.reserve: "1e999999999" is more than a filesystem can have`},
		{"overcommit of nothing", pool("overcommit=0\n"), `config.toml:4: pool.p.overcommit: 0 is not a number above 0 and up to 1000`},
		{"overcommit below nothing", pool("overcommit=-1.5\n"), `config.toml:4: pool.p.overcommit: -1.5 is not a number above 0 and up to 1000`},
		{"overcommit without end", pool("overcommit=inf\n"), `config.toml:4: pool.p.overcommit: +Inf is not a number above 0 and up to 1000`},
		{"overcommit that is no number", pool("overcommit=nan\n"), `config.toml:4: pool.p.overcommit: NaN is not a number above 0 and up to 1000`},
		{"overcommit too large", pool("overcommit=1000.5\n"), `config.toml:4: pool.p.overcommit: 1000.5 is not a number above 0 and up to 1000`},
		{"overcommit as a string", pool("overcommit='2'\n"), `config.toml:4: pool.p.overcommit: want a number, got the string "2"`},
		{"quota of CephFS on every node", pool("scope='every-node'\nquota='ceph'\n"), `config.toml:5: pool.p.quota: a volume of scope "every-node" has a directory on each node: this would limit only one`},
		{"quota of CephFS on every node, by its new name", pool("scope='every-node'\nquota='ceph'\n"), `config.toml:5: pool.p.quota: a volume of scope "every-node" has a directory on each node: this would limit only one`},
		{"project quotas of a shared pool", pool("scope='shared'\nquota='project'\n"), `config.toml:5: pool.p.quota: "project" is for filesystems of one node, and the pool's scope is "shared"`},
		{"unknown quota", pool("quota='btrfs'\n"), `config.toml:4: pool.p.quota: "btrfs" is not one of off, project, ceph`},
		{"one project", pool("quota_ids=5\n"), `config.toml:4: pool.p.quota_ids: want two numbers, the first and the last project, got the number 5`},
		{"three projects", pool("quota_ids=[1, 2, 3]\n"), `config.toml:4: pool.p.quota_ids: want two numbers, the first and the last project, got an array`},
		{"a project as text", pool("quota_ids=['1', 2]\n"), `config.toml:4: pool.p.quota_ids: want two numbers, the first and the last project, got the string "1"`},
		{"project 0", pool("quota_ids=[0, 2]\n"), `config.toml:4: pool.p.quota_ids: 0 is not a project from 1 to 2147483647`},
		{"a project that is too large", pool("quota_ids=[1, 2147483648]\n"), `config.toml:4: pool.p.quota_ids: 2147483648 is not a project from 1 to 2147483647`},
		{"projects the wrong way round", pool("quota_ids=[9, 2]\n"), `config.toml:4: pool.p.quota_ids: the first project, 9, is above the last, 2`},
		{"negative volumes", "volume_metrics=-1\n" + minimal, `config.toml:1: volume_metrics: want a number from 0 to 100000, got the number -1`},
		{"negative inodes", pool("inodes_per_gib=-1\n"), `config.toml:4: pool.p.inodes_per_gib: want a number from 0 to 1048576, got the number -1`},
		{"inodes as text", pool("inodes_per_gib='10'\n"), `config.toml:4: pool.p.inodes_per_gib: want a number from 0 to 1048576, got the string "10"`},
		{"mode negative", pool("mode='-755'\n"), `config.toml:4: pool.p.mode: "-755" is not a mode: want octal digits such as "0777"`},
		{"mount point is the root", pool("mount_point='/'\n"), `config.toml:4: pool.p.mount_point: "/" belongs to the operating system`},
		{"path beside its mount", pool("mount_point='/srv/p2'\n"), `config.toml:3: pool.p.path: "/srv/p" is not at or below mount_point "/srv/p2"`},
		{"path above its mount", pool("mount_point='/srv/p/q'\n"), `config.toml:3: pool.p.path: "/srv/p" is not at or below mount_point "/srv/p/q"`},
		{"same path", minimal + "[pool.q]\npath='/srv/p'\n", `config.toml:5: pool.q.path: "/srv/p" is the path of pool "p" too`},
		{"nested", minimal + "[pool.q]\npath='/srv/p/deep/q'\n", `config.toml:5: pool.q.path: "/srv/p/deep/q" is inside pool "p" (/srv/p)`},
		{"nested, the other order", minimal + "[pool.a]\npath='/srv/p/a'\n", `config.toml:5: pool.a.path: "/srv/p/a" is inside pool "p" (/srv/p)`},
		{"two defaults", minimal + "default=true\n[pool.q]\npath='/srv/q'\ndefault=true\n", `config.toml:7: pool.q.default: pool "p" is the default already`},
		{"default", pool("default='true'\n"), `config.toml:4: pool.p.default: want true or false, got the string "true"`},

		{"immutable", pool("immutable=false\n"), `config.toml:4: pool.p.immutable: want a string, got false`},
		{"immutable value", pool("immutable='no'\n"), `config.toml:4: pool.p.immutable: "no" is not one of require, warn, off`},
		{"filesystem", pool("filesystem=''\n"), `config.toml:4: pool.p.filesystem: "" is not a filesystem type as in /proc/filesystems`},
		{"device", pool("device='UUID='\n"), `config.toml:4: pool.p.device: "UUID=" is not one of "UUID=..", "LABEL=..", "/dev/..", "server:/export"`},
		{"device path", pool("device='/dev/../etc'\n"), `config.toml:4: pool.p.device: path "/dev/../etc" is not clean: use "/etc"`},
		{"shared and local", pool("scope='shared'\nsource='local'\n"), `config.toml:5: pool.p.source: "local" volumes are one node's, and the pool's scope is "shared"`},
		{"every-node and local", pool("scope='every-node'\nsource='local'\n"), `config.toml:5: pool.p.source: "local" volumes are one node's, and the pool's scope is "every-node"`},
		{"scope", pool("scope='cluster'\n"), `config.toml:4: pool.p.scope: "cluster" is not one of node, shared, every-node`},
		{"source", pool("source='hostpath'\n"), `config.toml:4: pool.p.source: "hostpath" is not one of hostPath, local, csi`},
		{"mode as a number", pool("mode=0o777\n"), `config.toml:4: pool.p.mode: want a string, got the number 511`},
		{"mode not octal", pool("mode='0888'\n"), `config.toml:4: pool.p.mode: "0888" is not a mode: want octal digits such as "0777"`},
		{"mode too long", pool("mode='10777'\n"), `config.toml:4: pool.p.mode: "10777" is not a mode: want octal digits such as "0777"`},
		{"mode too short", pool("mode='7'\n"), `config.toml:4: pool.p.mode: "7" is not a mode: want octal digits such as "0777"`},
		{"mode setuid", pool("mode='4755'\n"), `config.toml:4: pool.p.mode: "4755" has the setuid bit, which means nothing on a directory`},
		{"owner", pool("owner='no-such-user'\n"), `config.toml:4: pool.p.owner: "no-such-user" is not a user of this host`},
		{"owner empty", pool("owner=''\n"), `config.toml:4: pool.p.owner: "" is not a user of this host`},
		{"owner negative", pool("owner='-1'\n"), `config.toml:4: pool.p.owner: "-1" is not a user of this host`},
		{"owner too large", pool("owner='4294967295'\n"), `config.toml:4: pool.p.owner: "4294967295" is not the number of a user`},
		{"group", pool("group='no-such-group'\n"), `config.toml:4: pool.p.group: "no-such-group" is not a group of this host`},
		{"selinux_type", pool("selinux_type='system_u:object_r:container_file_t:s0'\n"), `config.toml:4: pool.p.selinux_type: "system_u:object_r:container_file_t:s0" cannot be an SELinux type: want one such as "container_file_t", without user, role and level`},
		{"on_delete", pool("on_delete='retain'\n"), `config.toml:4: pool.p.on_delete: "retain" is not one of delete, archive`},
		{"reclaim policy", pool("reclaim_policy='retain'\n"), `config.toml:4: pool.p.reclaim_policy: "retain" is not one of Delete, Retain`},
		{"reserve", pool("reserve='5 percent'\n"), `config.toml:4: pool.p.reserve: "5 percent" is neither a percentage ("5%") nor an amount ("10Gi")`},
		{"reserve all", pool("reserve='100%'\n"), `config.toml:4: pool.p.reserve: "100%" is not a percentage from 0 to below 100`},
		{"reserve NaN", pool("reserve='NaN%'\n"), `config.toml:4: pool.p.reserve: "NaN%" is not a percentage from 0 to below 100`},
		{"reserve negative", pool("reserve='-1Gi'\n"), `config.toml:4: pool.p.reserve: "-1Gi" is neither a percentage ("5%") nor an amount ("10Gi")`},
		{"reserve milli", pool("reserve='100m'\n"), `config.toml:4: pool.p.reserve: "100m" is a fraction of a byte`},
		{"reserve empty", pool("reserve=''\n"), `config.toml:4: pool.p.reserve: "" is neither a percentage ("5%") nor an amount ("10Gi")`},
		{"reserve number", pool("reserve=5\n"), `config.toml:4: pool.p.reserve: want a string, got the number 5`},
		{"directory of another program", pool("directory='${.PVC.namespace}-{{.PV}}'\n"), `config.toml:4: pool.p.directory: "${.PVC.namespace}-" is not replaced: what is, is {{.PV}}, {{.Namespace}} and {{.Claim}}`},
		{"directory", pool("directory='{{.PV}}/{{.Claim}}'\n"), `config.toml:4: pool.p.directory: "/" has a '/': a directory is one path element`},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, c.config)
			got, err := Load(file)
			if err == nil {
				t.Fatalf("accepted as %+v", got)
			}
			if got := said(file, err.Error()); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			same(t, got, Config{})
		})
	}
}

func TestAccepted(t *testing.T) {
	for line, check := range map[string]func(Pool) bool{
		"mode = '755'":               func(p Pool) bool { return p.Mode == 0o755 },
		"mode = '1777'":              func(p Pool) bool { return p.Mode == 0o777|fs.ModeSticky },
		"owner = '4294967294'":       func(p Pool) bool { return p.UID == 4294967294 },
		"reserve = '0'":              func(p Pool) bool { return p.ReserveBytes == 0 && p.ReservePercent == 0 },
		"reserve = '0%'":             func(p Pool) bool { return p.ReserveBytes == 0 && p.ReservePercent == 0 },
		"reserve = '1.5Gi'":          func(p Pool) bool { return p.ReserveBytes == 3<<29 && p.ReservePercent == 0 },
		"device = 'nas:/export/a'":   func(p Pool) bool { return p.Device == "nas:/export/a" },
		"device = '[fe80::1%e0]:/x'": func(p Pool) bool { return p.Device == "[fe80::1%e0]:/x" },
		"device = 'PARTUUID=0a-01'":  func(p Pool) bool { return p.Device == "PARTUUID=0a-01" },
		"device = 'LABEL=my disk'":   func(p Pool) bool { return p.Device == "LABEL=my disk" },
		"filesystem = 'fuse.sshfs'":  func(p Pool) bool { return p.Filesystem == "fuse.sshfs" },
		"mount_point = '/srv'":       func(p Pool) bool { return p.MountPoint == "/srv" && p.Path == "/srv/p" },
		"overcommit = 2":             func(p Pool) bool { return p.Overcommit == 2 },
		"overcommit = 0.5":           func(p Pool) bool { return p.Overcommit == 0.5 },
		"default = false":            func(p Pool) bool { return !p.Default },
	} {
		if p := load(t, minimal+line+"\n").Pools[0]; !check(p) {
			t.Errorf("%s: %+v", line, p)
		}
	}
	several := load(t, minimal+"[pool.p2]\npath = '/srv/p2'\n")
	for _, p := range several.Pools {
		if p.Default {
			t.Errorf("pool %s of two became the default unasked", p.Name)
		}
	}
	if p, ok := several.Pool("p2"); !ok || p.Path != "/srv/p2" {
		t.Errorf("pool p2: %v %+v", ok, p)
	}
	if p, ok := several.Pool("p3"); ok {
		t.Errorf("pool p3: %+v", p)
	}
}

// A later file changes a key and leaves the others; it may add a pool; other names are not read.
func TestMerge(t *testing.T) {
	got := load(t, minimal+"mode = '0700'\nowner = '5'\n",
		"conf.d/20-b.toml", "[pool.p]\nmode = '0750'\n[pool.q]\npath = '/srv/q'\n",
		"conf.d/10-a.toml", "metrics = ''\n[pool.p]\nmode = '0711'\ngroup = '6'\n",
		"conf.d/.hidden.toml", "broken",
		"conf.d/30-c.toml.dpkg-old", "broken")
	p, q := DefaultPool("p"), DefaultPool("q")
	p.Path, p.MountPoint, p.Mode = "/srv/p", "/srv/p", 0o750
	p.Owner, p.UID, p.Group, p.GID = "5", 5, "6", 6
	q.Path, q.MountPoint = "/srv/q", "/srv/q"
	want := Default()
	want.Node, want.Metrics, want.Pools = "n", "", []Pool{p, q}
	same(t, got, want)
}

// An error in a value stays where it was made, though a later file has a better value; and an
// overlap is said at the file whose path it is.
func TestMergeRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		more []string
		want string
	}{
		{"second path", []string{"conf.d/a.toml", "[pool.q]\n\npath='/srv/p'\n"}, `conf.d/a.toml:3: pool.q.path: "/srv/p" is the path of pool "p" too`},
		{"unknown key", []string{"conf.d/a.toml", "[pool.p]\nmoed='0700'\n"}, `conf.d/a.toml:2: pool.p.moed: unknown key; did you mean "mode"?`},
		{"two files", []string{"conf.d/b.toml", "metrics=1\n", "conf.d/a.toml", "metrics=2\n"},
			"conf.d/a.toml:1: metrics: want a string, got the number 2\nconf.d/b.toml:1: metrics: want a string, got the number 1"},
		{"a directory", []string{"conf.d/a.toml/x", ""}, `conf.d/a.toml: is a directory`},
		{"conf.d is a file", []string{"conf.d", ""}, `conf.d: not a directory`},
		// The pools may well stand in the file that cannot be read, so their absence is not held
		// against it.
		{"syntax hides nothing else", []string{"conf.d/a.toml", "[pool", "conf.d/b.toml", "[pool.q]\nmode=1\n"},
			"conf.d/a.toml:1: expected '.' or ']' to end table name, but got '\\x00' instead\nconf.d/b.toml:2: pool.q.mode: want a string, got the number 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, minimal, c.more...)
			_, err := Load(file)
			if err == nil {
				t.Fatal("accepted")
			}
			if got := said(file, err.Error()); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestFileItself(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.toml")
	for _, c := range []struct {
		name, want string
		make       func() error
	}{
		{"missing", "config.toml: no such file or directory", func() error { return nil }},
		{"a directory", "config.toml: is a directory", func() error { return os.Mkdir(file, 0o755) }},
		{"too large", "config.toml: larger than 1048576 bytes", func() error {
			if err := os.Remove(file); err != nil {
				return err
			}
			return os.WriteFile(file, []byte(strings.Repeat("#", maxFile+1)), 0o600)
		}},
	} {
		if err := c.make(); err != nil {
			t.Fatal(err)
		}
		_, err := Load(file)
		if err == nil {
			t.Fatalf("%s: accepted", c.name)
		}
		if got := said(file, err.Error()); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestWarnings(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	chmod := func(mode fs.FileMode) {
		if err := os.Chmod(kubeconfig, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, config, want string
		mode               fs.FileMode
	}{
		{"none", minimal, "", 0o640},
		{"world-readable", minimal, "config.toml:1: kubeconfig: every user of the host can read KUBECONFIG (mode 0644)", 0o644},
		{"mode for no user", minimal + "mode='000'\n", "config.toml:5: pool.p.mode: 0000 lets no user but root into a volume", 0o600},
		{"mode without a way in", minimal + "mode='0666'\n", "config.toml:5: pool.p.mode: 0666 lets no user but root into a volume", 0o600},
		{"mode without writing", minimal + "mode='2555'\n", "config.toml:5: pool.p.mode: 0555 lets no user but root write to a volume", 0o600},
		{"reserve in bytes", minimal + "reserve='5'\n", `config.toml:5: pool.p.reserve: "5" is 5 bytes; a percentage is written as "5%", an amount as "10Gi"`, 0o600},
		{"reserve of little", minimal + "reserve='10k'\n", `config.toml:5: pool.p.reserve: "10k" is 10000 bytes; a percentage is written as "5%", an amount as "10Gi"`, 0o600},
		{"metrics everywhere", "metrics=':9812'\n" + minimal, `config.toml:2: metrics: ":9812" is reachable from other machines, without a password or a certificate`, 0o600},
		{"metrics on a name", "metrics='node-a:9812'\n" + minimal, `config.toml:2: metrics: "node-a:9812" is reachable from other machines, without a password or a certificate`, 0o600},
		{"metrics on localhost", "metrics='localhost:9812'\n" + minimal, ``, 0o600},
		{"plain directory", minimal + "require_mount=false\nmount_point='/srv'\n", "config.toml:5: pool.p.require_mount: false: /srv/p may be a plain directory on the host's own filesystem, which volumes can fill\n" +
			"config.toml:6: pool.p.mount_point: means nothing while require_mount is false", 0o600},
	} {
		t.Run(c.name, func(t *testing.T) {
			chmod(c.mode)
			file := write(t, "kubeconfig='"+kubeconfig+"'\n"+c.config)
			got, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(said(file, strings.Join(got.Warnings, "\n")), kubeconfig, "KUBECONFIG")
			if text != c.want {
				t.Errorf("got\n%s\nwant\n%s", text, c.want)
			}
		})
	}
}
