// Command systemd installs the built packages on a booted Debian, in a container of systemd-nspawn,
// and tells step by step what an operator does there, by the commands of the documents: configure,
// prepare, start, provision against a real control plane with a real kubectl, reload, unmount,
// reboot, upgrade, remove, purge. It exits 0 only if every step held.
//
// The container is a systemd of its own on a throwaway overlay over a cached tree of Debian
// packages, in a network namespace where there is only the loopback and the control plane. Nothing
// of the machine is changed but that cache. It will not show SELinux, udev or a real disk that
// vanishes: test/vm does.
//
// With the argument kubeadm it tells another story: kubeadm makes the cluster in there, and a pod
// runs. With repository it is that of apt and dnf, with ansible that of three machines and the
// role, with sysext that of a system whose /usr is an image's, with cockpit that of the page for
// Cockpit.
//
// What it was seen to catch, each by breaking the product once, is listed at the steps
// (steps_*.go).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

const insideEnv = "HOSTPATH_SYSTEMD_INSIDE"

// limit is for everything but the building of the tree: long for a machine with other work.
const limit = 40 * time.Minute

func main() {
	if os.Getenv(insideEnv) == "" {
		os.Exit(isolate())
	}
	os.Exit(run())
}

// isolate starts this program again in namespaces for mounts and network. Its standard streams are
// pipes or files at most times, so nothing is done for a terminal.
func isolate() int {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "systemd: this boots a container and needs root")
		return 1
	}
	tree, err := findTree(os.Stdout, chosen().tree)
	if err != nil {
		fmt.Fprintln(os.Stderr, "systemd:", err)
		return 1
	}
	cmd := process.Self(insideEnv + "=" + tree)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM) // the child ends by it, and this waits
	child, err := process.Start(cmd)
	if err == nil {
		err = child.Wait()
	}
	return process.ExitCode("systemd", err)
}

func run() int {
	ctx, stop := harness.Interruptible()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return harness.Run(ctx, "systemd", play)
}

// play is the whole program.
func play(ctx context.Context, p *harness.Program) {
	e := &environment{Program: p, ctx: ctx, tree: os.Getenv(insideEnv), pages: pages.Open(rig.Root())}
	p.Cleanup(e.close)
	p.OnFatal(e.post)
	s := chosen()
	s.prepare(e)
	for _, one := range s.steps {
		e.step(one)
	}
	fmt.Printf("%d steps held, in %s\n", len(s.steps), p.Elapsed().Round(time.Second))
}

// tale is a story, on what it is told and how it begins.
type tale struct {
	tree    inputs
	prepare func(e *environment)
	steps   []step
}

// chosen is the one that the command line asks for.
func chosen() tale {
	switch strings.Join(os.Args[1:], " ") {
	case "kubeadm":
		// A container runtime, and its network plugins.
		tree := base.with("containerd", "runc", "containernetworking-plugins", "iproute2",
			"busybox-static", "kmod")
		return tale{tree, (*environment).prepareZero, zero}
	case "repository":
		// dnf, and what the page fetches a file with.
		return tale{base.with("dnf", "gnupg", "curl"), (*environment).prepareRepositories, repositories}
	case "ansible":
		// What an administrator reaches a host by.
		tree := base.with("openssh-server", "sudo", "python3", "python3-apt")
		return tale{tree, (*environment).prepareFleet, fleet}
	case "sysext":
		return tale{base, withPackages("packages", "packages-newer"), extended}
	case "cockpit":
		// Cockpit with its shell, and what makes a user an administrator there.
		tree := base.with("cockpit-ws", "cockpit-bridge", "cockpit-system", "sudo")
		return tale{tree, withPackages("packages", "cockpit"), cockpitStory}
	}
	return tale{base, withPackages("packages", "packages-newer"), story}
}

const (
	service   = "hostpath-provisioner"
	node      = "node-a"
	namespace = "default"
	timeout   = 2 * time.Minute // for one condition: long for a busy machine, short enough to be told
)

// environment is what the steps act on.
type environment struct {
	*harness.Program
	ctx     context.Context
	tree    string
	dir     string
	m       *machine   // on which the steps act at present
	all     []*machine // with several
	cluster *cluster.Cluster
	pages   *pages.Pages

	published *published // with repositories
}

// step is one line of the story: what has to hold, and how that is found out.
type step struct {
	what string
	do   func(e *environment)
}

func (e *environment) step(s step) {
	began := time.Now()
	fmt.Printf("[%5.1fs] %s\n", e.Elapsed().Seconds(), s.what)
	s.do(e)
	fmt.Printf("         held, %.1fs\n", time.Since(began).Seconds())
}

