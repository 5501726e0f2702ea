package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/confine"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// Confine takes from this process what a daemon with this configuration does not need (package
// confine). It cannot be undone. What the daemon works with is made before: later it could not be.
func Confine(o Options, cfg config.Config) (*confine.Confined, error) {
	if !cfg.Confine {
		return &confine.Confined{Off: true}, nil
	}
	if slices.ContainsFunc(cfg.Pools, func(p config.Pool) bool { return strings.Contains(p.Device, "=") }) {
		hostcheck.AskDisks()
	}
	for _, dir := range []string{o.StateDir, o.RuntimeDir, state.PoolLocks} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	rules := confinement(o, cfg)
	rules.Work = slices.DeleteFunc(rules.Work, func(path string) bool { return !o.reachable(path) })
	return confine.Process(rules)
}

// reachable reports whether a directory that the daemon works in can be opened without waiting for
// storage that hangs. Its own directories are not asked: they were made a moment ago, and without
// them it opens no pool until it is started again, while on a busy host the response alone may take
// longer than is waited for.
func (o Options) reachable(path string) bool {
	own := []string{aroundState(o.StateDir), o.RuntimeDir, state.PoolLocks}
	return o.Responds == nil || slices.Contains(own, path) || o.Responds(path)
}

// confinement is what the daemon needs of the host, for one configuration.
func confinement(o Options, cfg config.Config) confine.Rules {
	r := confine.Rules{
		Work:     []string{aroundState(o.StateDir), o.RuntimeDir, state.PoolLocks},
		Read:     slices.Concat(hostFiles, []string{filepath.Dir(o.Config)}, resolverDirectories()),
		Write:    []string{"/proc/self", "/dev/null", "/sys/fs/selinux"},
		Abstract: strings.HasPrefix(os.Getenv("NOTIFY_SOCKET"), "@"),
		// Without the capability another process is asked (package mountpoint).
		LookUnder: mounts.Permitted(),
		Label:     selinux.Mounted(), // Enabled comes after Landlock
	}
	for _, p := range cfg.Pools {
		r.Work = append(r.Work, workIn(p))
		r.SetGroupID = r.SetGroupID || setsGroupID(p)
		if p.MakesCopies() {
			r.Copy = append(r.Copy, workIn(p))
		}
	}
	slices.Sort(r.Work)
	r.Work = slices.Compact(r.Work)
	files, plugin := kube.Files(cfg.Kubeconfig)
	for _, file := range append(files, cfg.WebFiles()...) {
		r.Read = append(r.Read, around(file)...)
	}
	if plugin != "" { // it and what it runs are programs that nothing is known of
		r.Execute = append(slices.Clone(programDirectories), programDirectory(plugin)...)
		r.Read = append(r.Read, "/proc")
	}
	return r
}

// hostFiles are what resolving names, checking certificates, telling the time and looking at disks
// reads. The unit has all of them read-only: what can be opened can be given to others (fchmod(2)).
// /etc as a whole has the keys of others. SELinux's configuration is looked at by its library.
var hostFiles = []string{
	"/proc/stat", "/proc/filesystems", "/proc/sys", "/sys", "/dev/urandom",
	"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/etc/passwd", "/etc/group", "/etc/localtime", "/usr/share/zoneinfo",
	"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem", "/etc/pki/tls/certs", "/etc/pki/tls/cert.pem", "/etc/pki/tls/cacert.pem", "/etc/pki/ca-trust/extracted",
	"/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/var/lib/ca-certificates", "/etc/selinux", "/run/udev/data", "/etc/projects", "/etc/projid",
}

// resolver are those of hostFiles that are put in place anew while the daemon runs.
var resolver = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"}

var programDirectories = []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt"}

// resolverDirectories are where the resolver's files really are, if those are links: their owners,
// such as systemd-resolved, replace them there.
func resolverDirectories() []string {
	var all []string
	for _, file := range resolver {
		if real, err := filepath.EvalSymlinks(file); err == nil && real != file {
			all = append(all, around(real)...)
		}
	}
	return all
}

func programDirectory(program string) []string {
	found, err := exec.LookPath(program)
	if err != nil {
		return nil
	}
	return []string{filepath.Dir(found)}
}

// aroundState is what holds the state directory and nothing else, so that one that was lost can be
// made again; it has that only where the packages' layout is kept.
func aroundState(dir string) string {
	if filepath.Base(dir) == filepath.Base(state.Directory) && !crowded(filepath.Dir(dir)) {
		return filepath.Dir(dir)
	}
	return dir
}

// around are the directories of a file and of what it links to: a file that is replaced is another
// file to Landlock. Of directories that hold what is others' only the file itself is allowed.
func around(file string) []string {
	var all []string
	real, err := filepath.EvalSymlinks(file)
	for _, one := range []string{file, real} {
		switch dir := filepath.Dir(one); {
		case one == "" || err != nil && one != file:
		case crowded(dir) || slices.Contains(keyDirectories, dir):
			all = append(all, one)
		default:
			all = append(all, dir)
		}
	}
	return all
}

// keyDirectories hold the keys of several programs.
var keyDirectories = []string{"/etc/kubernetes", "/etc/kubernetes/pki", "/etc/pki", "/etc/pki/tls", "/etc/pki/tls/private", "/etc/ssl", "/etc/ssl/private"}

// crowded reports whether a directory itself, or what is around it, holds files of others.
func crowded(dir string) bool {
	return slices.Contains([]string{"/", "/etc", "/home", "/opt", "/root", "/run", "/tmp", "/usr", "/var", "/var/lib", "/var/tmp"}, dir)
}

// systems are trees in which the parent of a pool's mount point is not its alone, however deep.
var systems = []string{"/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var"}

