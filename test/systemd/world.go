package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

const (
	service   = "hostpath-provisioner"
	node      = "node-a"
	namespace = "default"
	patience  = 60 * time.Second // for one condition: long for a busy machine, short enough to be told
)

// world is what the steps act on.
type world struct {
	ctx     context.Context
	begin   time.Time
	tree    string
	dir     string
	m       *machine
	cluster *cluster.Cluster
	pages   *pages.Pages
}

// step is one line of the story: what has to hold, and how that is found out.
type step struct {
	what string
	do   func(w *world)
}

func (w *world) step(s step) {
	began := time.Now()
	fmt.Printf("[%5.1fs] %s\n", time.Since(w.begin).Seconds(), s.what)
	s.do(w)
	fmt.Printf("         held, %.1fs\n", time.Since(began).Seconds())
}

// prepareMachine makes the machine, and does not boot it.
func (w *world) prepareMachine(pods bool) {
	w.must(hosttest.LoopbackUp(), "the loopback")
	w.must(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""), "keeping mounts to ourselves")
	dir, err := os.MkdirTemp("", "hostpath-systemd-")
	w.must(err, "a directory")
	w.dir = dir
	for _, sub := range []string{"machine", "plane"} {
		w.must(os.Mkdir(filepath.Join(dir, sub), 0o755), "a directory")
	}
	w.m, err = newMachine(w.tree, filepath.Join(dir, "machine"))
	w.must(err, "making the machine")
	w.m.pods = pods
}

// prepare starts what the story of the packages needs: the control plane, and the machine with them.
func (w *world) prepare() {
	w.prepareMachine(false)
	started := make(chan error, 1)
	go func() {
		var err error
		w.cluster, err = cluster.Start(w.ctx, cluster.Options{Dir: filepath.Join(w.dir, "plane")})
		started <- err
	}()
	w.must(w.passPackages("packages", "packages-newer"), "passing the packages")
	w.must(w.m.boot(w.ctx), "booting")
	w.must(<-started, "starting the control plane")
	w.must(w.cluster.AddNode(w.ctx, node, nil), "a Node")
	w.must(w.passKubectl(), "passing kubectl")
}

// passKubectl makes the machine an administrator's.
func (w *world) passKubectl() error {
	if err := copyFile(built("kubectl"), w.m.path("/usr/bin/kubectl"), 0o755); err != nil {
		return fmt.Errorf("%w (build it with: make .build/kubectl)", err)
	}
	config, err := os.ReadFile(w.cluster.Kubeconfig())
	w.put("/root/.kube/config", string(config))
	return err
}

// passPackages copies what was built to where the machine sees it.
func (w *world) passPackages(folders ...string) error {
	for _, folder := range folders {
		if err := os.CopyFS(filepath.Join(w.m.shared, folder), os.DirFS(filepath.Join(rig.Root(), ".build", folder))); err != nil {
			return fmt.Errorf("%w (build them with: make packages)", err)
		}
	}
	return nil
}

// close ends what runs and removes what the namespaces do not.
func (w *world) close() (err error) {
	if w.m != nil {
		err = w.m.close()
	}
	if w.cluster != nil {
		err = errors.Join(err, w.cluster.Stop())
	}
	if w.dir != "" {
		syscall.Unmount(filepath.Join(w.dir, "machine", "root"), syscall.MNT_DETACH)
		syscall.Unmount(filepath.Join(w.dir, "machine"), syscall.MNT_DETACH)
		err = errors.Join(err, os.RemoveAll(w.dir))
	}
	return err
}

// post prints what helps to understand a failure.
func (w *world) post() {
	if w.m == nil || w.m.nspawn == nil {
		return
	}
	commands := []string{
		"systemctl status --no-pager --lines=0 'hostpath-provisioner*'",
		"journalctl --no-pager -o short-precise -n 60",
		"findmnt -R / -o TARGET,SOURCE,FSTYPE,OPTIONS | grep -E 'srv|data'",
	}
	if w.m.pods {
		commands = append(commands, "grep cgroup /proc/mounts", "ctr -n k8s.io images ls -q", "ctr -n k8s.io containers ls",
			"journalctl --no-pager -o cat -u containerd -n 40", "journalctl --no-pager -o cat -u kubelet -n 80",
			"tail -v -n 15 /var/log/pods/*/*/*.log", "kubectl --kubeconfig=/etc/kubernetes/admin.conf get pods,pv,pvc,events -A")
	}
	for _, command := range commands {
		out, _ := w.m.command(context.Background(), "sh", "-c", command).CombinedOutput()
		fmt.Printf("$ %s\n%s", command, out)
	}
}

