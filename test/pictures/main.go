// Command pictures draws what the benchmarks measured, as the README shows it, and the diagrams of
// the pages: make pictures. It reads the benchmarks' own JSON in docs/measured, and the texts in
// docs/pictures, and writes an SVG for each beside it. It measures nothing.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

func main() {
	docs := filepath.Join(rig.Root(), "docs")
	if len(os.Args) == 2 {
		if err := drawDiagrams(os.Args[1], filepath.Join(docs, "pictures")); err != nil {
			fmt.Fprintln(os.Stderr, "pictures:", err)
			os.Exit(1)
		}
	}
	os.Exit(run(filepath.Join(docs, "measured")))
}

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