// workIn is the directory that the daemon may work in for a pool: the one in which the mount point
// is. Landlock finds a rule by going up from a file, and from the root of a mount it goes on above
// the mount point (security/landlock/fs.c): so the rule also holds for what is mounted later. Where
// that directory holds more than pools, it is the pool's own; then what is mounted later needs
// another start.
func workIn(p config.Pool) string {
	parent := filepath.Dir(cmp.Or(p.MountPoint, p.Path))
	if !p.RequireMount {
		parent = filepath.Dir(p.Path)
	}
	system := slices.ContainsFunc(systems, func(tree string) bool { return strings.HasPrefix(parent+"/", tree+"/") })
	if crowded(parent) || system && !strings.HasPrefix(parent, "/var/tmp/") {
		return p.Path
	}
	return parent
}

// ConfineLooker is Confine for the process that looks under mount points (package mountpoint) by
// the configuration in this file: it reads that, the mount table, the files that user and group
// names are looked up in, and what the generator kept of an earlier configuration.
func ConfineLooker(file, kept string) (*confine.Confined, error) {
	return confine.Process(confine.Rules{
		Read:      slices.Concat(around(file), []string{"/etc/passwd", "/etc/group", "/etc/localtime", "/proc", kept}),
		LookUnder: true,
	})
}

// confine is Confine with what is told of it.
func (d *daemon) confine(cfg config.Config) {
	var err error
	d.confined, err = Confine(d.Options, cfg)
	if err != nil {
		d.confined = &confine.Confined{Failed: err.Error()}
		d.Log.Error(d.confined.String())
		return
	}
	d.Log.Info(d.confined.String())
}

// Fits reports why a configuration cannot be taken into use by a process that is confined; nil if
// it can.
func Fits(o Options, confined *confine.Confined, cfg config.Config) error {
	if confined == nil || confined.Off || confined.Failed != "" {
		return nil
	}
	if !cfg.Confine {
		return &RestartError{"confine = false comes too late for a daemon that is confined"}
	}
	rules := confinement(o, cfg)
	if rules.SetGroupID && !confined.SetGroupID {
		return &RestartError{"the daemon gave up the right to set the set-group-ID bit, which no pool's mode had when it started"}
	}
	for _, dir := range rules.Copy {
		if !slices.Contains(confined.Copy, dir) {
			return &RestartError{"the daemon gave up the right to make links and FIFOs in " + dir +
				", where no pool with clones or snapshots was when it started"}
		}
	}
	if lacks := confined.Lacks(rules); lacks != "" {
		return &RestartError{lacks + " is outside of what the daemon confined itself to when it started"}
	}
	return nil
}

// RestartError says that what is wanted needs another process.
type RestartError struct{ why string }

func (e *RestartError) Error() string {
	return e.why + ": it has to be restarted"
}

// replaced ends the daemon when a file that it needs was replaced and is out of its reach, so that
// the service manager starts it again; where there is none, it is told once.
func (d *daemon) replaced() {
	if d.confined == nil {
		return
	}
	needed := slices.Concat([]string{d.RuntimeDir, state.PoolLocks}, resolver)
	if g := d.now.Load(); g != nil {
		needed = append(needed, g.cfg.WebFiles()...)
	}
	if file := d.confined.Replaced(needed...); file != "" {
		d.startAgain(&RestartError{file + " was replaced, and Landlock allows the old one"})
	}
}

// startAgain ends this process for another one, if there is a service manager to start it. Why it
// should is told once, however often it is found.
func (d *daemon) startAgain(why *RestartError) {
	if _, told := d.told.LoadOrStore(why.Error(), true); told {
		return
	}
	d.Log.Warn(why.Error())
	if os.Getenv("INVOCATION_ID") != "" {
		d.end(why)
	}
}

// outsideOf returns what a pool's prober calls when reading the pool was denied (prober.Options).
func (d *daemon) outsideOf(p config.Pool) func() string {
	return func() string { return d.outside(workIn(p), p.Path) }
}

// outside returns why a path is out of this process's reach for good, and ends the daemon; "" if it
// is in reach. What is around it may have been absent at the start, or not have responded, as on a
// busy host, and is not allowed then. Where the path alone is allowed, its storage may have come
// later; it looks at mounts that changed since. Where what is around the mount point is, what is
// mounted there later is in reach.
func (d *daemon) outside(allowed, path string) string {
	if d.confined == nil || d.confined.ABI == 0 || d.confined.Has(allowed) && (allowed != path || !d.remounted.Load()) {
		return ""
	}
	why := &RestartError{fmt.Sprintf("%s came after the daemon confined itself", path)}
	if allowed != path {
		why = &RestartError{fmt.Sprintf("%s was absent or did not respond when the daemon confined itself", allowed)}
	}
	d.startAgain(why)
	return why.Error()
}

// capable reports what the configuration needs and the service does not have: systemd reads what
// the generator writes at a daemon-reload. Without it chmod(2) leaves the bit out and reports no
// error.
func capable(cfg config.Config) error {
	needs := slices.IndexFunc(cfg.Pools, func(p config.Pool) bool { return p.Mode&fs.ModeSetgid != 0 })
	if needs < 0 || has(unix.CAP_FSETID) {
		return nil
	}
	return fmt.Errorf("pool %q: %w", cfg.Pools[needs].Name, ErrNotCapable)
}

// ErrNotCapable says that the unit lacks what the configuration needs.
var ErrNotCapable = errors.New("its mode has the set-group-ID bit, for which this process has no CAP_FSETID")

func has(capability int) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return true // a kernel that cannot tell: chmod decides
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0
}
