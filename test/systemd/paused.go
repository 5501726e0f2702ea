package main

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/pause"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
)

// The pods that have the volume, and where a kubelet makes their cgroups: with the driver systemd,
// and with cgroupfs.
const (
	writerPod, readerPod       = "u-writes", "u-waits"
	writerCgroup, readerCgroup = cgroupMount + "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu_writes.slice", cgroupMount + "/kubepods/besteffort/podu-waits"
)

// writes is what runs in a pod: of the two numbers the second is never ahead.
const writes = `cd "$1"
mkdir first many last
printf 100000000 >first/number
printf 100000000 >last/number
for n in $(seq 1000); do : >many/$n; done
i=100000000
while :; do i=$((i + 1)); printf $i 1<>first/number; printf $i 1<>last/number; done
`

// pausedSnapshots has the node service, in its unit, stop pods for a snapshot, and systemd have
// them go on. It fails without ExecStopPost=.
func pausedSnapshots(e *environment) {
	v := e.stillPool()
	k := e.kubelet(service)
	for _, pod := range []string{writerPod, readerPod} {
		e.publishVolume(k, pod, v)
	}
	e.runPods(v)
	api, err := e.cluster.Snapshots(e.ctx, namespace, service)
	e.Must(err, "the resources of snapshots")
	e.Must(api.Class(e.ctx, "paused", map[string]any{"consistency": "paused"}), "a VolumeSnapshotClass")
	e.ofOneMoment(api, v)
	e.killedWhilePaused(api, v)
	e.publishVolume(k, writerPod, v) // with the service that was killed
	e.stoppedWhilePaused(v)
	e.sh("systemctl stop writer; echo 1 >" + readerCgroup + "/cgroup.kill; systemctl stop kubepods.slice")
	e.eventually("find "+cgroupMount+"/kubepods -depth -type d -delete && echo gone", "gone")
	for _, pod := range []string{writerPod, readerPod} {
		e.unpublishVolume(k, pod, v)
	}
	e.withoutStillPool()
}

// stillPool makes a pool on xfs as the page has it, and a volume in it.
func (e *environment) stillPool() csinode.Volume {
	const page = "snapshots.md"
	for _, args := range [][]string{{"truncate", "-s", "320M"}, {"mkfs.xfs", "-q"}} {
		out, err := exec.CommandContext(e.ctx, args[0], append(args[1:], e.m.path("/images/still"))...).CombinedOutput()
		e.Must(err, string(out))
	}
	blocks, err := e.pages.Take(page, "Snapshots", "toml", 1)
	e.Must(err, "the documentation")
	// A busy machine has as long as there can be.
	e.put(site, strings.NewReplacer("pool.fast", "pool.still", "/srv/fast", "/srv/still", `"5s"`, `"20s"`).Replace(blocks[0].Text))
	e.sh("hostpath-provisioner prepare still; mount -o loop /images/still /srv/still; hostpath-provisioner prepare still")
	e.docs(page, "Snapshots")
	e.status("3 of 3 pools open")
	e.class("still", "still")
	dir := e.claim("still", "still")
	return csinode.Of(strings.TrimPrefix(dir, "/srv/still/"), "still", dir)
}

// runPods starts a process in the cgroup of each pod.
func (e *environment) runPods(v csinode.Volume) {
	e.put("/writes", writes)
	e.sh("systemd-run --quiet --collect --unit=writer --slice=kubepods-besteffort-podu_writes.slice sh /writes " + target(writerPod, v))
	e.sh("mkdir -p " + readerCgroup + "/c; cd " + target(readerPod, v) + "; echo $$ >" + readerCgroup + "/c/cgroup.procs; sleep infinity >/dev/null 2>&1 &")
	e.eventually("cat "+writerCgroup+"/cgroup.events "+readerCgroup+"/cgroup.events | grep -c 'populated 1'", "2")
	e.eventually("test $(cat "+target(readerPod, v)+"/last/number) -gt 100000000 && echo writes", "writes")
}

// frozen wants both pods to stand still, or both to run.
func (e *environment) frozen(want string) {
	e.is("cat "+writerCgroup+"/cgroup.events "+readerCgroup+"/cgroup.events | grep frozen | tr -d '\\n'", "frozen "+want+"frozen "+want)
}

// goesOn wants the pod to write.
func (e *environment) goesOn(v csinode.Volume) {
	number := "$(cat " + target(readerPod, v) + "/last/number)"
	e.eventually("test "+number+" -gt "+e.sh("echo "+number)+" && echo writes", "writes")
}

// ofOneMoment makes a VolumeSnapshot.
func (e *environment) ofOneMoment(api *cluster.Snapshots, v csinode.Volume) {
	content, err := api.Ask(e.ctx, "still", v.PV, "paused", "Delete")
	e.Must(err, "a VolumeSnapshot")
	e.eventually(statusOf(content), `"readyToUse":true`)
	e.says(e.sh(journal+"-o cat -b -u "+service), "all files of one moment", "nothing ran in the pods that have the volume mounted (2)")
	e.frozen("0")
	e.is("cd /srv/still/snapshot-*; n=$(($(cat first/number) - $(cat last/number))); test $n = 0 || test $n = 1 || echo $n", "")
	e.goesOn(v)
	e.removeSnapshot(api, "still", content)
}

