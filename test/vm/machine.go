package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// layout names what a saved state depends on beside the image: the devices. Change it with them.
const layout = "2: vda root, vdb files of 512 MiB, vdc vdd vde vdf disks, 1536 MiB of memory"

// Disks of the machine, beside the root disk. They are sparse files of these sizes in MiB.
const filesDisk = "files" // a tar that is unpacked in the machine

var disks = []struct {
	name string
	mib  int64
}{{filesDisk, 512}, {"ext4", 1024}, {"xfs", 1024}, {"spare", 1024}, {"log", 1024}}

// machineOptions say what to boot.
type machineOptions struct {
	Image   image
	Root    string // the root disk, a qcow2 file; made over Backing if it is missing
	Backing string // another disk's file
	Dir     string // for disks and sockets
	State   string // a saved state to start from in place of a boot
	Kernel  string // more words for the kernel's command line
}

// machine is a running qemu with its agent.
type machine struct {
	opt    machineOptions
	child  *process.Child
	exited chan struct{} // closed when its output is kept, too
	agent  net.Conn

	mu      sync.Mutex
	last    int
	waiting map[int]chan response
	ready   chan struct{} // closed when the agent said that it is there
}

type response struct {
	ID     int    `json:"id"`
	Output string `json:"output"`
	Code   int    `json:"code"`
}

// boot starts the machine and waits for its agent.
func boot(ctx context.Context, o machineOptions) (*machine, error) {
	if err := o.makeDisks(ctx); err != nil {
		return nil, err
	}
	m := &machine{opt: o, exited: make(chan struct{}), waiting: map[int]chan response{}, ready: make(chan struct{})}
	for _, name := range []string{"agent.sock", "qmp.sock"} {
		os.Remove(filepath.Join(o.Dir, name))
	}
	if err := m.launch(); err != nil {
		return nil, err
	}
	err := m.connect(ctx)
	if err == nil && o.State != "" {
		err = m.resume()
	}
	if err == nil {
		err = m.greet(ctx)
	}
	if err != nil {
		m.kill()
		return nil, fmt.Errorf("%w; the console:\n%s", err, m.console())
	}
	return m, nil
}

