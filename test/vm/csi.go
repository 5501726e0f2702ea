package main

import (
	"fmt"
	"path"
	"strings"
)

// Kubelet's directory in the machine, and what calls the CSI driver's service there
// (test/vm/kubelet).
const (
	kubeletRoot = "/var/lib/kubelet"
	kubelet     = "/usr/local/bin/kubelet-calls"
	attempt     = "/usr/local/bin/attempt" // a script with the label of the service's program

	driverRuntime = "/run/hostpath-provisioner-csi" // of the service, where it has the list of pods that are paused
)

// driverBefore starts the driver's sockets, with the label of some that were made before the policy
// knew their paths.
func (p *play) driverBefore() {
	p.step("the CSI driver's sockets are there, with a label from before", func() (string, error) {
		sockets := strings.Join(p.driverSockets(), " ")
		must(p.do("mkdir -p " + kubeletRoot + "/pods && restorecon -R " + kubeletRoot + " && systemctl enable --now hostpath-provisioner-csi.socket && chcon -t container_file_t " + sockets))
		must(p.do("mkdir -m 0700 " + driverRuntime + " && chcon -t var_run_t " + driverRuntime))
		return p.expect("ls -Z "+sockets, ":container_file_t:s0 "+p.driverSockets()[0], ":container_file_t:s0 "+p.driverSockets()[1])
	})
}

func (p *play) driverSockets() []string {
	return []string{path.Join(kubeletRoot, "plugins", p.namespace, "csi.sock"), path.Join(kubeletRoot, "plugins_registry", p.namespace+"-reg.sock")}
}

// call is a call of kubelet's.
func (p *play) call(name string, args ...string) string {
	return strings.Join(append([]string{kubelet, kubeletRoot, p.namespace, name}, args...), " ")
}

// driver is the CSI driver's service in its domain, after the page had the policy's module of the
// pools loaded again.
func (p *play) driver() {
	p.step("loading the policy again gave the CSI driver's sockets their label", func() (string, error) {
		return p.expect("ls -Z "+strings.Join(p.driverSockets(), " "), ":hostpath_provisioner_csi_socket_t:s0 "+p.driverSockets()[0], ":hostpath_provisioner_csi_socket_t:s0 "+p.driverSockets()[1])
	})
	p.step("and its own directory, which systemd keeps when the service ends", func() (string, error) {
		return p.expect("ls -Zd "+driverRuntime, ":hostpath_provisioner_csi_runtime_t:s0 "+driverRuntime)
	})
	p.step("for which they were made again once, in two such runs", func() (string, error) {
		return p.expect("journalctl --sync; journalctl -u hostpath-provisioner-csi.socket -o cat --no-pager | grep -c ^Closed", "1\n")
	})
	var claim, dir string
	p.step("kubelet's calls start the service in its own domain", func() (_ string, err error) {
		claim, dir = must2(p.bound("fast"))
		must(p.expect(p.call("registered"), p.namespace+" "+p.driverSockets()[0], "done"))
		return p.expect("ps -o label= -p $(systemctl show -P MainPID hostpath-provisioner-csi.service)", ":hostpath_provisioner_csi_t:s0")
	})
	if dir == "" {
		return
	}
	p.published(path.Base(dir), dir)
	p.driverConfined(dir)
	p.step("the volume is removed with its claim", func() (string, error) { return "", p.drop(claim) })
}

// published mounts a volume for a pod, and unmounts it, while its pool is there, and while it is
// not.
func (p *play) published(pv, dir string) {
	target := path.Join(kubeletRoot, "pods/u-1/volumes/kubernetes.io~csi", pv, "mount")
	publish := p.call("publish", "u-1", pv, "fast", dir)
	p.step("a volume is mounted for a pod, whose container reads and writes it", func() (string, error) {
		must(p.expect("echo data > "+dir+"/file; "+publish, "done"))
		return p.expect("mount --bind "+target+" /mnt/volume && "+confined+
			"/mnt/image/busybox sh -c 'cd /mnt/volume && cat file > copy'; umount /mnt/volume; cat "+dir+"/copy; ls -Z "+dir+"/copy", "container_file_t:s0", "data\n")
	})
	p.step("again, and its statistics, and unmounted", func() (string, error) {
		for _, call := range []string{publish, p.call("stats", "u-1", pv), p.call("unpublish", "u-1", pv)} {
			must(p.expect(call, "done"))
		}
		return p.expect("ls -A "+path.Dir(target)+"; echo empty", "empty\n", "!mount")
	})
	p.step("without its pool it is refused, and unmounted", func() (string, error) {
		must(p.expect(publish, "done"))
		must(p.do("umount -l /srv/fast"))
		defer p.do("mount /srv/fast")
		must(p.expect(p.call("unpublish", "u-1", pv), "done"))
		return p.expect(publish, "is closed: /srv/fast is not a mount point", "!done")
	})
	p.step("a confined container that sees the socket may not connect", func() (string, error) {
		must(p.do("mkdir -p /mnt/kubelet/plugins_registry && cp " + kubelet + " /mnt/image/calls && chcon -R -t container_file_t /mnt/image /mnt/kubelet"))
		const calls = confined + "/mnt/image/calls"
		if _, err := p.expect(calls+" > /dev/null; echo code $?", "code 2\n"); err != nil {
			return "", fmt.Errorf("the program does not run there: %w", err)
		}
		in := "mount --bind " + kubeletRoot + "/plugins_registry /mnt/kubelet/plugins_registry && " + calls + " /mnt/kubelet " + p.namespace + " registered > /dev/null; echo code $?; umount /mnt/kubelet/plugins_registry"
		must(p.expect(in, "code 1\n"))
		return p.expect("journalctl -k --no-pager -o cat -g 'avc: .*scontext=system_u:system_r:container_t:s0:c1,c2 .*hostpath_provisioner_csi_socket_t'", "{ write }")
	})
}

