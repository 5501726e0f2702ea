// Command hostpath-provisioner turns PersistentVolumeClaims into directories of this host and
// PersistentVolumes that point at them. The subcommands check and prepare a host, list its volumes,
// adopt volumes of other provisioners and print the daemon's status.
//
// Exit codes, output and hints are decided here: errors elsewhere are facts, and the advice for
// them is in hints.go. The command changes nothing itself: daemon, prepare, adopt and volume do.
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
