package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// facts are what check finds of a kernel: the ABI of Landlock that the product uses, and what else
// it lacks.
type facts struct {
	landlock int
	lacks    []string
}

// kernels are those that are known, by the beginning of their release (docs/dev/versions.md).
var kernels = map[string]facts{
	"5.10": {0, []string{unique, "mounts by descriptor", "quotactl_fd(2)", "cgroup.kill"}},
	"5.14": {0, []string{unique}},
	"6.1":  {2, []string{unique}},
	"6.12": {6, nil},
}

const unique = "unique mount numbers"

// kernel: what check finds that a kernel lacks is what is known of its version. It is asked by the
// product alone in an initramfs, on the machine's kernel and those of KERNELS.
func (p *play) kernel() {
	dir := filepath.Join(p.dir, "kernel")
	p.need("an initramfs with the product alone", func() (string, error) {
		return "", p.initramfs(dir)
	})
	own := []string{p.image.file("vmlinuz")}
	for _, file := range append(own, strings.Fields(os.Getenv("KERNELS"))...) {
		p.step("check tells what "+filepath.Base(file)+" lacks", func() (string, error) {
			return p.lacking(dir, file)
		})
	}
}

// initScript prints the kernel's release and what check says.
const initScript = `#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
/bin/busybox mkdir /sys/fs/cgroup/system.slice
echo "release: $(/bin/busybox uname -r)"
/bin/product check --config /config.toml --json
/bin/busybox poweroff -f
`

func (p *play) initramfs(dir string) error {
	root := filepath.Join(dir, "root")
	for _, sub := range []string{"bin", "proc", "sys", "pool"} {
		if err := os.MkdirAll(filepath.Join(root, sub), 0o755); err != nil {
			return err
		}
	}
	busybox := must(exec.LookPath("busybox"))
	for to, from := range map[string]string{"busybox": busybox, "product": product()} {
		check(os.WriteFile(filepath.Join(root, "bin", to), must(os.ReadFile(from)), 0o755))
	}
	config := "node = \"machine\"\n[pool.fast]\npath = \"/pool\"\n"
	check(os.WriteFile(filepath.Join(root, "config.toml"), []byte(config), 0o644))
	check(os.WriteFile(filepath.Join(root, "init"), []byte(initScript), 0o755))
	_, err := output("sh", "-c", "cd "+root+" && find . | cpio --quiet -o -H newc > ../initrd")
	return err
}

// lacking boots a kernel, and compares.
func (p *play) lacking(dir, kernel string) (string, error) {
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Minute)
	defer cancel()
	said, err := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", "tcg", "-cpu", "Nehalem",
		"-m", "512", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", kernel, "-initrd", filepath.Join(dir, "initrd"), "-append", "console=ttyS0 "+
			"no_timer_check tsc=reliable mitigations=off quiet panic=-1 lsm=landlock").Output()
	if err != nil {
		return "", fmt.Errorf("qemu: %w: %s", err, said)
	}
	release, found, err := read(said)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	major, minor, _ := strings.Cut(release, ".")
	minor, _, _ = strings.Cut(minor, ".")
	want, known := kernels[major+"."+minor]
	if !known || found.landlock != want.landlock || !slices.Equal(found.lacks, want.lacks) {
		return "", fmt.Errorf("%s: %v, known is %v", release, found, want)
	}
	return fmt.Sprintf("%s: Landlock %d, lacks %q", release, found.landlock, found.lacks), nil
}

// read returns what the script printed.
func read(said []byte) (release string, found facts, err error) {
	text := strings.ReplaceAll(string(said), "\r", "")
	_, after, _ := strings.Cut(text, "release: ")
	release, _, _ = strings.Cut(after, "\n")
	_, after, _ = strings.Cut(after, "\n{\n")
	var told struct {
		Landlock int
		Kernel   []struct {
			Name string
			Has  *bool
		}
	}
	if err := json.NewDecoder(strings.NewReader("{" + after)).Decode(&told); err != nil {
		return "", found, err
	}
	for _, f := range told.Kernel {
		if f.Has == nil {
			return "", found, fmt.Errorf("%s is not known", f.Name)
		}
		if !*f.Has {
			found.lacks = append(found.lacks, f.Name)
		}
	}
	found.landlock = told.Landlock
	return release, found, nil
}
