package config

import "path/filepath"

// packageDirectories are those that the units of the packages have systemd make. Its directory in
// /etc is refused with all of /etc.
var packageDirectories = []string{"/var/lib/hostpath-provisioner", "/run/hostpath-provisioner"}

// ownDirectories are the clean absolute paths of the daemon's directories, as they are written and
// as they are without symbolic links.
func ownDirectories(more []string) []string {
	var all []string
	for _, dir := range append(append([]string(nil), packageDirectories...), more...) {
		dir, err := filepath.Abs(dir)
		if err != nil {
			continue
		}
		all = append(all, dir)
		if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
			all = append(all, real)
		}
	}
	return all
}

// checkOwn refuses pools in or around the daemon's own directories. systemd gives everything below
// a StateDirectory= or RuntimeDirectory= to User=, across mounts and with set-uid bits kept, when
// the directory has another owner (core/exec-invoke.c, path_chown_recursive): volumes would change
// hands.
func (l *loader) checkOwn() {
	for _, p := range l.config.Pools {
		d := l.pools[p.Name]
		if p.Path == "" || d.broken["path"] {
			continue
		}
		for _, dir := range l.own {
			if l.shares(d, dir) {
				break
			}
		}
	}
}

func (l *loader) shares(d *draft, dir string) bool {
	at := l.where(d, "path")
	switch {
	case under(d.Path, dir):
		l.refuse(at, "%q is in %s, a directory of the daemon: systemd may change the owner of everything in it", d.Path, dir)
	case under(dir, d.Path):
		l.refuse(at, "%q holds %s, a directory of the daemon", d.Path, dir)
	default:
		return false
	}
	l.errors[len(l.errors)-1].Own = true
	return true
}
