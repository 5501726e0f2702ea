package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// fleet is the story of three machines, of one playbook, and of an administrator's machine: this
// one, with Debian's ansible, the role and the program from the archive of a release.
var fleet = []step{
	{"the page's playbook brings up two nodes; one without its disk serves the other", firstRun},
	{"a second run changes nothing, and no daemon is started again", secondRun},
	{"the disk is there: its node follows, and the others are left alone", diskReplaced},
	{"each node makes a volume", fleetVolumes},
	{"a changed configuration reaches the daemons; one with a mistake no disk", fleetConfiguration},
	{"a node without its identity is enrolled again", enrolledAgain},
	{"hostpath_provisioner_package=latest upgrades, and changes nothing else", fleetUpgrade},
}

// hosts are the machines' names, and what differs: they share the loopback.
var hosts = []string{node, "node-b", "node-c"}

func portOf(i int) int    { return 2201 + i }
func metricsOf(i int) int { return 9821 + i }

// late is the node whose disk is missing at first.
const late = "node-c"

func (e *environment) prepareFleet() {
	e.prepareMachine(false)
	for _, name := range hosts[1:] {
		e.addMachine(name)
	}
	started := e.startCluster()
	e.serveRepositories()
	key := e.makeKey()
	var inventory strings.Builder
	for i, m := range e.all {
		e.m = m
		const sshd = "ListenAddress 127.0.0.1:%d\nAuthorizedKeysFile /etc/ssh/keys\n"
		e.put("/etc/ssh/sshd_config.d/test.conf", fmt.Sprintf(sshd, portOf(i)))
		e.put("/etc/ssh/keys", key)
		e.put("/etc/sudoers.d/deploy", "deploy ALL=(ALL) NOPASSWD: ALL\n")
		e.Must(m.boot(e.ctx), "booting "+m.name)
		e.sh("useradd -m deploy; chmod 0644 /etc/ssh/keys")
		e.sh("rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*")
		e.disk("data")
		if m.name != late {
			e.disk("fast")
		}
		fmt.Fprintf(&inventory, "%s ansible_host=127.0.0.1 ansible_port=%d metrics=127.0.0.1:%d\n",
			m.name, portOf(i), metricsOf(i))
	}
	e.Must(<-started, "starting the control plane")
	for _, m := range e.all {
		e.Must(e.cluster.AddNode(e.ctx, m.name, nil), "a Node")
	}
	e.unpackArchive()
	e.write("inventory", "[storage]\n"+inventory.String())
	e.applyManifests("/srv/fast", "/srv/data")
	e.playbook(e.text("install.md", "Many nodes", "yaml playbook"))
	e.publish("first")
}

// disk makes a file with a filesystem, which takes the place of a disk with a label. mount(8) takes
// a loop device of a file of that name, also another machine's.
func (e *environment) disk(name string) {
	file := "/images/" + e.m.name + "-" + name
	e.sh("mkdir -p /images; truncate -s 256M " + file + "; mkfs.ext4 -q " + file)
}

