package main

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// recipe is everything that an image is made from, except Debian's packages, which are those of the
// day it is built.
//
//go:embed image agent
var recipe embed.FS

// image is a directory with root.img, vmlinuz, initrd, and of the booted machine booted.qcow2 and
// state.
type image string

func (i image) file(name string) string { return filepath.Join(string(i), name) }

// findImage is the image in the cache; it is built where it is missing, by one process at a time.
func findImage(ctx context.Context, cache string, say func(string, ...any)) (image, error) {
	key, err := recipeKey()
	if err != nil {
		return "", err
	}
	at := image(filepath.Join(cache, "vm-"+key))
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(string(at)); err == nil || ctx.Err() != nil {
		return at, ctx.Err() // it may have been ended while it waited for the lock
	}
	begin := time.Now()
	say("building the machine's image in %s; this takes some minutes and is kept", at)
	if err := buildImage(ctx, at); err != nil {
		return "", err
	}
	say("built in %.0fs", time.Since(begin).Seconds())
	return at, nil
}

// buildImage makes it aside, so that one that was cut off is never used. What is made once is kept
// if the machine does not boot, which on a busy host may only be too slow.
func buildImage(ctx context.Context, at image) error {
	aside := image(string(at) + ".new")
	whole := aside.file("whole")
	if _, err := os.Stat(whole); err != nil {
		if err := buildDisk(ctx, aside); err != nil {
			return err
		}
		if err := os.WriteFile(whole, nil, 0o600); err != nil {
			return err
		}
	}
	if err := bootOnce(ctx, aside); err != nil {
		return fmt.Errorf("the first boot: %w", err)
	}
	return os.Rename(string(aside), string(at))
}

// buildDisk makes everything but the state of the booted machine.
func buildDisk(ctx context.Context, aside image) error {
	if err := os.RemoveAll(string(aside)); err != nil {
		return err
	}
	if err := os.MkdirAll(string(aside), 0o755); err != nil {
		return err
	}
	agent := aside.file("agent")
	if err := compile(ctx, agent, "./test/vm/agent"); err != nil {
		return err
	}
	script := exec.CommandContext(ctx, filepath.Join(rig.Root(), "test/vm/image/build.sh"),
		string(aside), agent, rig.Debian())
	if out, err := script.CombinedOutput(); err != nil {
		return fmt.Errorf("test/vm/image/build.sh: %w\n%s", err, out)
	}
	return nil
}

// compile builds a static program for the machine.
func compile(ctx context.Context, out, of string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, of)
	build.Dir = rig.Root()
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", of, err, out)
	}
	return nil
}

// bootOnce boots the machine and saves its state, from which later runs start in seconds.
func bootOnce(ctx context.Context, at image) error {
	if err := os.RemoveAll(at.file("booted.qcow2")); err != nil { // of a try before
		return err
	}
	m, err := boot(ctx, machineOptions{Image: at, Root: at.file("booted.qcow2"), Backing: at.file("root.img"), Dir: string(at)})
	if err != nil {
		return err
	}
	defer m.kill()
	if _, err := m.do(ctx, "systemctl is-system-running --wait; sync; echo 3 > /proc/sys/vm/drop_caches"); err != nil {
		return err
	}
	return m.save(at.file("state"))
}

// recipeKey is a hash over the recipe's names and contents, and the suite.
func recipeKey() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(recipe, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := recipe.ReadFile(name)
		fmt.Fprintf(sum, "%s %d\n", name, len(data))
		sum.Write(data)
		return err
	})
	fmt.Fprintln(sum, layout, rig.Debian())
	return hex.EncodeToString(sum.Sum(nil))[:12], err
}
