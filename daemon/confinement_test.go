package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/confine"
)

// The directory around a mount point is the daemon's to work in, unless it holds what is others'.
func TestWorkIn(t *testing.T) {
	for mount, want := range map[string]string{
		"/srv/fast": "/srv", "/srv/pools/fast": "/srv/pools", "/mnt/disk": "/mnt", "/storage/a": "/storage", "/var/tmp/x/pool": "/var/tmp/x",
		"/data": "/data/volumes", "/var/volumes": "/var/volumes/volumes", "/var/lib/kubelet/pool": "/var/lib/kubelet/pool/volumes",
		"/var/lib/rancher/k3s/storage": "/var/lib/rancher/k3s/storage/volumes", "/home/pool": "/home/pool/volumes", "/opt/app/pool": "/opt/app/pool/volumes",
		"/var/tmp/pool": "/var/tmp/pool/volumes",
	} {
		if got := workIn(config.Pool{MountPoint: mount, Path: mount + "/volumes", RequireMount: true}); got != want {
			t.Errorf("mounted at %s: %s, want %s", mount, got, want)
		}
	}
	if got := workIn(config.Pool{MountPoint: "/srv/x", Path: "/srv/x/plain"}); got != "/srv/x" {
		t.Errorf("a plain directory: %s", got)
	}
}

// A file may be replaced in its directory; of a directory with others' keys only the file is read.
func TestAround(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(dir+"/b/real", nil, 0o600), os.Symlink("../b/real", dir+"/a/link")); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]string{
		dir + "/a/link":                       {dir + "/a", dir + "/b"},
		"/nonexistent/kubeconfig":             {"/nonexistent"},
		"/etc/kubernetes/admin.conf":          {"/etc/kubernetes/admin.conf"},
		"/etc/kubeconfig-that-is-not-there":   {"/etc/kubeconfig-that-is-not-there"},
		"/root/kubeconfig-that-is-not-there":  {"/root/kubeconfig-that-is-not-there"},
		"/etc/hostpath-provisioner/not-there": {"/etc/hostpath-provisioner"},
	} {
		if got := around(file); !slices.Equal(slices.Compact(got), want) {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}

// What a running daemon can take into use, and the sentence for what it cannot.
func TestFits(t *testing.T) {
	o := Options{Config: "/etc/hostpath-provisioner/config.toml", StateDir: "/var/lib/hostpath-provisioner/state", RuntimeDir: "/run/hostpath-provisioner"}
	pool := func(path string, mode os.FileMode) config.Config {
		return config.Config{Confine: true, Kubeconfig: "/etc/hostpath-provisioner/kubeconfig", Pools: []config.Pool{{Path: path, MountPoint: path, RequireMount: true, Mode: mode}}}
	}
	rules := confinement(o, pool("/srv/fast", 0o777))
	c := &confine.Confined{ABI: 7, Work: rules.Work, Read: slices.Concat(rules.Read, rules.Write)}
	loose := pool("/srv/fast", 0o777)
	loose.Confine = false
	for name, one := range map[string]struct {
		cfg  config.Config
		want string
	}{
		"the same":             {pool("/srv/fast", 0o777), ""},
		"a pool beside it":     {pool("/srv/other", 0o777), ""},
		"a pool elsewhere":     {pool("/data", 0o777), "/data is outside of what the daemon confined itself to when it started: it has to be restarted"},
		"the set-group-ID bit": {pool("/srv/fast", 0o770|os.ModeSetgid), "the daemon gave up the right to set the set-group-ID bit, which no pool's mode had when it started: it has to be restarted"},
		"not confined":         {loose, "confine = false comes too late for a daemon that is confined: it has to be restarted"},
	} {
		err := Fits(o, c, one.cfg)
		if got := text(err); got != one.want || err != nil && !errors.As(err, new(*RestartError)) {
			t.Errorf("%s: %q, want %q", name, got, one.want)
		}
	}
	for _, free := range []*confine.Confined{nil, {Off: true}, {Failed: "no"}, {ABI: 0}} {
		if err := Fits(o, free, pool("/data", 0o777)); err != nil {
			t.Errorf("%v: %v", free, err)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// What was not there when the daemon confined itself, or did not respond, only another start brings
// in reach: the pool's storage, or what is around its mount point. It is logged once. A daemon that
// is not confined reaches everything.
func TestOutsideOf(t *testing.T) {
	log, lines := logged()
	d := &daemon{Options: Options{Log: log}}
	for path, want := range map[string]string{
		"/data":     "/data came after the daemon confined itself: it has to be restarted",
		"/srv/fast": "/srv was absent or did not respond when the daemon confined itself: it has to be restarted",
	} {
		outside := d.outsideOf(config.Pool{Path: path, MountPoint: path, RequireMount: true})
		if d.confined = nil; outside() != "" {
			t.Errorf("%s is out of reach of a daemon that is not confined", path)
		}
		d.confined = &confine.Confined{ABI: 7}
		for range 2 {
			if why := outside(); why != want || strings.Count(lines.String(), want) != 1 {
				t.Errorf("%s: %q, logged %s", path, why, lines)
			}
		}
	}
}

// On a busy host nothing responds in time. The daemon works in its own directories all the same.
func TestOwnDirectoriesAreReachable(t *testing.T) {
	o := Options{StateDir: "/var/lib/hostpath-provisioner/state", RuntimeDir: "/run/hostpath-provisioner", Responds: func(string) bool { return false }}
	for path, want := range map[string]bool{
		"/var/lib/hostpath-provisioner": true, "/run/hostpath-provisioner": true, state.PoolLocks: true, "/srv": false,
	} {
		if got := o.reachable(path); got != want {
			t.Errorf("%s is reachable: %v, want %v", path, got, want)
		}
	}
	if o.Responds = nil; !o.reachable("/srv") {
		t.Error("without a question a pool is not reachable")
	}
}

// What the daemon only reads is read-only in its unit: with CAP_FOWNER and CAP_CHOWN it could give
// to others what it can open.
func TestWhatIsReadIsReadOnly(t *testing.T) {
	unit, err := os.ReadFile("../systemd/hostpath-provisioner.service")
	if err != nil {
		t.Fatal(err)
	}
	// ProtectSystem=, ProtectKernelTunables=, PrivateDevices=
	readOnly := []string{"/etc", "/usr", "/boot", "/sys", "/proc/sys", "/dev"}
	for line := range strings.Lines(string(unit)) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); {
		case key == "ReadOnlyPaths":
			readOnly = append(readOnly, strings.Fields(strings.ReplaceAll(value, "-/", "/"))...)
		case key == "ConfigurationDirectory", key == "ReadWritePaths":
			t.Errorf("%s is set, and takes a directory out", key)
		}
	}
	for _, path := range hostFiles {
		within := func(dir string) bool { return strings.HasPrefix(path+"/", dir+"/") }
		if !slices.ContainsFunc(readOnly, within) {
			t.Errorf("%s is read, and the unit leaves it writable", path)
		}
	}
}
