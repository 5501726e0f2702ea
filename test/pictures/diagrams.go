package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// scale makes the text of diagrams as large as that of a page.
const scale = "0.75"

// drawDiagrams has D2 draw each text in dir, and notes in the picture of which text it is.
func drawDiagrams(tool, dir string) error {
	texts, err := filepath.Glob(filepath.Join(dir, "*.d2"))
	if err != nil {
		return err
	}
	for _, text := range texts {
		draw := exec.Command(tool, "--omit-version", "--scale", scale, text, svgOf(text))
		if out, err := draw.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", text, err, out)
		}
		svg, err := os.ReadFile(svgOf(text))
		if err != nil {
			return err
		}
		note, err := noteOf(text)
		if err != nil {
			return err
		}
		if err := os.WriteFile(svgOf(text), append(svg, note...), 0o644); err != nil {
			return err
		}
		if err := os.Chmod(svgOf(text), 0o644); err != nil { // D2 makes it its owner's alone
			return err
		}
	}
	return nil
}

func svgOf(text string) string { return text[:len(text)-len(".d2")] + ".svg" }

// noteOf is a comment of XML.
func noteOf(text string) (string, error) {
	data, err := os.ReadFile(text)
	return fmt.Sprintf("<!-- %s %x -->\n", filepath.Base(text), sha256.Sum256(data)), err
}