func (w *world) must(err error, doing string) {
	if err != nil {
		panic(failure(fmt.Sprintf("%s: %v", doing, err)))
	}
}

func (w *world) failf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

// try runs a script in the machine, and answers what it printed and its exit code.
func (w *world) try(script string) (string, int) {
	cmd := w.m.command(w.ctx, "sh", "-euc", script)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		w.must(err, script)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// sh runs a script that has to succeed.
func (w *world) sh(script string) string {
	out, code := w.try(script)
	if code != 0 {
		w.failf("%s: exit code %d\n%s", script, code, out)
	}
	return strings.TrimSpace(out)
}

// fails runs a script that has to fail, and to say this.
func (w *world) fails(script, say string) {
	out, code := w.try(script)
	if code == 0 || !strings.Contains(out, say) {
		w.failf("%s: exit code %d, want another and %q\n%s", script, code, say, out)
	}
}

// says wants all of these in a text.
func (w *world) says(text string, all ...string) {
	for _, want := range all {
		if !strings.Contains(text, want) {
			w.failf("no %q in\n%s", want, text)
		}
	}
}

// is compares what a script prints.
func (w *world) is(script, want string) {
	if got := w.sh(script); got != want {
		w.failf("%s: %q, want %q", script, got, want)
	}
}

// eventually asks again after each short pause: nobody tells when systemd or a directory has changed.
func (w *world) eventually(script, want string) {
	last := ""
	for end := time.Now().Add(patience); time.Now().Before(end) && w.ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if last, _ = w.try(script); strings.Contains(last, want) {
			return
		}
	}
	w.failf("%s: still no %q in %q", script, want, last)
}

// status waits until the service's status line has this.
func (w *world) status(want string) {
	w.eventually("systemctl show -P StatusText "+service, want)
}

// put writes a file in the machine.
func (w *world) put(name, text string) {
	w.must(os.MkdirAll(filepath.Dir(w.m.path(name)), 0o755), "making a folder")
	w.must(os.WriteFile(w.m.path(name), []byte(text), 0o600), "writing "+name)
}

// class makes a StorageClass for a pool.
func (w *world) class(name, pool string) {
	c := cluster.StorageClass(name, service, storagev1.VolumeBindingImmediate)
	c.Parameters = map[string]string{"pool": pool}
	_, err := w.cluster.Client().StorageV1().StorageClasses().Create(w.ctx, c, metav1.CreateOptions{})
	w.must(err, "a StorageClass")
}

// ask creates a claim and does not wait.
func (w *world) ask(name, class string) *corev1.PersistentVolumeClaim {
	c, err := w.cluster.Client().CoreV1().PersistentVolumeClaims(namespace).Create(w.ctx, cluster.Claim(namespace, name, class, "1Mi"), metav1.CreateOptions{})
	w.must(err, "a claim")
	return c
}

// bound waits for a claim and answers its volume's directory.
func (w *world) bound(name string) (directory string) {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	c, err := w.cluster.WaitClaimBound(ctx, namespace, name)
	w.must(err, "claim "+name)
	pv, err := w.cluster.Client().CoreV1().PersistentVolumes().Get(w.ctx, c.Spec.VolumeName, metav1.GetOptions{})
	w.must(err, "the volume of "+name)
	w.sh("test -d " + pv.Spec.HostPath.Path)
	return pv.Spec.HostPath.Path
}

func (w *world) claim(name, class string) (directory string) {
	w.ask(name, class)
	return w.bound(name)
}

// drop deletes a claim and waits until its volume is gone from the API.
func (w *world) drop(name string) {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	claims := w.cluster.Client().CoreV1().PersistentVolumeClaims(namespace)
	c, err := claims.Get(ctx, name, metav1.GetOptions{})
	w.must(err, "claim "+name)
	w.must(claims.Delete(ctx, name, metav1.DeleteOptions{}), "deleting claim "+name)
	w.must(w.cluster.WaitVolumeGone(ctx, c.Spec.VolumeName), "deleting claim "+name)
}
