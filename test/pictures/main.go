// Command pictures draws what the benchmarks measured, as the README shows it, and the diagrams of
// the pages: make pictures. It reads the benchmarks' own JSON in docs/measured, and the texts and the
// recording in docs/pictures, and writes an SVG for each beside it. It measures nothing; with
// `record PROGRAM` it keeps what the demonstration prints.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

func main() {
	docs := filepath.Join(rig.Root(), "docs")
	cast := filepath.Join(docs, "pictures", castName)
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "record":
		if err = record(cast, args[1], "demo"); err == nil {
			err = writeCast(cast)
		}
	case len(args) == 1:
		err = errors.Join(drawDiagrams(args[0], filepath.Dir(cast)), writeCast(cast))
		fallthrough
	default:
		err = errors.Join(err, run(filepath.Join(docs, "measured")))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	for _, p := range pictures {
		svg, err := p.draw(dir)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, p.file), svg, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
