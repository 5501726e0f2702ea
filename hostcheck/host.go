package hostcheck

import (
	"errors"
	"io/fs"
	"path"
	"strings"
)

// unit is the name of our systemd unit. kubevirt's documentation has its users install one of the
// same name, which only runs chcon.
const unit = "hostpath-provisioner.service"

// unitDirs are searched by systemd before /usr/lib, where packages put theirs, in this order
// (systemd.unit(5), "Unit File Load Path").
var unitDirs = []string{
	"etc/systemd/system.control", "run/systemd/system.control", "run/systemd/transient",
	"etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system",
}

// CheckHost looks at what concerns the whole host and no single pool, all of it a warning. root is
// the host's root directory (os.DirFS("/")).
func CheckHost(root fs.FS) []Finding {
	var found []Finding
	for _, dir := range unitDirs {
		if f, ok := checkUnit(root, path.Join(dir, unit)); ok {
			found = append(found, f)
		}
	}
	return found
}

func checkUnit(root fs.FS, name string) (Finding, bool) {
	if target, err := fs.ReadLink(root, name); err == nil && target == "/dev/null" {
		return when(true, Warn, ReasonUnitMasked, "/%s is a link to /dev/null, so that systemd does not start %s", name, unit)
	}
	data, err := fs.ReadFile(root, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Finding{}, false
	case err != nil:
		return when(true, Warn, ReasonUnitShadowed, "/%s comes before the unit of the package and cannot be read: %v", name, err)
	case len(data) == 0:
		return when(true, Warn, ReasonUnitMasked, "/%s is empty, so that systemd does not start %s", name, unit)
	}
	command := execStart(string(data))
	return when(!ours(command), Warn, ReasonUnitShadowed,
		"/%s comes before the unit of the package and runs %q", name, command)
}

// execStart is the last command that the unit starts: an empty assignment takes back those before
// it.
func execStart(text string) (command string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.TrimSpace(key) == "ExecStart" {
			command = strings.TrimSpace(value)
		}
	}
	return command
}

// ours reports whether a command runs this program; "-", "@", ":", "+" and "!" before a path are
// systemd's (systemd.service(5)).
func ours(command string) bool {
	program, _, _ := strings.Cut(strings.TrimLeft(command, "-@:+!"), " ")
	return path.Base(program) == strings.TrimSuffix(unit, ".service")
}