// makeKey makes the administrator's key, and returns its public part.
func (e *environment) makeKey() string {
	file := filepath.Join(e.dir, "key")
	e.administrator("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file)
	public, err := os.ReadFile(file + ".pub")
	e.Must(err, "the key")
	return string(public)
}

// unpackArchive gives the administrator what a release has.
func (e *environment) unpackArchive() {
	archives, err := filepath.Glob(built("repositories/release/*-linux-amd64.tar.gz"))
	e.Must(err, "the archive")
	if len(archives) != 1 {
		e.Fatalf("archives %v (make test-ansible builds one)", archives)
	}
	kit := filepath.Join(e.dir, "kit")
	e.Must(os.Mkdir(kit, 0o755), "a directory")
	e.administrator("tar", "-xf", archives[0], "-C", kit, "--strip-components=1")
}

func (e *environment) program() string { return filepath.Join(e.dir, "kit", service) }

func (e *environment) applyManifests(paths ...string) {
	args := []string{"manifests", "--class", "fleet"}
	for _, path := range paths {
		args = append(args, "--pool-path", path)
	}
	e.Must(e.cluster.Apply(e.ctx, []byte(e.administrator(e.program(), args...))), "the manifests")
}

// administrator runs a program here, which has to succeed.
func (e *environment) administrator(program string, args ...string) string {
	out, err := exec.CommandContext(e.ctx, program, args...).CombinedOutput()
	e.Must(err, string(out))
	return string(out)
}

func (e *environment) write(name, text string) {
	e.Must(os.WriteFile(filepath.Join(e.dir, name), []byte(text), 0o600), "writing "+name)
}

// playbook writes that of the page, with the machines' disks, a second pool, and an address of its
// own for each daemon's metrics.
func (e *environment) playbook(text string) {
	const pool = "      - {name: fast, path: /srv/fast, device: LABEL=fast, fstype: ext4}\n"
	const disk = "device: '/images/{{ inventory_hostname }}-"
	const pools = "      - {name: fast, path: /srv/fast, " + disk + "fast', fstype: ext4}\n" +
		"      - {name: data, path: /srv/data, " + disk + "data', fstype: ext4}\n" +
		"    hostpath_provisioner_mount_options: loop,nofail\n" +
		"    hostpath_provisioner_config: |\n      metrics = \"{{ metrics }}\"\n"
	admin := [2]string{"~/admin.conf", e.cluster.Kubeconfig()}
	for _, replace := range [][2]string{{pool, pools}, {atAddress[0], atAddress[1]}, admin} {
		if !strings.Contains(text, replace[0]) {
			e.Fatalf("the page's playbook does not say %q", replace[0])
		}
		text = strings.Replace(text, replace[0], replace[1], 1)
	}
	e.write("storage.yml", text)
}

// recap is a line of what ansible-playbook says at its end.
var recap = regexp.MustCompile(
	`(?m)^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+) `)

// ansible runs the playbook. It returns what was said, and wants of each host what it says of
// changes and failures: "0 0" for none.
func (e *environment) ansible(want map[string]string, args ...string) (said string) {
	args = append([]string{"-i", "inventory", "-e", "hostpath_provisioner_program=" + e.program(),
		"storage.yml"}, args...)
	cmd := exec.CommandContext(e.ctx, "ansible-playbook", args...)
	cmd.Dir = e.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + e.dir, "LC_ALL=C.UTF-8",
		"ANSIBLE_ROLES_PATH=" + filepath.Join(e.dir, "kit", "ansible"),
		"ANSIBLE_SSH_ARGS=-o ControlMaster=auto -o ControlPersist=60 -o UserKnownHostsFile=/dev/null",
		"ANSIBLE_HOST_KEY_CHECKING=False", "ANSIBLE_REMOTE_USER=deploy", "ANSIBLE_PIPELINING=True",
		"ANSIBLE_PRIVATE_KEY_FILE=" + filepath.Join(e.dir, "key"), "ANSIBLE_GATHER_SUBSET=!all"}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		e.Must(err, "ansible-playbook")
	}
	said = string(out)
	lines := recap.FindAllStringSubmatch(said, -1)
	if len(lines) != len(hosts) {
		e.Fatalf("a recap of %d hosts\n%s", len(lines), said)
	}
	failed := false
	for _, l := range lines {
		changed := "some"
		if l[2] == "0" {
			changed = "none"
		}
		got := changed + " " + l[4]
		failed = failed || l[4] != "0"
		if l[3] != "0" || got != want[l[1]] {
			e.Fatalf("%s, want %s: %q\n%s", l[0], l[1], want[l[1]], said)
		}
	}
	if (err != nil) != failed {
		e.Fatalf("%v\n%s", err, said)
	}
	return said
}

// each is what is wanted of all hosts, but of some.
func each(what string, but ...string) map[string]string {
	want := map[string]string{}
	for _, name := range hosts {
		want[name] = what
	}
	for i := 0; i < len(but); i += 2 {
		want[but[i]] = but[i+1]
	}
	return want
}

