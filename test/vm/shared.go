package main

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// member is one of the nodes that share a pool on the machine's NFS server. The first is the
// machine, with the service as it is installed. The other has a mount namespace, a host name and
// directories of its own. Each reaches the server over a link of its own, so that the client in the
// kernel is one for each.
type member struct {
	p      *play
	name   string
	link   string // in the machine, to the member's network namespace
	net    string // the first three numbers of that link's addresses; the server is .1
	inside string // what commands on the member begin with
	units  string // its daemon's unit
	starts string // the command that starts it
}

const (
	exportOptions = "rw,sync,fsid=0,no_subtree_check"
	inOther       = "nsenter --mount=/run/ns/mnt --uts=/run/ns/uts "
)

func (p *play) members() (machine, other *member) {
	return &member{p, node, "to-machine", "10.1.0", "", "hostpath-provisioner", "systemctl start hostpath-provisioner"},
		&member{p, "other", "to-other", "10.2.0", inOther, "other",
			"systemctl reset-failed other 2>/dev/null; systemd-run -q --unit=other -p Type=notify -p NotifyAccess=all " + inOther + "/usr/bin/hostpath-provisioner run"}
}

// shell is a command on the member.
func (m *member) shell(command string) string {
	if m.inside == "" {
		return command
	}
	return m.inside + "sh -c '" + strings.ReplaceAll(command, "'", `'\''`) + "'"
}

func (m *member) do(command string) (string, error) { return m.p.do(m.shell(command)) }

// config is the member's, without the provisioner.
func (m *member) config() string {
	return fmt.Sprintf("node = %q\nmetrics = \"\"\n[pool.net]\npath = \"/srv/net\"\nscope = \"shared\"\nfilesystem = \"nfs4\"\ndevice = \"%s.1:/\"\n", m.name, m.net)
}

func (m *member) mount() error {
	_, err := m.do("nsenter --net=/run/netns/" + m.name + " mount -t nfs4 -o vers=4.2,hard,timeo=50,retrans=2 " + m.net + ".1:/ /srv/net")
	return err
}

func (m *member) unmount() error {
	_, err := m.do("umount /srv/net")
	return err
}

// export gives the member the export with these options, too; "" takes it away.
func (m *member) export(options string) error {
	command := "exportfs -u " + m.net + ".2:/export"
	if options != "" {
		command = "exportfs -o " + exportOptions + "," + options + " " + m.net + ".2:/export"
	}
	_, err := m.p.do(command)
	return err
}

func (m *member) cable(state string) error {
	_, err := m.p.do("ip link set " + m.link + " " + state)
	return err
}

