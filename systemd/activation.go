package systemd

import (
	"os"
	"path/filepath"

	"github.com/coreos/go-systemd/v22/activation"
)

// SocketMetrics is the name (FileDescriptorName=) of the socket that
// hostpath-provisioner-metrics.socket passes.
const SocketMetrics = "metrics"

// SocketMountpoint is that of the socket that hostpath-provisioner-mountpoint.socket passes.
const SocketMountpoint = "mountpoint"

// SocketCSI is that of the two sockets that hostpath-provisioner-csi.socket passes.
const SocketCSI = "csi"

// Passed is the socket of this name that the manager listens on for this process
// (sd_listen_fds(3)), nil if there is none. It can be asked for once: the environment that tells of
// sockets is cleared, so that no child process takes them for its own; sockets of other names are
// closed.
func Passed(name string) *os.File {
	all := AllPassed(name)
	if len(all) == 0 {
		return nil
	}
	for _, f := range all[1:] {
		f.Close()
	}
	return all[0]
}

// AllPassed is Passed for a name that several sockets have, in the order of the unit's file.
func AllPassed(name string) (found []*os.File) {
	for _, f := range activation.Files(true) {
		if f.Name() == name {
			found = append(found, f)
		} else {
			f.Close()
		}
	}
	return found
}

// CredentialKubeconfig is the name of the credential that hostpath-provisioner.service asks for.
const CredentialKubeconfig = "kubeconfig"

// Credential is the path of a credential that the manager gave to this service (systemd.exec(5),
// CREDENTIALS_DIRECTORY), "" if there is none of this name.
func Credential(name string) string {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	if dir == "" {
		return ""
	}
	file := filepath.Join(dir, name)
	if _, err := os.Lstat(file); err != nil {
		return ""
	}
	return file
}
