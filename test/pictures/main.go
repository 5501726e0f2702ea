// Command pictures draws what the benchmarks measured, as the README shows it: make pictures. It
// reads the benchmarks' own JSON in docs/measured and writes an SVG for each beside it. It measures
// nothing.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

func main() { os.Exit(run(filepath.Join(rig.Root(), "docs", "measured"))) }

func run(dir string) int {
	for _, p := range pictures {
		svg, err := p.draw(dir)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, p.file), svg, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "pictures:", err)
			return 1
		}
	}
	return 0
}
