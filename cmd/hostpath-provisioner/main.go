// Command hostpath-provisioner turns claims into directories of this host and volumes that point at
// them, and tells its operator what it sees.
//
// Only here is it decided how the program speaks: errors are facts everywhere else, and the advice
// that goes with them stands in hints.go. It does no work of its own.
package main

import (
	"os"
	"runtime/debug"
)

// version is set by the linker: -X main.version=v1.2.3
var version string

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// versionOf is what the linker was told, or what the toolchain knows of the source.
func versionOf(linked string, info *debug.BuildInfo) string {
	if linked != "" {
		return linked
	}
	if info == nil {
		return "unknown"
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	switch v := info.Main.Version; {
	case v != "" && v != "(devel)":
		return v
	case revision != "":
		return revision + dirty
	default:
		return "unknown"
	}
}
