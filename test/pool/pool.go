// Package pool lists what is in a pool's directory, and compares it with what should be.
//
// Tree reads names only. The package knows no daemon: the names of the daemon's own directories are
// part of what a pool promises to its operator.
package pool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	private = ".hostpath-provisioner" // the daemon's directory in a pool
	ours    = "ours/"                 // stands for it in names
	suffix  = ".json"                 // of a record
)

// Directories are the daemon's own directories in a pool.
var Directories = []string{"staging", "trash", "volumes", "archive"}

// Tree returns the names of everything in a pool but the marker and lost+found, sorted: "NAME" of
// an entry in the pool's directory, "ours/DIRECTORY/NAME" of an entry in one of the daemon's own.
// The error is fs.ErrNotExist if directories are missing; the names are complete then.
func Tree(dir string) ([]string, error) {
	all, missing := list(nil, dir, "")
	if missing != nil && !errors.Is(missing, fs.ErrNotExist) {
		return nil, missing
	}
	for _, own := range Directories {
		var err error
		all, err = list(all, filepath.Join(dir, private, own), ours+own+"/")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		missing = errors.Join(missing, err)
	}
	slices.Sort(all)
	return all, missing
}

func list(all []string, dir, prefix string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != "lost+found" && e.Name() != private {
			all = append(all, prefix+e.Name())
		}
	}
	return all, err
}

// Of returns the names that these volumes have in a tree: a directory and a record each.
func Of(volumes ...string) []string {
	var all []string
	for _, v := range volumes {
		all = append(all, v, ours+"volumes/"+v+suffix)
	}
	return all
}

// Split returns the daemon's directory that a name of a tree is in, "" for the pool's own, and the
// volume that the name is of. A directory that is being removed has a "~" behind its volume's name.
func Split(name string) (directory, volume string) {
	rest, found := strings.CutPrefix(name, ours)
	if !found {
		return "", name
	}
	directory, volume, _ = strings.Cut(rest, "/")
	return directory, strings.TrimSuffix(volume, suffix)
}

// Compare returns the names that a tree has and should not have, and those that it should have and
// has not.
func Compare(got, want []string) (extra, missing []string) {
	without := func(all, these []string) (rest []string) {
		known := make(map[string]bool, len(these))
		for _, name := range these {
			known[name] = true
		}
		for _, name := range all {
			if !known[name] {
				rest = append(rest, name)
			}
		}
		return rest
	}
	return without(got, want), without(want, got)
}
