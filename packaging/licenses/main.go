// Command licenses prints the licence texts of everything that is linked into a Go program: the
// list is the one that the toolchain wrote into the program, the texts are those in the modules'
// source.
//
// It judges nothing: a module without a licence's text is an error, what a text allows is not
// asked.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "usage: licenses PROGRAM")
		return 2
	}
	if err := write(stdout, args[0]); err != nil {
		fmt.Fprintln(stderr, "licenses:", err)
		return 1
	}
	return 0
}

// module is a part of the program with its source.
type module struct{ Path, Version, Dir string }

func write(w io.Writer, program string) error {
	modules, err := linked(program)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "hostpath-provisioner contains the following, under the licences that follow each name.")
	for _, m := range modules {
		texts, err := textsOf(m)
		if err != nil {
			return err
		}
		for _, name := range texts {
			text, err := os.ReadFile(filepath.Join(m.Dir, name))
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "\n%s\n%s %s: %s\n\n%s\n", strings.Repeat("=", 80), m.Path, m.Version, name, strings.TrimSpace(string(text)))
		}
	}
	return nil
}

// linked are the modules in the program, and Go's own library.
func linked(program string) ([]module, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	all := []module{{"Go", info.GoVersion, strings.TrimSpace(string(root))}}
	for _, dep := range info.Deps {
		out, err := exec.Command("go", "mod", "download", "-json", dep.Path+"@"+dep.Version).Output()
		if err != nil {
			return nil, fmt.Errorf("go mod download %s@%s: %w", dep.Path, dep.Version, err)
		}
		var m module
		if err := json.Unmarshal(out, &m); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

var text = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|copyright)(\.(md|txt)|[-.](apache|mit|bsd)\S*)?$`)

// textsOf are a module's licences and notices. Go's tree has those of many tools that are not
// linked; there only the top counts.
func textsOf(m module) ([]string, error) {
	var found []string
	err := filepath.WalkDir(m.Dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if name != m.Dir && (m.Path == "Go" || e.Name() == "testdata" || e.Name() == "vendor") {
				return fs.SkipDir
			}
			return nil
		}
		if text.MatchString(e.Name()) {
			below, err := filepath.Rel(m.Dir, name)
			found = append(found, below)
			return err
		}
		return nil
	})
	if err == nil && len(found) == 0 {
		err = errors.New("no licence in " + m.Path)
	}
	return found, err
}