// prepareMachine makes the machine, and does not boot it.
func (e *environment) prepareMachine(pods bool) {
	e.Must(hosttest.LoopbackUp(), "the loopback")
	e.Must(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""), "keeping mounts to ourselves")
	e.Must(ownNspawn(), "a directory of systemd-nspawn's own")
	dir, err := os.MkdirTemp("", "hostpath-systemd-")
	e.Must(err, "a directory")
	e.dir = dir
	e.Must(os.Mkdir(filepath.Join(dir, "plane"), 0o755), "a directory")
	e.addMachine(node)
	e.m.pods = pods
}

// ownNspawn hides what systemd-nspawn keeps of each container by its name: one of the same name, of
// another run of this program, ends this one as it boots.
func ownNspawn() error {
	const kept = "/run/systemd/nspawn"
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return err
	}
	return syscall.Mount("machine", kept, "tmpfs", 0, "mode=0755")
}

// addMachine makes one, on which the steps act from then on.
func (e *environment) addMachine(name string) {
	dir := filepath.Join(e.dir, name)
	e.Must(os.Mkdir(dir, 0o755), "a directory")
	m, err := newMachine(e.tree, dir, name)
	e.Must(err, "making the machine")
	e.m, e.all = m, append(e.all, m)
}

// withPackages starts what a story of packages needs: the control plane, and the machine with them.
func withPackages(folders ...string) func(*environment) {
	return func(e *environment) {
		e.prepareMachine(false)
		started := e.startCluster()
		e.Must(e.passPackages(folders...), "passing the packages")
		e.Must(e.m.boot(e.ctx), "booting")
		e.Must(<-started, "starting the control plane")
		e.Must(e.cluster.AddNode(e.ctx, node, nil), "a Node")
		e.Must(e.passKubectl(), "passing kubectl")
	}
}

// startCluster starts the control plane, which is there after the channel's value.
func (e *environment) startCluster() <-chan error {
	started := make(chan error, 1)
	go func() {
		var err error
		e.cluster, err = cluster.Start(e.ctx, cluster.Options{Dir: filepath.Join(e.dir, "plane")})
		started <- err
	}()
	return started
}

// passKubectl makes the machine an administrator's.
func (e *environment) passKubectl() error {
	if err := copyFile(built("kubectl"), e.m.path("/usr/bin/kubectl"), 0o755); err != nil {
		return fmt.Errorf("%w (build it with: make .build/kubectl)", err)
	}
	config, err := os.ReadFile(e.cluster.Kubeconfig())
	e.put("/root/.kube/config", string(config))
	return err
}

// passPackages copies what was built to where the machine sees it.
func (e *environment) passPackages(folders ...string) error {
	for _, folder := range folders {
		if err := os.CopyFS(filepath.Join(e.m.shared, folder), os.DirFS(filepath.Join(rig.Root(), ".build", folder))); err != nil {
			return fmt.Errorf("%w (build them with: make packages)", err)
		}
	}
	return nil
}

// close ends what runs and removes what the namespaces do not.
func (e *environment) close() (err error) {
	for _, m := range e.all {
		err = errors.Join(err, m.close())
	}
	if e.cluster != nil {
		err = errors.Join(err, e.cluster.Stop())
	}
	if e.dir != "" {
		for _, m := range e.all {
			syscall.Unmount(m.root, syscall.MNT_DETACH)
			syscall.Unmount(m.dir, syscall.MNT_DETACH)
		}
		err = errors.Join(err, os.RemoveAll(e.dir))
	}
	return err
}

// post prints what helps to understand a failure.
func (e *environment) post() {
	if e.m == nil || e.m.nspawn == nil {
		return
	}
	if e.m.leader() == 0 {
		console, _ := os.ReadFile(filepath.Join(e.m.dir, "console"))
		fmt.Printf("its console:\n%s", console)
		return
	}
	commands := []string{
		"systemctl status --no-pager --lines=0 'hostpath-provisioner*'",
		"journalctl --no-pager -o short-precise -n 60",
		"findmnt -R / -o TARGET,SOURCE,FSTYPE,OPTIONS | grep -E 'srv|data'",
	}
	if e.m.pods {
		commands = append(commands, "grep cgroup /proc/mounts", "ctr -n k8s.io images ls -q", "ctr -n k8s.io containers ls",
			"journalctl --no-pager -o cat -u containerd -n 40", "journalctl --no-pager -o cat -u kubelet -n 80",
			"tail -v -n 15 /var/log/pods/*/*/*.log", "kubectl --kubeconfig=/etc/kubernetes/admin.conf get pods,pv,pvc,events -A")
	}
	for _, command := range commands {
		out, _ := e.m.command(context.Background(), "sh", "-c", command).CombinedOutput()
		fmt.Printf("$ %s\n%s", command, out)
	}
}

