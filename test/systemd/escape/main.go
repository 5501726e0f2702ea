// Command escape is what an attacker would run who has taken over the daemon: it is started by the
// daemon's unit in the daemon's place, confines itself by the daemon's own function, and then tries
// with the rights that are left to get out of the pools. Each line it prints is one attempt and
// what came of it; it exits 0 only if none succeeded that docs/dev/security.md does not name.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/confine"
)

const configuration = "/etc/hostpath-provisioner/config.toml"

func main() {
	confined, err := confineAsDaemon()
	if err != nil {
		fmt.Println("not confined:", err)
		os.Exit(2)
	}
	out := 0
	for _, a := range attempts {
		err := a.try()
		switch {
		case a.allowed && err != nil:
			fmt.Printf("BROKEN  %s: %v\n", a.what, err)
			out++
		case a.allowed:
			fmt.Printf("works   %s\n", a.what)
		case missed(a.what, err):
			fmt.Printf("MISSED  %s: %v: the attempt proves nothing\n", a.what, err)
			out++
		case err == nil:
			fmt.Printf("ESCAPED %s\n", a.what)
			out++
		default:
			fmt.Printf("refused %s: %v\n", a.what, err)
		}
	}
	wrong, tried := derived(confined.Read)
	out += wrong
	fmt.Printf("%d attempts, %d not as they should be\n", len(attempts)+tried, out)
	if out > 0 {
		os.Exit(1)
	}
}

// hidden is what the service does not see at all, by ProtectHome=, ProtectProc=,
// ProtectKernelTunables= and PrivateDevices= of its unit.
var hidden = []string{"/root/", "/proc/1/", "/proc/kcore", "/dev/loop0"}

// missed reports whether an attempt failed because what it is about is not there at all.
func missed(what string, err error) bool {
	return errors.Is(err, os.ErrNotExist) && !slices.ContainsFunc(hidden, func(path string) bool { return strings.Contains(what+err.Error(), path) })
}

// confineAsDaemon is what `hostpath-provisioner run` does before it works. A kernel without
// Landlock is no ground for this test.
func confineAsDaemon() (*confine.Confined, error) {
	first := func(name string) string { dir, _, _ := strings.Cut(os.Getenv(name), ":"); return dir }
	o := daemon.Options{Config: configuration, StateDir: first("STATE_DIRECTORY"), RuntimeDir: first("RUNTIME_DIRECTORY")}
	cfg, err := config.Load(o.Config, o.StateDir, o.RuntimeDir)
	if err != nil {
		return nil, err
	}
	c, err := daemon.Confine(o, cfg)
	if err != nil {
		return nil, err
	}
	fmt.Println(c)
	if c.ABI == 0 {
		return nil, fmt.Errorf("%s", c)
	}
	return c, nil
}

// made is a file of this program's own in a pool.
func made(name string, mode os.FileMode) (*os.File, error) {
	return os.OpenFile(filepath.Join(pool, name), os.O_CREATE|os.O_RDWR|os.O_TRUNC, mode)
}