// statusOf is a script that prints the status of a VolumeSnapshotContent.
func statusOf(content string) string {
	return "kubectl get volumesnapshotcontent " + content + " -o jsonpath='{.status}'"
}

// removeSnapshot waits until nothing of it is left in the pool, either.
func (e *environment) removeSnapshot(api *cluster.Snapshots, name, content string) {
	e.Must(api.Remove(e.ctx, name, content), "removing a snapshot")
	e.eventually("kubectl get volumesnapshotcontents -o name | wc -l; find /srv/still -maxdepth 1 -name 'snapshot-*' | wc -l", "0\n0")
}

// killedWhilePaused kills the service in the middle of a VolumeSnapshot, and has systemd alone see
// it: the drop-in keeps it from starting another one, which would have the pods go on, too.
func (e *environment) killedWhilePaused(api *cluster.Snapshots, v csinode.Volume) {
	const dropIn = "/etc/systemd/system/" + driver + ".service.d"
	e.put(dropIn+"/killed.conf", "[Service]\nRestart=no\n")
	e.sh("systemctl daemon-reload")
	name, content := e.heldPause(api, v)
	e.sh("systemctl kill -s KILL " + driver + ".service")
	e.eventually("systemctl is-active "+driver+".service || true", "failed")
	e.frozen("0")
	e.is("systemctl show -P Result -P MainPID "+driver+".service | tr '\\n' ' '", "0 signal")
	e.says(e.sh(journal+"-o cat -b -u "+driver), "2 pods go on that were paused")
	e.goesOn(v)
	e.sh("systemctl kill -s CONT " + service)
	e.eventually(statusOf(content), "its pods could not be paused: the CSI node service ended")
	e.is("find /srv/still -maxdepth 1 -name 'snapshot-*'", "")
	e.sh("rm -r " + dropIn + " /hold /run/held; systemctl daemon-reload")
	e.removeSnapshot(api, name, content)
}

// hold waits until the pods stand still, and stops the daemon, so that it does not end the pause.
const hold = `daemon=$(systemctl show -P MainPID ` + service + `)
rm -f /run/held
echo >/run/holds
while [ -e /run/holds ]; do
	while read -r key value; do
		if [ "$key $value" = "frozen 1" ]; then kill -STOP $daemon; mv /run/holds /run/held; fi
	done <` + writerCgroup + `/cgroup.events
done
`

// heldPause makes a VolumeSnapshot that is in the middle of its pause. The daemon may end one
// before it is stopped: then another one is made.
func (e *environment) heldPause(api *cluster.Snapshots, v csinode.Volume) (name, content string) {
	e.put("/hold", hold)
	for try := range 20 {
		name = fmt.Sprintf("cut-%d", try)
		e.sh("sh -eu /hold >/dev/null 2>&1 &")
		e.eventually("ls /run/holds", "/run/holds")
		content, err := api.Ask(e.ctx, name, v.PV, "paused", "Delete")
		e.Must(err, "a VolumeSnapshot")
		e.eventually("{ test -e /run/held || "+statusOf(content)+" | grep -q readyToUse.:true; } && echo over", "over")
		if out, _ := e.try("rm -f /run/holds; grep frozen " + writerCgroup + "/cgroup.events"); strings.Contains(out, "frozen 1") {
			e.frozen("1")
			return name, content
		}
		e.sh("systemctl kill -s CONT " + service)
		e.eventually(statusOf(content), `"readyToUse":true`)
		e.removeSnapshot(api, name, content)
	}
	e.Fatalf("no pause could be held")
	return "", ""
}

// stoppedWhilePaused asks for a pause as the daemon does. An administrator who stops the service
// need not know of it.
func (e *environment) stoppedWhilePaused(v csinode.Volume) {
	client := pause.Client{Socket: e.outside(pause.SocketPath(kubeletRoot, service))}
	_, p, err := client.Begin(e.ctx, "still", v.PV)
	e.Must(err, "a pause")
	e.frozen("1")
	e.sh("systemctl stop " + driver + ".service")
	e.frozen("0")
	if _, err := p.End(); err == nil || !strings.Contains(err.Error(), "they went on because the CSI node service was stopped") {
		e.Fatalf("the end of the pause: %v", err)
	}
	e.goesOn(v)
}

// withoutStillPool leaves the machine to the other steps as it was.
func (e *environment) withoutStillPool() {
	e.drop("still")
	e.sh(fmt.Sprintf("systemctl disable --now %s.socket; rm %s; kubectl delete storageclass still; systemctl daemon-reload; systemctl restart %s", driver, site, service))
	e.status("2 of 2 pools open")
	e.eventually("umount /srv/still && echo unmounted", "unmounted")
	e.sh("chattr -i /srv/still; rmdir /srv/still; rm /images/still /writes /var/lib/hostpath-provisioner/state/pools/still.json")
}