func (o machineOptions) makeDisks(ctx context.Context) error {
	for _, d := range disks {
		file, err := os.OpenFile(o.disk(d.name), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		err = errors.Join(file.Truncate(d.mib<<20), file.Close())
		if err != nil {
			return err
		}
	}
	if _, err := os.Stat(o.Root); err == nil {
		return nil
	}
	backing, format := o.Backing, "raw"
	if filepath.Dir(o.Root) == filepath.Dir(backing) {
		backing = filepath.Base(backing) // because the directory may get its final name later
	}
	if strings.HasSuffix(o.Backing, ".qcow2") {
		format = "qcow2"
	}
	out, err := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-b", backing, "-F", format, o.Root).CombinedOutput()
	if err != nil {
		return fmt.Errorf("qemu-img: %w\n%s", err, out)
	}
	return nil
}

func (o machineOptions) disk(name string) string { return filepath.Join(o.Dir, name+".disk") }

// arguments of qemu. Its block layer writes through to this host's page cache (cache=writeback), so
// that killing it loses what the guest had not written, as a power cut does.
func (o machineOptions) arguments() []string {
	socket := func(name string) string {
		return "socket,id=" + name + ",server=on,wait=off,path=" + filepath.Join(o.Dir, name+".sock")
	}
	args := []string{
		"-accel", "tcg,thread=multi", "-cpu", "Nehalem", "-m", "1536", "-smp", "2", "-nodefaults", "-display", "none", "-no-reboot",
		"-kernel", o.Image.file("vmlinuz"), "-initrd", o.Image.file("initrd"),
		// Debian's kernel has no selinux=; without AppArmor the slot is SELinux's. The check of the
		// timer's interrupt counts on a processor of its own: on a busy host it fails, and the
		// kernel panics.
		"-append", "console=ttyS0 no_timer_check tsc=reliable mitigations=off quiet loglevel=4 net.ifnames=0 audit=1 panic=1 " + o.kernel(),
		"-serial", "file:" + filepath.Join(o.Dir, "console.log"),
		"-device", "virtio-rng-pci",
		"-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=",
		"-device", "virtio-serial-pci", "-chardev", socket("agent"), "-device", "virtserialport,chardev=agent,name=test",
		"-chardev", socket("qmp"), "-mon", "chardev=qmp,mode=control",
		"-drive", "file=" + o.Root + ",if=virtio,format=qcow2,cache=writeback",
	}
	for _, d := range disks {
		args = append(args, "-drive", "file="+o.disk(d.name)+",if=virtio,format=raw,cache=writeback")
	}
	if o.State != "" {
		args = append(args, "-S", "-incoming", "exec:cat "+o.State)
	}
	return args
}

func (o machineOptions) kernel() string {
	if strings.Contains(o.Kernel, "apparmor=") {
		return o.Kernel
	}
	return strings.TrimSpace("apparmor=0 " + o.Kernel)
}

// launch starts qemu. What it printed is in qemu.log when it has ended.
func (m *machine) launch() error {
	cmd := exec.Command("qemu-system-x86_64", m.opt.arguments()...)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	var err error
	if m.child, err = process.Start(cmd); err != nil {
		return err
	}
	go func() {
		<-m.child.Exited()
		if output.Len() > 0 {
			os.WriteFile(filepath.Join(m.opt.Dir, "qemu.log"), []byte(output.String()), 0o600)
		}
		close(m.exited)
	}()
	return nil
}

func (m *machine) connect(ctx context.Context) error {
	agent, err := m.dial(ctx, "agent.sock")
	if err != nil {
		return err
	}
	m.agent = agent
	go m.listen(bufio.NewReader(agent))
	return nil
}

// dial waits for the socket that qemu makes.
func (m *machine) dial(ctx context.Context, name string) (net.Conn, error) {
	for {
		conn, err := net.Dial("unix", filepath.Join(m.opt.Dir, name))
		if err == nil {
			return conn, nil
		}
		select {
		case <-m.exited:
			said, _ := os.ReadFile(filepath.Join(m.opt.Dir, "qemu.log"))
			return nil, fmt.Errorf("qemu ended: %s", said)
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond): // there is no event for a socket that appears
		}
	}
}

func (m *machine) listen(lines *bufio.Reader) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var a response
		if json.Unmarshal([]byte(line), &a) != nil {
			continue
		}
		m.mu.Lock()
		if a.ID == 0 {
			select {
			case <-m.ready:
			default:
				close(m.ready)
			}
		} else if waits := m.waiting[a.ID]; waits != nil {
			waits <- a
			delete(m.waiting, a.ID)
		}
		m.mu.Unlock()
	}
}

// greet waits for the agent, brings the network up and sets the clock, which a saved state has from
// the day it was saved.
func (m *machine) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	if m.opt.State == "" {
		select {
		case <-m.ready:
		case <-m.exited:
			return errors.New("the machine ended while it booted")
		case <-ctx.Done():
			return fmt.Errorf("waiting for the agent: %w", ctx.Err())
		}
	}
	_, err := m.do(ctx, fmt.Sprintf("date -s @%d >/dev/null; ip link set eth0 up; ip -br addr show eth0 | grep -q 10.0.2.15 || ip addr add 10.0.2.15/24 dev eth0", time.Now().Unix()))
	return err
}

// ask runs a shell command in the machine, as a root shell would (unconfined_t), and returns what
// it printed and its exit code.
func (m *machine) ask(ctx context.Context, command string) (string, int, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
	}
	m.mu.Lock()
	m.last++
	id, waits := m.last, make(chan response, 1)
	m.waiting[id] = waits
	line, _ := json.Marshal(map[string]any{"id": id, "command": command})
	_, err := m.agent.Write(append(line, '\n'))
	m.mu.Unlock()
	if err != nil {
		return "", 0, err
	}
	select {
	case a := <-waits:
		return a.Output, a.Code, nil
	case <-m.exited:
		return "", 0, fmt.Errorf("the machine ended during: %s", command)
	case <-ctx.Done():
		return "", 0, fmt.Errorf("%w: no response to: %s", ctx.Err(), command)
	}
}

