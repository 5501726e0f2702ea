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
	if _, err := p.expect(p.call("end", v.pod, "scratch"), "done"); err != nil {
		return "", err
	}
	return "", p.removed(pool, v)
}

func (p *play) removed(pool string, v inlineVolume) error {
	_, err := p.machine.until(p.ctx, limit, fmt.Sprintf("test ! -e %s && test ! -e %s && test ! -e /srv/%s/.hostpath-provisioner/volumes/%s.json && test -z \"$(ls -A /srv/%[3]s/.hostpath-provisioner/trash)\"",
		v.directory, v.target, pool, path.Base(v.directory)))
	return err
}

// allowDriver applies the manifests for the chapter's own provisioner, with a CSIDriver that has inline volumes.
func (p *play) allowDriver() error {
	manifests, err := output(product(), "manifests", "--provisioner", p.namespace, "--no-classes", "--inline-volumes")
	if err != nil {
		return err
	}
	return p.cluster.Apply(p.ctx, manifests)
}

// withKeys gives a pool's table more keys, and has the units take them, as docs/csi.md and docs/snapshots.md say.
func (p *play) withKeys(pool string, keys ...string) (string, error) {
	const config = "/etc/hostpath-provisioner/config.toml"
	return p.doAll(fmt.Sprintf(`sed -i 's/^\[pool\.%s\]$/&\n%s/' %s && restorecon %[3]s`, pool, strings.Join(keys, `\n`), config),
		"systemctl daemon-reload", "systemctl restart hostpath-provisioner-csi.socket hostpath-provisioner")
}

// inlineConfined: the daemon's domain makes and removes what the driver's domain mounts.
func (p *play) inlineConfined() {
	var v inlineVolume
	p.step("pool big makes inline volumes, as docs/csi.md says", func() (string, error) {
		if err := p.allowDriver(); err != nil {
			return "", err
		}
		return p.withKeys("big", `source = "csi"`, `inline_volumes = "64Mi"`)
	})
	if !p.step("an inline volume is made and mounted for a pod, with the label of volumes", func() (_ string, err error) {
		if v, err = p.inlined("u-2", "big", "8Mi"); err != nil {
			return "", err
		}
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
		if v, err = p.inlined("u-3", "big", "8Mi"); err != nil {
			return "", err
		}
		if _, err := p.doAll("systemctl stop hostpath-provisioner", "umount "+v.target+" && rm -r "+path.Join(kubeletRoot, "pods", v.pod), "test -d "+v.directory, "systemctl start hostpath-provisioner"); err != nil {
			return "", err
		}
		return "", p.removed("big", v)
	})
}
