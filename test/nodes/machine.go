package nodes

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// machine is a node without its software: a mount and a UTS namespace, held by a process.
type machine struct {
	name   string
	holder *logged
	stdin  io.Closer // the holder ends with it
}

const machineDirEnv, machineNameEnv = "HOSTPATH_NODES_DIR", "HOSTPATH_NODES_NAME"

// private are the directories of which each node has its own, empty and on tmpfs. The rest of the
// root filesystem is the machine's; nothing here writes to it.
var private = []string{"/run", "/var", "/srv"}

// newMachine makes the namespaces. dir is for its log and the files that stand for sysctls.
func newMachine(name, dir string) (*machine, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), stageEnv+"="+stageMachine, machineNameEnv+"="+name, machineDirEnv+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m := &machine{name: name, stdin: stdin}
	if m.holder, err = launch(cmd, filepath.Join(dir, "machine.log")); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		return nil, fmt.Errorf("making the namespaces of %s: %q %v\n%s", name, line, err, m.holder.tail(5))
	}
	return m, nil
}

// beMachine is the holder's part.
func beMachine() error {
	if err := syscall.Sethostname([]byte(os.Getenv(machineNameEnv))); err != nil {
		return fmt.Errorf("sethostname: %w", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	for _, dir := range private {
		if err := syscall.Mount("node", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mounting a tmpfs on %s: %w", dir, err)
		}
	}
	for _, dir := range []string{"/var/lib", "/var/log", "/var/tmp"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("/run", "/var/run"); err != nil {
		return err
	}
	if err := shieldSysctls(os.Getenv(machineDirEnv)); err != nil {
		return err
	}
	if err := beFirst(); err != nil {
		return err
	}
	// Shared, as systemd has them: containers then get what they would on a real host.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing mounts: %w", err)
	}
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// beFirst puts the holder's /proc directory in the place of the first process's. A host's
// namespaces are those of its process 1, and a privileged pod enters them by /proc/1/ns, as
// Kubernetes' own tests do.
func beFirst() error {
	if err := syscall.Mount(fmt.Sprintf("/proc/%d", os.Getpid()), "/proc/1", "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("standing for process 1: %w", err)
	}
	return nil
}

func shieldSysctls(dir string) error {
	for name, value := range hosttest.KubeletSysctls {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := syscall.Mount(file, "/proc/sys/"+name, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("covering sysctl %s: %w", name, err)
		}
	}
	return nil
}

// command is a call of a program in the machine's namespaces.
func (m *machine) command(argv ...string) *exec.Cmd {
	return exec.Command("nsenter", append(m.enter(), argv...)...)
}

// enter are nsenter(1)'s arguments. It executes the program in its own place, so that the process
// id and the parent-death signal are the program's.
func (m *machine) enter() []string {
	return []string{fmt.Sprintf("--target=%d", m.holder.PID()), "--mount", "--uts", "--"}
}

// call runs a program in the machine's namespaces and returns what it printed.
func (m *machine) call(argv ...string) (string, error) {
	out, err := m.command(argv...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w\n%s", m.name, strings.Join(argv, " "), err, out)
	}
	return string(out), nil
}

// path is the test's path of a file of the machine.
func (m *machine) path(elem ...string) string {
	return filepath.Join(append([]string{fmt.Sprintf("/proc/%d/root", m.holder.PID())}, elem...)...)
}