// closes and opens wait for the member's gate, and return what its status says.
func (m *member) closes(reasons string) (string, error) {
	begin := time.Now()
	out, err := m.p.machine.until(m.p.ctx, limit, m.shell(`hostpath-provisioner status | grep -E "^net .*closed: (`+reasons+`); "`))
	if err != nil {
		out, _, _ := m.p.machine.ask(m.p.ctx, m.shell("hostpath-provisioner status"))
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return fmt.Sprintf("%s, seen after %.1fs", strings.Join(strings.Fields(out), " "), time.Since(begin).Seconds()), err
}

func (m *member) opens() error {
	_, err := m.p.machine.until(m.p.ctx, limit, m.shell(`hostpath-provisioner status | grep -E "^net .* open; "`))
	return err
}

// leads waits until the member holds the pool's lease to work in it.
func (m *member) leads() error {
	ctx, cancel := m.p.soon()
	defer cancel()
	leases := m.p.cluster.Client().CoordinationV1().Leases("hostpath-provisioner")
	_, err := cluster.WaitFor(ctx, leases, "net."+m.p.namespace, func(l *coordinationv1.Lease) bool {
		id := l.Spec.HolderIdentity
		return id != nil && strings.HasPrefix(*id, m.name+"_") && l.Annotations["hostpath-provisioner/speaks"] == ""
	})
	return err
}

// links makes the server's export, the links to it, and the namespaces of the other member.
func (p *play) links() (string, error) {
	machine, other := p.members()
	commands := append([]string{"modprobe veth"}, nfsServer...)
	for _, m := range []*member{machine, other} {
		commands = append(commands, "ip netns add "+m.name+" && ip link add "+m.link+" type veth peer name server netns "+m.name,
			"ip addr add "+m.net+".1/24 dev "+m.link+" && ip link set "+m.link+" up && "+
				"ip -n "+m.name+" addr add "+m.net+".2/24 dev server && ip -n "+m.name+" link set server up && ip -n "+m.name+" link set lo up")
	}
	commands = append(commands,
		"mkdir -p /run/ns && mount --bind /run/ns /run/ns && mount --make-private /run/ns && touch /run/ns/mnt /run/ns/uts",
		"unshare --mount=/run/ns/mnt true && unshare --uts=/run/ns/uts sh -c 'echo other > /proc/sys/kernel/hostname'",
		// What a machine has for itself: the disk under the mount point, and the daemon's
		// directories.
		"mkdir -p /other/srv /other/etc /other/run /other/lib /run/hostpath-provisioner",
		other.shell("mount --bind /other/srv /srv && mount --bind /other/run /run/hostpath-provisioner && mount --bind /other/lib /var/lib/hostpath-provisioner && mount --bind /other/etc /etc/hostpath-provisioner"),
	)
	must(p.doAll(commands...))
	for _, m := range []*member{machine, other} {
		check(m.export("no_root_squash"))
		must(m.do("hostpath-provisioner prepare net"))
		check(m.mount())
		must(m.do("hostpath-provisioner prepare net"))
	}
	return "", nil
}

// configureOther writes the other member's configuration and kubeconfig.
func (p *play) configureOther() (string, error) {
	_, other := p.members()
	check(p.cluster.AddNode(p.ctx, other.name, nil))
	check(p.loadConfig(p.machine.opt, "other/etc", other.name, other.config()))
	return p.do(unpacked)
}

// shared: a pool of scope shared on NFS 4.2, and each way in which its leader can lose it.
func (p *play) shared() {
	machine, other := p.members()
	p.need("a machine", func() (string, error) { return p.fresh(machine.config()) })
	p.need("a second node on it", p.configureOther)
	p.need("an NFS server, and each node mounts its export over a link of its own", p.links)
	p.need("the machine's daemon leads, the other's stands by", func() (string, error) {
		must(p.do(machine.starts))
		check(machine.leads())
		_, err := p.do(other.starts)
		return "", err
	})
	var first volume
	p.need("the leader makes a ReadWriteMany volume without affinity, which is there on the other node", func() (_ string, err error) {
		first = must(p.madeBy(machine, func() error { return nil }))
		_, err = other.do("test -d " + first.dir)
		return first.took(), err
	})
	second := p.handOver(machine, other, "unmounts the pool", machine.unmount, machine.mount, "NotMounted")
	p.step("the other one removes what the first made, and the first removes nothing", func() (string, error) {
		check(p.drop(first.claim))
		must(p.machine.until(p.ctx, limit, other.shell("test ! -e "+first.dir+" && test -d "+second.dir)))
		must(p.do("journalctl -u other -o cat --no-pager | grep reason=Deleted"))
		return p.expect("journalctl -u hostpath-provisioner -o cat --no-pager", "!reason=Deleted")
	})
	p.handOver(other, machine, "is cut off from the server", func() error { return other.cable("down") }, func() error { return other.cable("up") }, "NotAnswering|Unreadable")
	p.handOver(machine, other, "has the export withdrawn", func() error { return machine.export("") }, func() error { return machine.export("no_root_squash") }, "Unreadable|PathUnreadable")
	p.handOver(other, machine, "has a mount point that is not immutable", func() error {
		if err := other.immutable("-i"); err != nil {
			return err
		}
		_, err := other.closes("NotImmutable") // nothing tells of a flag that changes: it is looked at every few seconds
		return err
	}, func() error { return other.immutable("+i") }, "NotImmutable")
	p.dies(machine, other)
	p.squashed(machine, other)
	p.step("in the end there are the volumes that are claimed, and nothing else", func() (string, error) { return p.equal("/export") })
}

// volume is what came of a claim.
type volume struct {
	claim, dir string
	bound      time.Duration // from the trouble to Bound
}

func (v volume) took() string { return fmt.Sprintf("claim Bound after %.1fs", v.bound.Seconds()) }

// madeBy makes trouble and a claim, and waits until this member has made its volume.
func (p *play) madeBy(m *member, trouble func() error) (v volume, err error) {
	begin := time.Now()
	if err := trouble(); err != nil {
		return v, err
	}
	many := func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	if v.claim, err = p.claim("net", many); err != nil {
		return v, err
	}
	if v.dir, err = p.waitBound(v.claim); err != nil {
		return v, err
	}
	v.bound = time.Since(begin)
	return v, p.isShared(v.claim, m.name)
}

// isShared looks at a volume's object, and at who made it.
func (p *play) isShared(claim, by string) error {
	ctx, cancel := p.soon()
	defer cancel()
	c := must(p.cluster.WaitClaimBound(ctx, p.namespace, claim))
	event := must(p.cluster.WaitEvent(ctx, c, "ProvisioningSucceeded"))
	if event.Source.Host != by {
		return fmt.Errorf("%s made the volume, not %s", event.Source.Host, by)
	}
	volumes, err := p.volumes()
	for _, v := range volumes {
		if v.Spec.NodeAffinity != nil || v.Spec.AccessModes[0] != corev1.ReadWriteMany || v.Labels["hostpath-provisioner/node"] != "" {
			return fmt.Errorf("volume %s has affinity %v, access modes %v, labels %v", v.Name, v.Spec.NodeAffinity, v.Spec.AccessModes, v.Labels)
		}
	}
	return err
}

// handOver is one way in which the leader loses the pool: the next one goes on, the leader says why
// it does not, and when the trouble ends its gate opens by itself.
func (p *play) handOver(from, to *member, how string, trouble, end func() error, reasons string) (v volume) {
	p.step(from.name+", which leads, "+how+": "+to.name+" makes the next volume", func() (_ string, err error) {
		v = must(p.madeBy(to, trouble))
		return v.took(), to.leads()
	})
	p.step("and "+from.name+" says why it does not", func() (string, error) { return from.closes(reasons) })
	p.step("when that has ended, its gate opens by itself, and "+to.name+" goes on leading", func() (string, error) {
		check(end())
		check(from.opens())
		v, err := p.madeBy(to, func() error { return nil })
		return v.took(), err
	})
	return v
}

// immutable changes the flag of the bare mount point, which is reached through another mount of its
// disk: on NFS itself there is no such flag.
func (m *member) immutable(flag string) error {
	if out, code, err := m.p.machine.ask(m.p.ctx, m.shell("chattr +i /srv/net")); err != nil || code == 0 {
		return fmt.Errorf("chattr on NFS: %v, %s", err, out)
	}
	bare := "/other/srv/net"
	if m.inside == "" {
		bare = "/srv/net"
	}
	_, err := m.p.doAll("mkdir -p /run/disk && mount --bind / /run/disk", "chattr "+flag+" /run/disk"+bare+"; c=$?; umount /run/disk; exit $c")
	return err
}

// dies: the leader's machine goes without a word, and comes back when another one leads.
func (p *play) dies(from, to *member) {
	p.step(from.name+", which leads, dies: "+to.name+" makes the next volume", func() (string, error) {
		v, err := p.madeBy(to, func() error {
			_, err := p.do("systemctl kill -s KILL " + from.units + "; systemctl stop " + from.units + "; ip link set " + from.link + " down")
			return err
		})
		return v.took(), err
	})
	p.step("it comes back and stands by", func() (string, error) {
		check(from.cable("up"))
		must(p.do(from.starts))
		check(from.opens())
		return "", to.leads()
	})
}

// squashed: the server takes root for the user nobody, for both.
func (p *play) squashed(machine, other *member) {
	both := func(options string) error {
		if err := machine.export(options); err != nil {
			return err
		}
		return other.export(options)
	}
	var claim string
	p.step("exported with root_squash: both close the pool", func() (string, error) {
		check(both("root_squash"))
		theirs := must(other.closes("[A-Za-z]+"))
		ours, err := machine.closes("RootSquashed")
		return ours + "; " + theirs, err
	})
	p.step("a claim says so, and check with its hint", func() (_ string, err error) {
		claim = must(p.claim("net"))
		said, err := p.refused(claim, "PoolClosed")
		if err == nil && !strings.Contains(said, "root_squash") {
			err = fmt.Errorf("the claim says: %s", said)
		}
		if err != nil {
			return "", err
		}
		_, err = p.expect("hostpath-provisioner check net", "root_squash", "hint: ")
		return said, err
	})
	p.step("exported without it: the pool opens by itself, and the claim is served", func() (string, error) {
		check(both("no_root_squash"))
		_, err := p.waitBound(claim)
		return "", err
	})
}

// equal compares the directories and records below a path with the chapter's volumes.
func (p *play) equal(path string) (string, error) {
	volumes := must(p.volumes())
	var want []string
	for _, v := range volumes {
		want = append(want, v.Name, v.Name+".json")
	}
	wanted := strings.Join(want, " ")
	return p.machine.until(p.ctx, limit, fmt.Sprintf("cd %s && test \"$(for n in %s; do echo $n; done | sort)\" = \"$(ls -A . .hostpath-provisioner/volumes .hostpath-provisioner/trash .hostpath-provisioner/staging | grep -v -e '^$' -e ':$' -e '^.hostpath-provisioner$' | sort)\" && echo %d volumes", path, wanted, len(volumes)))
}
