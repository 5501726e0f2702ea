package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A pool that shares files with a directory of the daemon is refused, also where the two are only
// joined by a symbolic link.
func TestOwnDirectories(t *testing.T) {
	t.Setenv("TMPDIR", "/media") // pools in /tmp are refused for another reason
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "real/state"), 0o700), os.Symlink("real", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	const changes = "a directory of the daemon: systemd may change the owner of everything in it"
	for path, want := range map[string]string{
		"/var/lib/hostpath-provisioner":             `"/var/lib/hostpath-provisioner" is in /var/lib/hostpath-provisioner, ` + changes,
		"/var/lib/hostpath-provisioner/volumes":     `"/var/lib/hostpath-provisioner/volumes" is in /var/lib/hostpath-provisioner, ` + changes,
		"/var/lib/hostpath-provisioner/state/pools": `"/var/lib/hostpath-provisioner/state/pools" is in /var/lib/hostpath-provisioner, ` + changes,
		"/srv/state/pool":                           `"/srv/state/pool" is in /srv/state, ` + changes,
		"/srv":                                      `"/srv" holds /srv/state, a directory of the daemon`,
		dir + "/link/state/pool":                    fmt.Sprintf(`"%[1]s/link/state/pool" is in %[1]s/link/state, `, dir) + changes,
		dir + "/real/state/pool":                    fmt.Sprintf(`"%[1]s/real/state/pool" is in %[1]s/real/state, `, dir) + changes,
	} {
		file := write(t, "node = 'n'\n[pool.p]\npath = '"+path+"'\nmount_point = '"+path+"'\n")
		_, err := Load(file, "/srv/state", dir+"/link/state")
		all := Errors(nil)
		if !errors.As(err, &all) || len(all) != 1 || all[0].Text != want || all[0].Key != "pool.p.path" || all[0].Line != 3 || !all[0].Own {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	for _, path := range []string{"/var/lib/hostpath-provisioner2", "/var/lib/volumes", "/srv/states"} {
		if _, err := Load(write(t, "node = 'n'\n[pool.p]\npath = '"+path+"'\n"), "/srv/state"); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