// looks is the service that looks under mount points, and its socket.
const looks = service + "-mountpoint"

// looker disturbs the service while the daemon asks it. It fails without Restart=, without
// Requires= (the service goes on without its socket) and without PartOf=.
func looker(e *environment) {
	e.killLooker()
	e.failingLooker()
	e.stoppedLooker()
	e.checkAsksToo()
}

// newLook makes the daemon look under a pool's mount point anew, by a change of the mounts.
const newLook = "mkdir -p /run/elsewhere; mount -t tmpfs elsewhere /run/elsewhere; umount /run/elsewhere; "

// killLooker: a daemon that lost its response sends the request again, and no pool closes.
func (e *environment) killLooker() {
	const closed = journal + "-o cat -u " + service + " | grep -c 'pool .* is closed' || true"
	before := e.sh(closed)
	for range 10 {
		e.try(newLook + "systemctl kill -s KILL " + looks)
	}
	e.sh(newLook)
	e.eventually("systemctl is-active "+looks+" || true", "active")
	e.status("2 of 2 pools open")
	e.is(closed, before)
}

// failingLooker: what fails at once is started again and again with a pause between, not given up,
// and the pools open by themselves when it works.
func (e *environment) failingLooker() {
	const dropIn = "/etc/systemd/system/" + looks + ".service.d"
	e.put(dropIn+"/fails.conf", "[Service]\nExecStart=\nExecStart=/bin/false\n")
	e.sh("systemctl daemon-reload; systemctl stop " + looks + ".service; " + newLook)
	e.status("pool fast is closed: asking " + looks + ".service what lies under /srv/fast: no response for ")
	e.eventually("test $(systemctl show -P NRestarts "+looks+") -ge 5 && echo so", "so")
	const starts = "$(" + journal + "-o cat -u " + looks + " -b | grep -c '^Starting' || true)"
	e.sh("n=" + starts + "; t=$(date +%s%N); sleep 3; n=$((" + starts + " - n)); t=$(($(date +%s%N) - t)); " +
		"echo $n starts in $t ns; test $((n * 500000000)) -le $t") // two a second at most
	e.sh("rm -r " + dropIn + "; systemctl daemon-reload")
	e.status("2 of 2 pools open")
	e.is("systemctl is-active "+looks+".socket", "active")
}

// stoppedLooker: without its socket the pools are closed, and what is to be done is told. It can be
// started at once.
func (e *environment) stoppedLooker() {
	e.sh("systemctl stop " + looks + ".socket; " + newLook)
	e.status("this process has no CAP_SYS_ADMIN, and " + looks + ".socket does not listen")
	e.is("systemctl is-active "+looks+".service || true; ls /run/"+looks+".socket 2>/dev/null || true", "inactive")
	e.says(e.sh("hostpath-provisioner status || true"), "closed: LookNotPermitted", "systemctl start "+looks+".socket")
	e.sh("hostpath-provisioner check") // root looks itself
	e.sh("systemctl start " + looks + ".socket")
	e.status("2 of 2 pools open")
	e.sh("systemctl stop " + looks + ".socket; systemctl restart " + service) // which wants it
	e.status("2 of 2 pools open")
	pid := e.sh("systemctl show -P MainPID " + looks)
	e.sh("systemctl restart " + service)
	e.status("2 of 2 pools open")
	e.eventually("systemctl show -P MainPID "+looks+" | grep -vx "+pid+" | grep -vx 0 && echo another", "another")
}

// checkAsksToo: the check unit has no CAP_SYS_ADMIN either, also as root.
func (e *environment) checkAsksToo() {
	const dropIn = "/etc/systemd/system/" + service + "-check.service.d"
	e.sh("systemctl stop " + looks + ".socket; systemctl start " + service + "-check; systemctl stop " + service + "-check; systemctl is-active " + looks + ".socket")
	e.put(dropIn+"/root.conf", "[Service]\nUser=root\n")
	e.sh("systemctl daemon-reload; systemctl start " + service + "-check; systemctl stop " + service + "-check; rm -r " + dropIn + "; systemctl daemon-reload")
	e.unmount()
	e.sh("chattr -i /srv/fast; mount /srv/fast")
	e.fails("systemctl start "+service+"-check", "failed")
	e.says(e.sh(journal+"-b -u "+service+"-check"), "pool fast: NotImmutable")
	e.status("is closed: the directory under the mount point /srv/fast is not immutable")
	e.unmount()
	e.sh("chattr +i /srv/fast; mount /srv/fast; systemctl reset-failed")
	e.status("2 of 2 pools open")
}

// lookerGone: a removal leaves no process, no socket and no unit that is loaded.
func (e *environment) lookerGone() {
	e.is("find /proc -maxdepth 1 -user hostpath-mountpoint; ls /run/"+looks+".socket 2>/dev/null || true; systemctl list-units --all --no-legend '"+looks+"*'", "")
}