// driverConfined tries what the service never does, with a script that has the label of its
// program.
func (p *play) driverConfined(dir string) {
	const script = `#!/bin/bash
eval "$1" && echo "was done"
`
	record := "/srv/fast/.hostpath-provisioner/volumes/" + path.Base(dir) + ".json"
	p.step("the CSI driver's domain reads records", func() (string, error) {
		must(p.do("cat > " + attempt + " <<'EOF'\n" + script + "EOF\nchmod 0755 " + attempt + " && chcon -t hostpath_provisioner_csi_exec_t " + attempt))
		return p.expect(p.inDriver("read x < "+record), "was done")
	})
	for _, forbidden := range [][2]string{
		{"read a user's home", "read x < /home/alice/secret"},
		{"read the passwords", "read x < /etc/shadow"},
		{"read a tenant's file", "read x < " + dir + "/file"},
		{"write to a tenant's file", ": >> " + dir + "/file"},
		{"make a tenant's file", ": > " + dir + "/made.$RANDOM"},
		{"write a record", ": >> " + record},
		{"write its configuration", ": >> /etc/hostpath-provisioner/config.toml"},
		{"write a unit", ": > /etc/systemd/system/made.$RANDOM"},
		{"connect to the network", "exec 3<> /dev/tcp/127.0.0.1/22"},
	} {
		what, command := forbidden[0], forbidden[1]
		p.step("and may not "+what, func() (string, error) {
			if _, err := p.expect("bash "+attempt+" '"+command+"'", "!Permission denied"); err != nil {
				return "", fmt.Errorf("an administrator's domain may: %w", err)
			}
			return p.expect(p.inDriver(command), "Permission denied", "!was done")
		})
	}
}

// inDriver runs a command of the shell's own as a service with the label of the driver's program,
// and returns what it printed.
func (p *play) inDriver(command string) string {
	p.services++
	return fmt.Sprintf("systemd-run -q --wait --unit=try-%d %s '%s'; journalctl --sync; journalctl -u try-%d -o cat --no-pager", p.services, attempt, command, p.services)
}

// inlineVolume is a volume that is written in a pod, while it is mounted for it.
type inlineVolume struct {
	pod       string
	target    string // where the pod has it
	directory string // in its pool
}

// confined is how a process of a container is started.
const confined = "runcon -u system_u -r system_r -t container_t -l s0:c1,c2 "

// inlined has kubelet's stand-in mount a volume of this size, which the daemon makes, for a pod.
func (p *play) inlined(pod, pool, size string) (v inlineVolume, err error) {
	out, err := p.do(p.call("inline", pod, "scratch", pool, size))
	handle, _, _ := strings.Cut(out, "\n")
	return inlineVolume{pod, path.Join(kubeletRoot, "pods", pod, "volumes/kubernetes.io~csi/scratch/mount"), path.Join("/srv", pool, handle)}, err
}

// ended has it unmounted, as kubelet does when the pod has ended, and waits until nothing is left.
func (p *play) ended(pool string, v inlineVolume) (string, error) {
	must(p.expect(p.call("end", v.pod, "scratch"), "done"))
	return "", p.removed(pool, v)
}

func (p *play) removed(pool string, v inlineVolume) error {
	_, err := p.machine.until(p.ctx, limit, fmt.Sprintf("test ! -e %s && test ! -e %s && test ! -e /srv/%s/.hostpath-provisioner/volumes/%s.json && test -z \"$(ls -A /srv/%[3]s/.hostpath-provisioner/trash)\"",
		v.directory, v.target, pool, path.Base(v.directory)))
	return err
}

// allowDriver applies the manifests for the chapter's own provisioner, with a CSIDriver that has
// inline volumes.
func (p *play) allowDriver() error {
	manifests := must(output(product(), "manifests", "--provisioner", p.namespace, "--no-classes", "--inline-volumes"))
	return p.cluster.Apply(p.ctx, manifests)
}

