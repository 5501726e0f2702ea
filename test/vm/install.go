package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

func product() string {
	if b := os.Getenv("HOSTPATH_PROVISIONER"); b != "" {
		return b
	}
	return filepath.Join(rig.Root(), ".build", "hostpath-provisioner")
}

func output(name string, args ...string) ([]byte, error) {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, nil
}

// installed are the files of the product, as its packages place them.
var installed = map[string]string{
	"usr/lib/systemd/system/hostpath-provisioner.service":            "systemd/hostpath-provisioner.service",
	"usr/lib/sysusers.d/hostpath-provisioner.conf":                   "packaging/sysusers.conf",
	"usr/share/hostpath-provisioner/selinux/hostpath_provisioner.te": "selinux/hostpath_provisioner.te",
	"usr/share/hostpath-provisioner/selinux/hostpath_provisioner.fc": "selinux/hostpath_provisioner.fc",
	"usr/share/hostpath-provisioner/selinux/hostpath_provisioner.if": "selinux/hostpath_provisioner.if",
	"usr/libexec/hostpath-provisioner/selinux-module":                "selinux/selinux-module",
}

// baseConfig has the two pools that every chapter starts with.
const baseConfig = `node = "machine"
metrics = ""
[pool.fast]
path = "/srv/fast"
filesystem = "ext4"
default = true
[pool.big]
path = "/srv/big"
filesystem = "xfs"
`

// load writes a tar with the product, this configuration and a kubeconfig to the disk from which the
// machine unpacks it.
func (p *play) load(o machineOptions, config string) error {
	files := map[string][]byte{"etc/hostpath-provisioner/config.toml": []byte(fmt.Sprintf("provisioner = %q\n%s", p.namespace, config))}
	busybox, err := exec.LookPath("busybox") // what a container's image has
	if err != nil {
		return err
	}
	if files["usr/local/share/busybox"], err = os.ReadFile(busybox); err != nil {
		return err
	}
	if files["usr/bin/hostpath-provisioner"], err = os.ReadFile(product()); err != nil {
		return err
	}
	for name, source := range installed {
		if files[name], err = os.ReadFile(filepath.Join(rig.Root(), source)); err != nil {
			return err
		}
	}
	if files["etc/hostpath-provisioner/kubeconfig"], err = p.kubeconfig(); err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name, data := range files {
		mode := int64(0o644)
		switch {
		case strings.Contains(name, "/bin/"), strings.Contains(name, "/libexec/"), strings.HasSuffix(name, "/busybox"):
			mode = 0o755
		case strings.HasSuffix(name, "kubeconfig"):
			mode = 0o600
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(o.disk(filesDisk), archive.Bytes(), 0o600)
}

// kubeconfig is a node's, with the address at which the machine reaches this host's loopback.
func (p *play) kubeconfig() ([]byte, error) {
	file := filepath.Join(p.dir, "kubeconfig")
	if err := p.cluster.ServiceAccountKubeconfig(p.ctx, "hostpath-provisioner", "hostpath-provisioner", node, file); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	const here, there = "server: https://127.0.0.1:", "tls-server-name: 127.0.0.1\n    server: https://10.0.2.2:"
	if !bytes.Contains(data, []byte(here)) {
		return nil, fmt.Errorf("%s: no %q", file, here)
	}
	return bytes.Replace(data, []byte(here), []byte(there), 1), nil
}

// fresh starts a machine from the saved state with the product unpacked in it, not yet started.
func (p *play) fresh(config string) (string, error) {
	o := p.options()
	o.State = p.image.file("state")
	if err := p.load(o, config); err != nil {
		return "", err
	}
	return "", p.unpack(o)
}

// cold is fresh, booted with these words for the kernel.
func (p *play) cold(config, kernel string) (string, error) {
	o := p.options()
	o.Kernel = kernel
	if err := p.load(o, config); err != nil {
		return "", err
	}
	return "", p.unpack(o)
}

func (p *play) options() machineOptions {
	dir := filepath.Join(p.dir, p.name)
	os.MkdirAll(dir, 0o700)
	return machineOptions{Image: p.image, Root: filepath.Join(dir, "root.qcow2"), Backing: "booted.qcow2", Dir: dir}
}

func (p *play) unpack(o machineOptions) (err error) {
	if p.machine, err = boot(p.ctx, o); err != nil {
		return err
	}
	_, err = p.doAll("tar -x --no-same-owner -f /dev/vdb -C /", "systemd-sysusers hostpath-provisioner.conf",
		"ln -s ../../../bin/hostpath-provisioner /usr/lib/systemd/system-generators/hostpath-provisioner-generator",
		"restorecon -R /usr/bin/hostpath-provisioner /usr/lib/systemd /etc/hostpath-provisioner && systemctl daemon-reload")
	return err
}

// pools makes the two filesystems, their mount points and their entries in fstab.
func (p *play) pools() (string, error) {
	return p.doAll(
		"mkfs.ext4 -q -L fast /dev/vdc && mkfs.xfs -q -L big /dev/vdd",
		"printf '/dev/vdc /srv/fast ext4 defaults,nofail 0 0\n/dev/vdd /srv/big xfs defaults,nofail 0 0\n' >> /etc/fstab && systemctl daemon-reload",
		"hostpath-provisioner prepare fast && hostpath-provisioner prepare big",
		"mount /srv/fast && mount /srv/big",
		"hostpath-provisioner prepare fast && hostpath-provisioner prepare big",
	)
}

// start starts the daemon as its unit does; systemctl returns when it said that it is ready.
func (p *play) start() (string, error) { return p.do("systemctl start hostpath-provisioner") }
