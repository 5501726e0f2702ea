// Command generate writes the dashboard for Grafana that the packages and the Helm chart have, from
// the list of the daemon's metrics and the panels of panels.go.
//
// It asks neither Grafana nor Prometheus: that its queries are answered is seen by TestDashboard
// (test/e2e). It is a module of its own: the product's go.mod does not name Grafana's SDK.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run writes the dashboard to the file that is named.
func run(args []string, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "usage: generate FILE")
		return 2
	}
	text, err := generate(rows, readCatalog())
	if err == nil {
		err = os.WriteFile(args[0], text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(stderr, "generate:", err)
		return 1
	}
	return 0
}
