package config

import (
	"fmt"
	"strings"
)

// tree is a directory of the host that is no place for volumes.
type tree struct {
	deep bool   // nor is anything below it
	why  string // ends the sentence "/x ..."
}

const theSystems = "belongs to the operating system"

// trees are compared with what is configured. Links to them (/var/run) are listed as well, because
// here nothing of the host is looked at.
var trees = map[string]tree{
	"/proc": {true, theSystems}, "/sys": {true, theSystems}, "/dev": {true, theSystems}, "/etc": {true, theSystems},
	"/boot": {true, theSystems}, "/efi": {true, theSystems}, "/usr": {true, theSystems}, "/sysroot": {true, theSystems}, "/ostree": {true, theSystems},
	"/bin": {true, theSystems}, "/sbin": {true, theSystems}, "/lib": {true, theSystems}, "/lib64": {true, theSystems},
	"/": {false, theSystems}, "/root": {false, theSystems}, "/var": {false, theSystems}, "/var/lib": {false, theSystems},
	"/var/log": {false, theSystems}, "/var/cache": {false, theSystems}, "/var/spool": {false, theSystems}, "/home": {false, theSystems},

	"/run": {true, "is emptied by a reboot"}, "/var/run": {true, "is emptied by a reboot"}, "/var/lock": {true, "is emptied by a reboot"},
	"/tmp":     {true, "is emptied by systemd-tmpfiles, and every user can write to it"},
	"/var/tmp": {true, "is emptied by systemd-tmpfiles, and every user can write to it"},

	"/var/lib/kubelet": {true, "belongs to kubelet"}, "/var/lib/k0s/kubelet": {true, "belongs to kubelet"},
	"/var/log/pods": {true, "belongs to kubelet"}, "/var/log/containers": {true, "belongs to kubelet"},
	"/var/lib/rancher/k3s/agent": {true, "belongs to k3s"}, "/var/lib/rancher/k3s/server": {true, "belongs to k3s"}, // its storage is beside them
	"/var/lib/rancher/rke2/agent": {true, "belongs to RKE2"}, "/var/lib/rancher/rke2/server": {true, "belongs to RKE2"},
	"/var/snap/microk8s/common/var": {true, "belongs to MicroK8s"}, "/var/snap/microk8s/common/run": {true, "belongs to MicroK8s"},
	"/var/lib/k0s/containerd": {true, "belongs to k0s"}, "/var/lib/k0s/etcd": {true, "belongs to k0s"},
	"/var/lib/etcd":       {true, "belongs to etcd"},
	"/var/lib/containerd": {true, "belongs to containerd"}, "/var/lib/docker": {true, "belongs to Docker"},
	"/var/lib/containers": {true, "belongs to CRI-O and Podman"},
}

func checkPoolPath(s string) error {
	if err := checkPath(s); err != nil {
		return err
	}
	if t, exact := trees[s]; exact {
		return fmt.Errorf("%q %s", s, t.why)
	}
	for dir, t := range trees {
		if t.deep && under(s, dir) {
			return fmt.Errorf("%q is in %s, which %s", s, dir, t.why)
		}
	}
	return nil
}

// warnMode says what a mode of volumes makes impossible, though it may be meant.
func (l *loader) warnMode(d *draft) {
	mode := d.Mode.Perm()
	switch {
	case d.broken["mode"]:
	case mode&0o111 == 0:
		l.warn(l.where(d, "mode"), "%04o lets no user but root into a volume", mode)
	case mode&0o222 == 0:
		l.warn(l.where(d, "mode"), "%04o lets no user but root write to a volume", mode)
	}
}

// reserveMeant is an amount below which a reserve keeps nothing: a percentage was meant, or a unit
// forgotten.
const reserveMeant = 1 << 20

func (l *loader) warnReserve(d *draft) {
	if d.broken["reserve"] || d.ReserveBytes == 0 || d.ReserveBytes >= reserveMeant {
		return
	}
	at := l.where(d, "reserve")
	written, _ := at.value.(string)
	l.warn(at, "%q is %d bytes; a percentage is written as \"5%%\", an amount as \"10Gi\"", strings.TrimSpace(written), d.ReserveBytes)
}
