package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// packageFile is what make packages built for this machine.
func packageFile() (string, error) {
	dir := os.Getenv("HOSTPATH_PACKAGES")
	if dir == "" {
		dir = filepath.Join(rig.Root(), ".build", "packages")
	}
	found, err := filepath.Glob(filepath.Join(dir, "hostpath-provisioner_*_amd64.deb"))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%d packages for amd64 in %s (build one with: make packages)", len(found), dir)
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
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

// archived is a file for the machine, with its mode.
type archived struct {
	mode int64
	data []byte
}

// load writes files as a tar to the disk from which the machine unpacks them.
func (o machineOptions) load(files map[string]archived) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	// In place: a running machine has the disk open, and the end of the archive is in it.
	disk, err := os.OpenFile(o.disk(filesDisk), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = disk.Write(archive.Bytes())
	return errors.Join(err, disk.Close())
}

const etc = "etc/hostpath-provisioner"

// unpacked are the commands that unpack what load wrote.
const unpacked = "tar -x --no-same-owner -f /dev/vdb -C / && blockdev --flushbufs /dev/vdb"

// loadPackage loads the package, what a container's image has, and what makes kubelet's calls.
func (p *play) loadPackage(o machineOptions) error {
	calls := filepath.Join(p.dir, "kubelet-calls") // beside the directory of the chapter kubelet
	if err := compile(p.ctx, calls, "./test/vm/kubelet"); err != nil {
		return err
	}
	files := map[string]archived{}
	deb, err := packageFile()
	if err != nil {
		return err
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	for name, source := range map[string]string{"root/hostpath-provisioner.deb": deb, "usr/local/share/busybox": busybox, kubelet[1:]: calls} {
		data, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		files[name] = archived{0o755, data}
	}
	return o.load(files)
}

// loadConfig loads a configuration with the chapter's provisioner, and the node's kubeconfig.
func (p *play) loadConfig(o machineOptions, dir, node, config string) error {
	kubeconfig := must(p.kubeconfig(node))
	return o.load(map[string]archived{
		dir + "/config.toml": {0o644, []byte(fmt.Sprintf("provisioner = %q\n%s", p.namespace, config))},
		dir + "/kubeconfig":  {0o600, kubeconfig},
	})
}

// kubeconfig is a node's, with the address at which the machine reaches this host's loopback.
func (p *play) kubeconfig(node string) ([]byte, error) {
	file := filepath.Join(p.dir, "kubeconfig")
	if err := p.cluster.ServiceAccountKubeconfig(p.ctx, "hostpath-provisioner", "hostpath-provisioner", node, file); err != nil {
		return nil, err
	}
	return forMachine(file)
}

// forMachine reads a kubeconfig, and changes its address.
func forMachine(file string) ([]byte, error) {
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

// fresh starts a machine on which the package is installed and configured, and the daemon not
// started.
func (p *play) fresh(config string) (string, error) {
	o := must(p.onInstalled())
	o.State = filepath.Join(p.installed, "state")
	return p.configure(o, config)
}

// cold is fresh, booted with these words for the kernel.
func (p *play) cold(config, kernel string) (string, error) {
	o := must(p.onInstalled())
	o.Kernel = kernel
	return p.configure(o, config)
}

// onInstalled are the options of a machine on the disk with the package.
func (p *play) onInstalled() (machineOptions, error) {
	if p.installed == "" {
		if err := p.install(); err != nil {
			return machineOptions{}, fmt.Errorf("installing the package: %w", err)
		}
	}
	return p.options(filepath.Join(p.installed, "root.qcow2")), nil
}

// configure starts the machine and puts the configuration in place of the package's. The policy
// module knows the pools on disks by then.
func (p *play) configure(o machineOptions, config string) (string, error) {
	check(p.loadConfig(o, etc, node, config))
	check(p.boot(o))
	return p.doAll(unpacked, "restorecon -R /etc/hostpath-provisioner", "systemctl daemon-reload")
}

// tenants is a directory beside the daemon's state, as a pool could be.
const tenants = "/var/lib/hostpath-provisioner/tenants"

// install makes what all chapters begin with: the image's machine, with the package that was built,
// installed by dpkg and its own scripts. Its state is saved, because the policy's compiler takes
// most of a minute here.
func (p *play) install() error {
	name := p.name
	defer func() { p.name = name }()
	p.name = "installed"
	o := p.options(p.image.file("booted.qcow2"))
	if err := os.RemoveAll(o.Root); err != nil { // of a try before, whose disk does not fit the state
		return err
	}
	o.State = p.image.file("state")
	if err := p.loadPackage(o); err != nil {
		return err
	}
	if err := p.boot(o); err != nil {
		return err
	}
	defer func() { p.machine.kill(); p.machine = nil }()
	if _, err := p.dpkg(); err != nil {
		return err
	}
	if err := p.loadConfig(o, etc, node, dmConfig); err != nil {
		return err
	}
	// What the script must leave alone.
	if _, err := p.doAll(unpacked, "mkdir -p "+tenants+" && touch "+tenants+"/file && chcon -R -t container_file_t "+tenants); err != nil {
		return err
	}
	if _, err := p.policy(script + " pools"); err != nil {
		return err
	}
	if err := p.freeze(filepath.Join(o.Dir, "state")); err != nil {
		return err
	}
	p.installed = o.Dir
	return nil
}

// policy runs a command that has the policy's compiler work, which takes a minute here, and more
// beside others.
func (p *play) policy(command string) (string, error) {
	ctx, cancel := context.WithTimeout(p.ctx, 15*time.Minute)
	defer cancel()
	return p.machine.do(ctx, command)
}

// dpkg installs the package, as docs/install.md says.
func (p *play) dpkg() (string, error) {
	begin := time.Now()
	out, err := p.policy(unpacked + " && dpkg -i /root/hostpath-provisioner.deb")
	if err == nil && !strings.Contains(out, "is installed and not started") {
		err = fmt.Errorf("dpkg -i did not say what comes next:\n%s", out)
	}
	p.say("     the package is installed by dpkg and its scripts (%.0fs)", time.Since(begin).Seconds())
	return "", err
}

// freeze saves the running machine with its root disk. Disks that are not mounted must not be read
// from its memory by those who start from it.
func (p *play) freeze(state string) error {
	must(p.do("sync; echo 3 > /proc/sys/vm/drop_caches"))
	return p.machine.save(state)
}

// options of a machine on a fresh disk over this one.
func (p *play) options(backing string) machineOptions {
	dir := filepath.Join(p.dir, p.name)
	os.MkdirAll(dir, 0o700)
	return machineOptions{Image: p.image, Root: filepath.Join(dir, "root.qcow2"), Backing: backing, Dir: dir}
}

func (p *play) boot(o machineOptions) (err error) {
	if p.machine, err = boot(p.ctx, o); err != nil {
		return err
	}
	return p.reportHost()
}

// reportHost has the Node tell which host it is now, as a kubelet does when it starts: without that
// a machine that was booted once more waits until its name's lease is over (package presence).
func (p *play) reportHost() error {
	id, err := p.do("cat /proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	_, err = p.cluster.Client().CoreV1().Nodes().Patch(p.ctx, node, types.MergePatchType,
		fmt.Appendf(nil, `{"status": {"nodeInfo": {"bootID": %q}}}`, strings.TrimSpace(id)),
		metav1.PatchOptions{}, "status")
	return err
}

// pools makes the two filesystems, their mount points and their entries in fstab.
func (p *play) pools() (string, error) {
	return p.doAll(
		"mkfs.ext4 -q -L fast /dev/vdc && mkfs.xfs -q -L big /dev/vdd",
		"printf '/dev/vdc /srv/fast ext4 defaults,nosuid,nodev,nofail 0 0\n/dev/vdd /srv/big xfs defaults,nosuid,nodev,nofail 0 0\n' >> /etc/fstab && systemctl daemon-reload",
		"hostpath-provisioner prepare fast && hostpath-provisioner prepare big",
		"mount /srv/fast && mount /srv/big",
		"hostpath-provisioner prepare fast && hostpath-provisioner prepare big",
	)
}

// start starts the daemon as its unit does; systemctl returns when it said that it is ready.
func (p *play) start() (string, error) { return p.do("systemctl start hostpath-provisioner") }