// do is ask for a command that has to succeed.
func (m *machine) do(ctx context.Context, command string) (string, error) {
	out, code, err := m.ask(ctx, command)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s\n%s", code, command, strings.TrimSpace(out))
	}
	return strings.TrimRight(out, "\n"), err
}

// until asks again and again until the command succeeds.
func (m *machine) until(ctx context.Context, limit time.Duration, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		out, err := m.do(ctx, command)
		if err == nil {
			return out, nil
		}
		if ctx.Err() != nil {
			return "", errors.Join(err, last)
		}
		last = err
	}
}

// kill cuts the power.
func (m *machine) kill() {
	_ = m.child.Kill()
	<-m.exited
	if m.agent != nil {
		m.agent.Close()
	}
}

// powerOff shuts the machine down as an operator does.
func (m *machine) powerOff(ctx context.Context) error {
	go m.ask(ctx, "systemctl poweroff")
	select {
	case <-m.exited:
		m.agent.Close()
		return nil
	case <-time.After(2 * time.Minute):
		m.kill()
		return errors.New("the machine did not shut down in 2 minutes")
	}
}

func (m *machine) console() string {
	data, _ := os.ReadFile(filepath.Join(m.opt.Dir, "console.log"))
	lines := strings.Split(string(data), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// monitor talks QMP (qemu's docs/interop/qmp-spec): a line of JSON for each command and response.
type monitor struct {
	net.Conn
	lines *bufio.Reader
}

func (m *machine) monitor() (*monitor, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := m.dial(ctx, "qmp.sock")
	if err != nil {
		return nil, err
	}
	q := &monitor{conn, bufio.NewReader(conn)}
	conn.SetDeadline(time.Now().Add(3 * time.Minute))
	if _, err := q.call("qmp_capabilities", nil); err != nil {
		conn.Close()
		return nil, err
	}
	return q, nil
}

// call sends a command and returns its result; events that come in between are dropped. A text is a
// complaint, of human-monitor-command.
func (q *monitor) call(command string, arguments any) (map[string]any, error) {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	line, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	if _, err := q.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	for {
		line, err := q.lines.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
		var reply struct {
			Return any              `json:"return"`
			Error  *json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(line, &reply); err != nil {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
		if reply.Error != nil {
			return nil, fmt.Errorf("%s: %s", command, *reply.Error)
		}
		if reply.Return != nil {
			if said, _ := reply.Return.(string); said != "" {
				err = fmt.Errorf("%s: %s", command, said)
			}
			fields, _ := reply.Return.(map[string]any)
			return fields, err
		}
	}
}

// until calls until the response's status is this one.
func (q *monitor) until(command, status string) error {
	for {
		reply, err := q.call(command, nil)
		if err != nil {
			return err
		}
		switch reply["status"] {
		case status:
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("%s: %v", command, reply)
		}
		time.Sleep(20 * time.Millisecond) // between two questions
	}
}

// save stops the machine and writes its state, without its disks.
func (m *machine) save(file string) error {
	q, err := m.monitor()
	if err != nil {
		return err
	}
	defer q.Close()
	if _, err := q.call("stop", nil); err != nil {
		return err
	}
	if _, err := q.call("migrate", map[string]any{"uri": "exec:cat > " + file}); err != nil {
		return err
	}
	if err := q.until("query-migrate", "completed"); err != nil {
		return err
	}
	_, err = q.call("quit", nil)
	<-m.exited
	return err
}

// resume lets a machine go on whose state was read.
func (m *machine) resume() error {
	q, err := m.monitor()
	if err != nil {
		return err
	}
	defer q.Close()
	if err := q.until("query-status", "paused"); err != nil {
		return err
	}
	_, err = q.call("cont", nil)
	return err
}
