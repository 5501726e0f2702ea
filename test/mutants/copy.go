package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// copyOf is a copy of the working tree, in which one breakage at a time is made. With -trimpath the
// build cache does not see where it is (go help build), so that only what a breakage changes is
// compiled.
type copyOf struct {
	root string
	dir  string

	// What .build has of the copy as it is: nothing after a change.
	made     bool   // the daemon
	compiled string // the tests of this package
}

// newCopy copies what git would commit, tracked or not, and links what was built from other
// modules.
func newCopy(ctx context.Context, root string) (*copyOf, error) {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	c := &copyOf{root: root, dir: dir}
	if err := c.fill(ctx); err != nil {
		c.remove()
		return nil, fmt.Errorf("copying %s: %w", root, err)
	}
	return c, nil
}

func (c *copyOf) remove() { _ = os.RemoveAll(c.dir) }

func (c *copyOf) fill(ctx context.Context) error {
	git := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	git.Dir = c.root
	list, err := git.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range bytes.SplitSeq(bytes.TrimSuffix(list, []byte{0}), []byte{0}) {
		if err := c.take(string(name)); err != nil {
			return err
		}
	}
	built, err := filepath.Glob(filepath.Join(c.root, ".build", "*"))
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(c.dir, ".build"), 0o755); err != nil {
		return err
	}
	for _, file := range built {
		if filepath.Base(file) == daemon {
			continue // built in each copy
		}
		if err := os.Symlink(file, filepath.Join(c.dir, ".build", filepath.Base(file))); err != nil {
			return err
		}
	}
	return nil
}

func (c *copyOf) changed() { c.made, c.compiled = false, "" }

// take copies one file; one that was removed and not committed yet is not there.
func (c *copyOf) take(name string) error {
	from, to := filepath.Join(c.root, name), filepath.Join(c.dir, name)
	info, err := os.Lstat(from)
	if os.IsNotExist(err) {
		return nil
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode().Perm())
}

// with makes a breakage, calls f, and takes the breakage back.
func (c *copyOf) with(m mutant, f func()) error {
	text, err := m.mutate(c.dir)
	if err != nil {
		return stale{err}
	}
	at := filepath.Join(c.dir, m.File)
	before, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	c.changed()
	defer c.changed()
	if err := os.WriteFile(at, []byte(text), 0o600); err != nil { // the mode is that of the file
		return err
	}
	f()
	return os.WriteFile(at, before, 0o600)
}