// try runs a script in the machine, and returns what it printed and its exit code.
func (e *environment) try(script string) (string, int) {
	cmd := e.m.command(e.ctx, "sh", "-euc", script)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		e.Must(err, script)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// sh runs a script that has to succeed.
func (e *environment) sh(script string) string {
	out, code := e.try(script)
	if code != 0 {
		e.Fatalf("%s: exit code %d\n%s", script, code, out)
	}
	return strings.TrimSpace(out)
}

// fails runs a script that has to fail, and to say this.
func (e *environment) fails(script, say string) {
	out, code := e.try(script)
	if code == 0 || !strings.Contains(out, say) {
		e.Fatalf("%s: exit code %d, want another and %q\n%s", script, code, say, out)
	}
}

// says wants all of these in a text.
func (e *environment) says(text string, all ...string) {
	for _, want := range all {
		if !strings.Contains(text, want) {
			e.Fatalf("no %q in\n%s", want, text)
		}
	}
}

// is compares what a script prints.
func (e *environment) is(script, want string) {
	if got := e.sh(script); got != want {
		e.Fatalf("%s: %q, want %q", script, got, want)
	}
}

// eventually asks again after each short pause: no event tells that systemd or a directory has
// changed.
func (e *environment) eventually(script, want string) {
	last := ""
	for end := time.Now().Add(timeout); time.Now().Before(end) && e.ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if last, _ = e.try(script); strings.Contains(last, want) {
			return
		}
	}
	e.Fatalf("%s: still no %q in %q", script, want, last)
}

// journal is the beginning of a command that reads the journal with all that was written before.
const journal = "journalctl --sync; journalctl --no-pager "

// unmount unmounts the pool. A daemon that looks into it keeps it busy for a moment, and for no
// longer.
func (e *environment) unmount() { e.eventually("umount /srv/fast && echo unmounted", "unmounted") }

// status waits until the service's status line has this.
func (e *environment) status(want string) {
	e.eventually("systemctl show -P StatusText "+service, want)
}

// put writes a file in the machine.
func (e *environment) put(name, text string) {
	e.Must(os.MkdirAll(filepath.Dir(e.m.path(name)), 0o755), "making a folder")
	e.Must(os.WriteFile(e.m.path(name), []byte(text), 0o600), "writing "+name)
}

// class makes a StorageClass for a pool.
func (e *environment) class(name, pool string) {
	c := cluster.StorageClass(name, service, storagev1.VolumeBindingImmediate)
	c.Parameters = map[string]string{"pool": pool}
	_, err := e.cluster.Client().StorageV1().StorageClasses().Create(e.ctx, c, metav1.CreateOptions{})
	e.Must(err, "a StorageClass")
}

// ask creates a claim and does not wait.
func (e *environment) ask(name, class string) *corev1.PersistentVolumeClaim {
	c, err := e.cluster.Client().CoreV1().PersistentVolumeClaims(namespace).Create(e.ctx, cluster.Claim(namespace, name, class, "1Mi"), metav1.CreateOptions{})
	e.Must(err, "a claim")
	return c
}

// bound waits for a claim and returns its volume's directory.
func (e *environment) bound(name string) (directory string) {
	ctx, cancel := context.WithTimeout(e.ctx, timeout)
	defer cancel()
	c, err := e.cluster.WaitClaimBound(ctx, namespace, name)
	e.Must(err, "claim "+name)
	pv, err := e.cluster.Client().CoreV1().PersistentVolumes().Get(e.ctx, c.Spec.VolumeName, metav1.GetOptions{})
	e.Must(err, "the volume of "+name)
	directory = cluster.PathOf(pv)
	e.sh("test -d " + directory)
	return directory
}

func (e *environment) claim(name, class string) (directory string) {
	e.ask(name, class)
	return e.bound(name)
}

// drop deletes a claim and waits until its volume is gone from the API.
func (e *environment) drop(name string) {
	ctx, cancel := context.WithTimeout(e.ctx, timeout)
	defer cancel()
	claims := e.cluster.Client().CoreV1().PersistentVolumeClaims(namespace)
	c, err := claims.Get(ctx, name, metav1.GetOptions{})
	e.Must(err, "claim "+name)
	e.Must(claims.Delete(ctx, name, metav1.DeleteOptions{}), "deleting claim "+name)
	e.Must(e.cluster.WaitVolumeGone(ctx, c.Spec.VolumeName), "deleting claim "+name)
}
