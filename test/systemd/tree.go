package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// inputs are what a tree is made of; a change makes another tree.
type inputs struct {
	suite    string
	packages []string
	removed  string // by mmdebstrap, as it is not needed here
}

// base is for the packages of this project alone.
var base = inputs{
	suite: "bookworm",
	packages: []string{
		"systemd", "systemd-sysv", "dbus", "e2fsprogs", "util-linux", "mount", "procps", "rpm", "man-db",
	},
	removed: "/usr/share/doc/* /usr/share/locale/*",
}

// forPods has a container runtime, too, and its network plugins.
func forPods() inputs {
	i := base
	i.packages = append(slices.Clone(i.packages), "containerd", "runc", "containernetworking-plugins", "iproute2", "busybox-static", "kmod")
	return i
}

// forRepositories has dnf, and what the page fetches a file with.
func forRepositories() inputs {
	i := base
	i.packages = append(slices.Clone(i.packages), "dnf", "gnupg", "curl")
	return i
}

// findTree returns the cached tree, and builds it where there is none: outside the repository, in
// $XDG_CACHE_HOME or /var/cache.
func findTree(say io.Writer, of inputs) (string, error) {
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = "/var/cache"
	}
	cache = filepath.Join(cache, "hostpath-provisioner-test")
	sum := sha256.Sum256(fmt.Append(nil, of))
	tree := filepath.Join(cache, "tree-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(tree+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(tree); err == nil {
		return tree, nil
	}
	began := time.Now()
	fmt.Fprintf(say, "building a Debian tree in %s\n", tree)
	if err := buildTree(tree, of); err != nil {
		return "", err
	}
	fmt.Fprintf(say, "built in %s\n", time.Since(began).Round(time.Second))
	return tree, nil
}

// buildTree builds aside, so that a tree is whole or not there.
func buildTree(tree string, of inputs) error {
	aside := tree + ".new"
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	args := []string{"--variant=minbase", "--quiet", "--include=" + strings.Join(of.packages, ",")}
	for _, path := range strings.Fields(of.removed) {
		args = append(args, "--dpkgopt=path-exclude="+path)
	}
	cmd := exec.Command("mmdebstrap", append(args, of.suite, aside)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mmdebstrap: %w\n%s", err, out)
	}
	return os.Rename(aside, tree)
}
