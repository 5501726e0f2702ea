// Command shape prints figures of each Go package below a directory: how long its functions, files
// and lines are. It fails over the limits in limits.go, each of which it prints.
//
// It parses and compiles nothing. Functions of tests are not counted: a table of cases is as long
// as it has cases.
package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns 0, 1 where a limit is exceeded or a file is no Go, or 2 for a wrong command line.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "usage: shape DIRECTORY")
		return 2
	}
	return report(os.DirFS(args[0]), stdout, stderr)
}

func report(root fs.FS, stdout, stderr io.Writer) int {
	packages, err := measure(root)
	if err != nil {
		fmt.Fprintln(stderr, "shape:", err)
		return 1
	}
	if err := printTable(stdout, packages); err != nil {
		fmt.Fprintln(stderr, "shape:", err)
		return 1
	}
	over := exceeded(packages)
	for _, line := range over {
		fmt.Fprintln(stderr, "shape:", line)
	}
	if len(over) > 0 {
		return 1
	}
	return 0
}
