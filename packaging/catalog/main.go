// Command catalog prints the journal's message catalog (journalctl --catalog) from
// docs/troubleshooting.md, so that a reason is explained in one place.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/hostpath-provisioner/hostpath-provisioner/docs"
	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "usage: catalog TROUBLESHOOTING.MD")
		return 2
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		fmt.Fprintln(stderr, "catalog:", err)
		return 1
	}
	for _, r := range docs.Reasons(string(text)) {
		fmt.Fprintf(stdout, about, systemd.MessageID(r.Name), r.Name, r.Text)
	}
	return 0
}

// about is an entry in the form of https://systemd.io/CATALOG/.
const about = `-- %s
Subject: hostpath-provisioner: %s
Defined-By: hostpath-provisioner
Documentation: man:hostpath-provisioner(8)
Documentation: file:/usr/share/doc/hostpath-provisioner/docs/troubleshooting.md

%s

`
