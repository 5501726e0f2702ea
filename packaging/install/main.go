// Command install puts the files of the Debian package where the package would put them: the list
// is the package's own, nfpm.yaml, in the folder that packaging/build.sh --stage filled.
//
// It runs no scriptlet, keeps no list of what it installed, and makes no configuration.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

func run(args []string, stderr io.Writer) int {
	if len(args) != 2 {
		fmt.Fprintln(stderr, "usage: install STAGED DESTDIR")
		return 2
	}
	if err := install(args[0], args[1]); err != nil {
		fmt.Fprintln(stderr, "install:", err)
		return 1
	}
	return 0
}

// content is one entry of nfpm.yaml's contents (nfpm.goreleaser.com, "Configuration").
type content struct {
	Src, Dst, Type, Packager string
	FileInfo                 struct{ Mode fs.FileMode } `json:"file_info"`
}

// contents are the entries that the Debian package has.
func contents(staged string) ([]content, error) {
	text, err := os.ReadFile(filepath.Join(staged, "nfpm.yaml"))
	if err != nil {
		return nil, err
	}
	var description struct{ Contents []content }
	if err := yaml.Unmarshal(text, &description); err != nil {
		return nil, err
	}
	var ours []content
	for _, c := range description.Contents {
		if c.Packager == "" || c.Packager == "deb" {
			ours = append(ours, c)
		}
	}
	return ours, nil
}

func install(staged, destdir string) error {
	all, err := contents(staged)
	if err != nil {
		return err
	}
	defer syscall.Umask(syscall.Umask(0)) // directories have the package's modes, too
	for _, c := range all {
		if err := c.install(staged, destdir); err != nil {
			return fmt.Errorf("%s: %w", c.Dst, err)
		}
	}
	return nil
}

func (c content) install(staged, destdir string) error {
	to := filepath.Join(destdir, c.Dst)
	switch c.Type {
	case "dir":
		return os.MkdirAll(to, c.FileInfo.Mode)
	case "symlink":
		return link(c.Src, to)
	case "":
		return c.files(staged, to)
	}
	return fmt.Errorf("type %q is not known", c.Type)
}

// files installs one file, or all that a pattern matches into a folder.
func (c content) files(staged, to string) error {
	from, err := filepath.Glob(filepath.Join(staged, c.Src))
	if err != nil || len(from) == 0 {
		return errors.Join(err, fmt.Errorf("%s is missing", c.Src))
	}
	for _, one := range from {
		file := to
		if strings.HasSuffix(c.Dst, "/") { // where the source is a pattern, the destination is a folder
			file = filepath.Join(to, filepath.Base(one))
		}
		if err := write(one, file, c.FileInfo.Mode); err != nil {
			return err
		}
	}
	return nil
}

func link(target, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(target, to)
}

// write replaces a file by a rename, so that a program that runs goes on with the one it has.
func write(from, to string, mode fs.FileMode) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(to+".new", text, mode); err != nil {
		return err
	}
	if err := os.Chmod(to+".new", mode); err != nil { // whatever an interrupted run left there
		return err
	}
	return os.Rename(to+".new", to)
}
