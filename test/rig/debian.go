package rig

import (
	"cmp"
	"os"
)

// Debian is the suite of Debian that is booted by test/systemd and test/vm: what DEBIAN says in the
// environment, by default Debian 12.
func Debian() string { return cmp.Or(os.Getenv("DEBIAN"), "bookworm") }