// withKeys gives a pool's table more keys, and has the units take them, as docs/csi.md and
// docs/snapshots.md say.
func (p *play) withKeys(pool string, keys ...string) (string, error) {
	const config = "/etc/hostpath-provisioner/config.toml"
	return p.doAll(fmt.Sprintf(`sed -i 's/^\[pool\.%s\]$/&\n%s/' %s && restorecon %[3]s`, pool, strings.Join(keys, `\n`), config),
		"systemctl daemon-reload", "systemctl restart hostpath-provisioner-csi.socket hostpath-provisioner")
}

// inlineConfined: the daemon's domain makes and removes what the driver's domain mounts.
func (p *play) inlineConfined() {
	var v inlineVolume
	p.step("pool big makes inline volumes, as docs/csi.md says", func() (string, error) {
		check(p.allowDriver())
		return p.withKeys("big", `source = "csi"`, `inline_volumes = "64Mi"`)
	})
	if !p.step("an inline volume is made and mounted for a pod, with the label of volumes", func() (_ string, err error) {
		v = must(p.inlined("u-2", "big", "8Mi"))
		return p.expect("stat -c %C "+v.directory+" "+v.target, "system_u:object_r:container_file_t:s0\nsystem_u:object_r:container_file_t:s0\n")
	}) {
		return
	}
	p.step("a confined container writes to it and reads it again", func() (string, error) {
		return p.expect("mount --bind "+v.target+" /mnt/volume && "+confined+"/mnt/image/busybox sh -c 'cd /mnt/volume && echo data > file && mkdir a && cat file > a/copy'; echo code $?; umount /mnt/volume; ls -Z "+v.directory+"; cat "+v.directory+"/a/copy",
			"container_file_t:s0:c1,c2 a\n", "code 0\n", "data\n")
	})
	p.step("it is unmounted, and its directory, its record and its files go", func() (string, error) { return p.ended("big", v) })
	p.step("one that the driver was not told the end of goes when the daemon starts", func() (_ string, err error) {
		v = must(p.inlined("u-3", "big", "8Mi"))
		must(p.doAll("systemctl stop hostpath-provisioner", "umount "+v.target+" && rm -r "+path.Join(kubeletRoot, "pods", v.pod), "test -d "+v.directory, "systemctl start hostpath-provisioner"))
		return "", p.removed("big", v)
	})
}

// inlineLimits: what a pod says of the size is a limit on ext4 and xfs.
func (p *play) inlineLimits() {
	if !p.step("both pools make inline volumes", func() (string, error) {
		check(p.allowDriver())
		must(p.do("mkdir -p " + kubeletRoot + "/pods && restorecon -R " + kubeletRoot + " && systemctl enable hostpath-provisioner-csi.socket"))
		if _, err := p.policy(script + " pools"); err != nil { // the paths of the driver's sockets
			return "", err
		}
		must(p.withKeys("fast", `source = "csi"`, `inline_volumes = "64Mi"`))
		return p.withKeys("big", `source = "csi"`, `inline_volumes = "64Mi"`)
	}) {
		return
	}
	for _, pool := range []string{"fast", "big"} {
		p.inlineLimited(pool)
	}
}

func (p *play) inlineLimited(pool string) {
	var v inlineVolume
	var project int
	at := "/run/pods/" + pool + "/inline" // where other users than root reach it
	if !p.step("on "+pool+": df in a pod's inline volume shows its size, and its inodes", func() (_ string, err error) {
		v = must(p.inlined("q-"+pool, pool, "10Mi"))
		project = must(p.number("lsattr -pd " + v.directory + " | awk '{print $1}'"))
		must(p.do("mkdir -p " + at + " && mount --bind " + v.target + " " + at))
		return p.expect("df -B1 "+v.target+" | tail -n 1; df -i "+v.target+" | tail -n 1", " 10485760 ", fmt.Sprintf(" %d ", quotaInodes))
	}) {
		return
	}
	for _, w := range []struct{ name, as string }{{"an ordinary process", asUser}, {"root without CAP_SYS_RESOURCE", asRoot}, {"root of a user namespace", asNamespace}} {
		p.step("on "+pool+": "+w.name+" writes 10 MiB to it and no more", func() (string, error) { return p.fills(w.as, at) })
	}
	p.step("on "+pool+": it ends, and its project has no limit and no files", func() (string, error) {
		must(p.do("dd if=/dev/zero of=" + at + "/left bs=64k count=8 2>/dev/null; umount " + at + " && rmdir " + at))
		must(p.ended(pool, v))
		// A file of xfs is counted until it has been inactivated, behind its removal.
		must(p.machine.until(p.ctx, limit, fmt.Sprintf("test -z \"$(xfs_quota -f -x -c 'report -p -N -n -b' /srv/%s | awk '$1 == \"#%d\" && ($2 > 0 || $4 > 0)')\"", pool, project)))
		return p.compareLimits()
	})
}
