package main

import (
	"fmt"
	"path"
	"strings"
)

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
	manifests, err := output(product(), "manifests", "--provisioner", p.namespace, "--no-classes", "--inline-volumes")
	if err != nil {
		return err
	}
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
