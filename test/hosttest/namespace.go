package hosttest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// Namespace is a mount namespace of its own, as another machine has. It ends with the test.
type Namespace struct {
	t      T
	holder *process.Child
}

// NewNamespace makes a mount namespace with a copy of everything that is mounted here now. What is
// mounted later, in either, is not seen in the other. The setup is shell commands, which run in the
// namespace.
func NewNamespace(t interface {
	T
	Cleanup(func())
}, setup string) *Namespace {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-ec", setup+"\necho ready\nexec sleep infinity")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	Check(t, err)
	holder, err := process.Start(cmd)
	Check(t, err)
	t.Cleanup(func() { _ = holder.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("a mount namespace: %q, %v", line, err)
	}
	return &Namespace{t: t, holder: holder}
}

// Enter is the words before a command that make it run in the namespace. nsenter becomes the
// command (execve(2)).
func (n *Namespace) Enter() []string {
	return []string{"nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", n.holder.PID()), "--"}
}

// Command is a command in the namespace.
func (n *Namespace) Command(args ...string) *exec.Cmd {
	args = append(n.Enter(), args...)
	return exec.Command(args[0], args[1:]...)
}

// Run runs a command in the namespace, which must succeed.
func (n *Namespace) Run(args ...string) {
	n.t.Helper()
	args = append(n.Enter(), args...)
	run(n.t, args[0], args[1:]...)
}

// Path is a path in the namespace as this process can reach it.
func (n *Namespace) Path(elem ...string) string {
	return filepath.Join(append([]string{fmt.Sprintf("/proc/%d/root", n.holder.PID())}, elem...)...)
}

// LoopbackUp brings up the loopback interface of a new network namespace, as ip link set lo up
// does.
func LoopbackUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bringing the loopback interface up: %w", err)
	}
	return nil
}

// KubeletSysctls are what a kubelet sets at its start (setupKernelTunables in pkg/kubelet/cm), below
// /proc/sys. They belong to the whole machine: a node that is made on it has files in their place
// that hold what it wants.
var KubeletSysctls = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}
