package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// writer is a pod with a volume in pool big, and a confined process in its cgroup that writes to it
// without end.
const (
	writer       = "u-4"
	writerCgroup = "/sys/fs/cgroup/kubepods.slice/kubepods-podu_4.slice"
	pausedList   = "/run/hostpath-provisioner-csi/paused.json"
)

// pausedConfined: the driver's domain stops and starts the processes of a pod for the daemon's.
func (p *play) pausedConfined() {
	var snapshots *cluster.Snapshots
	var pv string
	if !p.step("pool big has paused snapshots, as docs/snapshots.md says; sockets of another label are made again", func() (_ string, err error) {
		snapshots = must(p.cluster.Snapshots(p.ctx, p.namespace, p.namespace))
		return p.pausesConfigured()
	}) || !p.step("a confined process of a pod writes to its volume", func() (_ string, err error) {
		pv, err = p.writes()
		return pv, err
	}) {
		return
	}
	defer p.do("echo 1 > " + writerCgroup + "/cgroup.kill; umount /mnt/volume; " + p.call("unpublish", writer, pv))
	p.step("a snapshot is made while it stands still, and it goes on", func() (string, error) {
		content := must(snapshots.Ask(p.ctx, "snap", pv, p.namespace, "Delete"))
		check(p.snapshotReady(snapshots, content))
		check(p.goesOn())
		return p.expect("journalctl --sync; journalctl -u hostpath-provisioner -o cat --no-pager", "nothing ran in the pods that have the volume mounted (1)")
	})
	p.step("what is copied has the label of volumes", func() (string, error) {
		return p.expect("stat -c %C /srv/big/snapshot-*/busy", "system_u:object_r:container_file_t:s0\n")
	})
	p.step("the driver's service is killed while it stands still: it goes on before the service starts again", func() (string, error) { return p.killedPaused(pv) })
}

// pausesConfigured: a policy may have no paths for the sockets of the daemon's requests. The daemon
// is stopped meanwhile: what this one is refused at such sockets is no finding.
func (p *play) pausesConfigured() (string, error) {
	must(p.withKeys("big", `snapshots = "paused"`, `pause_limit = "20s"`))
	sockets := path.Join(kubeletRoot, "plugins", p.namespace, "pause.sock") + " " + path.Join(kubeletRoot, "plugins", p.namespace, "inline.sock")
	must(p.do("systemctl stop hostpath-provisioner && chcon -t container_file_t " + sockets))
	must(p.policy(script + " pools && systemctl restart hostpath-provisioner"))
	return p.expect("ls -Z "+sockets, ":hostpath_provisioner_csi_socket_t:s0 ", "!container_file_t")
}

// writes starts the process, and returns the name of its volume.
func (p *play) writes() (pv string, err error) {
	_, dir := must2(p.bound("big"))
	pv = path.Base(dir)
	_, err = p.doAll(p.call("publish", writer, pv, "big", dir),
		"mount --bind "+path.Join(kubeletRoot, "pods", writer, "volumes/kubernetes.io~csi", pv, "mount")+" /mnt/volume && mkdir -p "+writerCgroup,
		"sh -c 'echo $$ > "+writerCgroup+"/cgroup.procs; exec "+confined+"/mnt/image/busybox sh -c \"while echo x > /mnt/volume/busy; do /mnt/image/busybox usleep 50000; done\"' < /dev/null > /dev/null 2>&1 &")
	if err == nil {
		_, err = p.machine.until(p.ctx, limit, "test -s "+dir+"/busy")
	}
	return pv, err
}

func (p *play) snapshotReady(s *cluster.Snapshots, content string) error {
	ctx, cancel := context.WithTimeout(p.ctx, 2*limit)
	defer cancel()
	var status map[string]any
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (ready bool, err error) {
		status, err = s.Status(ctx, content)
		ready, _ = status["readyToUse"].(bool)
		return ready, err
	})
	if err != nil {
		err = fmt.Errorf("%w; the content's status is %v", err, status)
	}
	return err
}

// goesOn waits until the process writes again, and nothing is told to stand still.
func (p *play) goesOn() error {
	_, err := p.expect("cat "+writerCgroup+"/cgroup.freeze; ls "+pausedList, "0\n", "cannot access")
	_, stands := p.machine.until(p.ctx, limit, "rm -f /mnt/volume/busy; sleep 0.2; test -s /mnt/volume/busy")
	return errors.Join(err, stands)
}

// killedPaused has a process in the daemon's domain hold a pause. The daemon is stopped: its
// requests would start the service. So would systemd.
func (p *play) killedPaused(pv string) (string, error) {
	const (
		daemon = "/usr/local/bin/pauses" // kubelet's stand-in, with the label of the daemon's program
		dropIn = "/run/systemd/system/hostpath-provisioner-csi.service.d"
	)
	must(p.doAll("systemctl stop hostpath-provisioner", "cp "+kubelet+" "+daemon+" && chcon -t hostpath_provisioner_exec_t "+daemon,
		"mkdir -p "+dropIn+" && printf '[Service]\\nRestart=no\\n' > "+dropIn+"/no.conf && systemctl daemon-reload",
		"systemd-run -q --unit=pauses "+daemon+" "+kubeletRoot+" "+p.namespace+" pause big "+pv))
	defer p.do("systemctl stop pauses; rm -r " + dropIn + "; systemctl daemon-reload; systemctl start hostpath-provisioner")
	must(p.machine.until(p.ctx, 2*limit, "journalctl -u pauses -o cat --no-pager | grep 'paused 1' && grep 1 "+writerCgroup+"/cgroup.freeze && grep podu_4 "+pausedList))
	must(p.do("systemctl kill -s KILL hostpath-provisioner-csi.service"))
	must(p.machine.until(p.ctx, limit, "systemctl is-failed hostpath-provisioner-csi.service"))
	check(p.goesOn())
	return p.expect("journalctl --sync; journalctl -u hostpath-provisioner-csi -o cat --no-pager", "1 pods go on that were paused")
}