// on has the steps act on a machine.
func (e *environment) on(name string) {
	for _, m := range e.all {
		if m.name == name {
			e.m = m
		}
	}
}

// It fails without the rescue in tasks/pool.yml.
func firstRun(e *environment) {
	said := e.ansible(each("some 0", late, "some 1"))
	e.says(said, "fast: ", "/images/"+late+"-fast")
	for _, name := range hosts {
		e.on(name)
		e.is("systemctl is-enabled "+service, "enabled")
		e.is("stat -c '%a %U' /etc/"+service+"/kubeconfig", "600 root")
		if name == late {
			e.status("1 of 2 pools open")
		} else {
			e.status("2 of 2 pools open on node " + name)
		}
	}
}

func secondRun(e *environment) {
	pids := func() (all string) {
		for _, name := range hosts {
			e.on(name)
			all += e.sh("systemctl show -P MainPID "+service) + " "
		}
		return all
	}
	before := pids()
	e.ansible(each("none 0", late, "none 1"))
	if after := pids(); after != before {
		e.Fatalf("daemons %s, before %s", after, before)
	}
}

func diskReplaced(e *environment) {
	e.on(late)
	e.disk("fast")
	e.ansible(each("none 0", late, "some 0"))
	e.status("2 of 2 pools open")
}

func fleetVolumes(e *environment) {
	e.class("fleet", "fast")
	claims := e.cluster.Client().CoreV1().PersistentVolumeClaims(namespace)
	for _, name := range hosts {
		c := cluster.Claim(namespace, "on-"+name, "fleet", "1Mi")
		c.Annotations = map[string]string{"kubevirt.io/provisionOnNode": name}
		_, err := claims.Create(e.ctx, c, metav1.CreateOptions{})
		e.Must(err, "a claim")
		e.on(name)
		e.bound("on-" + name)
	}
}

// fleetConfiguration: the daemon of each node takes it; what the program refuses is not written.
func fleetConfiguration(e *environment) {
	before, err := os.ReadFile(filepath.Join(e.dir, "storage.yml"))
	e.Must(err, "the playbook")
	const key = "      metrics = "
	with := func(line string) string {
		return strings.Replace(string(before), key, "      "+line+"\n"+key, 1)
	}
	e.write("storage.yml", with("volume_metrics = 7"))
	e.ansible(each("some 0"))
	e.write("storage.yml", with("volume_metricss = 8"))
	e.says(e.ansible(each("none 1")), "volume_metricss")
	e.write("storage.yml", with("volume_metrics = 7"))
	for _, name := range hosts {
		e.on(name)
		e.status("2 of 2 pools open")
		e.sh("hostpath-provisioner status") // 1 where the configuration on the disk is not in force
		e.sh("grep -q 'volume_metrics = 7' /etc/" + service + "/config.toml")
	}
}

// enrolledAgain: the Node of a machine was deleted, which ends its token.
func enrolledAgain(e *environment) {
	const lost = "node-b"
	nodes := e.cluster.Client().CoreV1().Nodes()
	e.Must(nodes.Delete(e.ctx, lost, metav1.DeleteOptions{}), "deleting a Node")
	e.Must(e.cluster.AddNode(e.ctx, lost, nil), "a Node")
	e.ansible(each("none 0", lost, "some 0"))
	e.on(lost)
	e.status("2 of 2 pools open on node " + lost)
}

func fleetUpgrade(e *environment) {
	e.publish("second")
	said := e.ansible(each("some 0"), "-e", "hostpath_provisioner_package=latest")
	if n := strings.Count(said, "\nchanged: "); n != len(hosts) {
		e.Fatalf("%d changes\n%s", n, said)
	}
	for _, name := range hosts {
		e.on(name)
		e.says(e.sh("hostpath-provisioner version"), "+after.")
		e.status("2 of 2 pools open")
		if pv := e.bound("on-" + name); pv == "" {
			e.Fatalf("%s lost its volume", name)
		}
	}
}
