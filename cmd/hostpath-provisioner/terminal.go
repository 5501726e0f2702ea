package main

import (
	"bytes"
	"io"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
)

// terminal is where output goes: names of tenants' files, records and whatever else others wrote
// must not command it. Lines and columns are the program's own. No write ends within a character.
type terminal struct {
	to      io.Writer
	failed  error // of the first write that failed
	columns int   // how wide it is, 0: it is no terminal
	colours bool
}

// Write is part of io.Writer.
func (p *terminal) Write(text []byte) (int, error) {
	var safe bytes.Buffer
	rest := text
	for len(rest) > 0 {
		end := bytes.IndexAny(rest, "\n\t")
		if end < 0 {
			end = len(rest)
		}
		safe.WriteString(state.Printable(string(rest[:end])))
		if end < len(rest) {
			safe.WriteByte(rest[end])
			end++
		}
		rest = rest[end:]
	}
	if _, err := p.to.Write(safe.Bytes()); err != nil {
		if p.failed == nil {
			p.failed = err
		}
		return 0, err
	}
	return len(text), nil
}
