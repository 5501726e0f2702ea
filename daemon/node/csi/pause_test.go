package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/ipc"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi/freeze"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/pause"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// paused is a host whose pods can be paused, and the service for that.
type paused struct {
	*host
	cgroups freeze.Cgroups
	client  pause.Client
	root    string // of the cgroups, below that of the hierarchy
	service *Pauser
	ended   chan error
	cancel  context.CancelFunc
}

func newPaused(t *testing.T) *paused {
	p := &paused{host: newHost(t), root: fmt.Sprintf("hostpath-pause-%d", os.Getpid())}
	for i := range p.cfg.Pools {
		p.cfg.Pools[i].Source, p.cfg.Pools[i].Snapshots, p.cfg.Pools[i].PauseLimit = plan.SourceCSI, plan.SnapshotsPaused, 20*time.Second
	}
	p.cfg.Pools[1].Snapshots = plan.SnapshotsLive
	p.cgroups = freeze.Cgroups{Root: hosttest.Cgroup(t, p.root), List: p.at("paused.json")}
	p.client = pause.Client{Socket: pause.SocketPath(p.at("kubelet"), "hostpath-provisioner")}
	p.servePauses()
	return p
}

func (p *paused) servePauses() {
	p.Helper()
	p.must(os.RemoveAll(p.client.Socket))
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: p.client.Socket, Net: "unixgram"})
	p.must(err)
	p.service = &Pauser{Servers: p.servers, Pools: p.servers[0].Pools, Cgroups: p.cgroups, Log: slog.New(slog.DiscardHandler)}
	service := p.service
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel, p.ended = cancel, make(chan error, 1)
	go func() { p.ended <- service.Serve(ctx, socket) }()
	p.Cleanup(func() { cancel(); socket.Close() })
}

// limit starts the service again with another limit of a pause.
func (p *paused) limit(d time.Duration) {
	p.Helper()
	p.cancel()
	p.must(receive(p.T, p.ended))
	p.cfg.Pools[0].PauseLimit = d
	p.servePauses()
}

// pod has the volume mounted for a pod, and a process of the pod run a script in it.
func (p *paused) pod(uid, script string) {
	p.Helper()
	p.must(p.publish(func(r *spec.NodePublishVolumeRequest) { r.TargetPath = p.target(uid) }))
	cgroup := hosttest.Cgroup(p.T, filepath.Join(p.root, "kubepods/pod"+uid))
	cmd := hosttest.InCgroup(p.T, cgroup, exec.Command("sh", "-c", script))
	cmd.Dir = p.target(uid)
	child, err := process.Start(cmd)
	p.must(err)
	p.Cleanup(func() { _ = child.Kill() })
}

func (p *paused) frozen(uid string) bool {
	p.Helper()
	text, err := os.ReadFile(filepath.Join(p.cgroups.Root, "kubepods/pod"+uid, "cgroup.freeze"))
	p.must(err)
	return strings.TrimSpace(string(text)) == "1"
}

// drop begins a pause and closes its end, as the kernel does when the daemon is killed.
func (p *paused) drop() {
	p.Helper()
	soon := time.Now().Add(time.Minute)
	end, err := ipc.Connect(p.client.Socket, `{"pool":"fast","volume":"pvc-1"}`, soon)
	p.must(err)
	defer end.Close()
	p.must(end.SetReadDeadline(soon))
	reply := make([]byte, pause.Largest)
	n, err := end.Read(reply)
	var r pause.Reply
	p.must(err, json.Unmarshal(reply[:n], &r))
	if r != (pause.Reply{Pods: 1}) || !p.frozen("u-1") {
		p.Errorf("%+v, frozen %t", r, p.frozen("u-1"))
	}
}

// noRest has the next pause begin at once. Another test is of the rest.
func (p *paused) noRest() {
	p.service.one <- struct{}{} // is let go when a pause is over
	p.service.rest = time.Time{}
	<-p.service.one
}

// goesOn waits until a pod is not paused.
func (p *paused) goesOn(uid string) {
	p.Helper()
	for end := time.Now().Add(time.Minute); p.frozen(uid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("pod %s stands still", uid)
		}
	}
}

func (p *paused) soon() context.Context {
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	p.Cleanup(cancel)
	return ctx
}

// receive is a receive with a limit.
func receive(t *testing.T, from <-chan error) error {
	t.Helper()
	select {
	case err := <-from:
		return err
	case <-time.After(time.Minute):
		t.Fatal("nothing came")
		return nil
	}
}

// A pod stands still from the beginning of a pause to its end, by whatever it is ended, and goes on
// afterwards.
func TestPauseEnds(t *testing.T) {
	p := newPaused(t)
	p.pod("u-1", "sleep infinity")
	begin := func() (context.Context, *pause.Pause) {
		ctx, one, err := p.client.Begin(p.soon(), "fast", "pvc-1")
		p.must(err)
		if !p.frozen("u-1") || one.Pods != 1 {
			t.Errorf("frozen %t, %d pods", p.frozen("u-1"), one.Pods)
		}
		return ctx, one
	}
	_, one := begin()
	if took, err := one.End(); err != nil || took <= 0 || p.frozen("u-1") {
		t.Errorf("ended after %s: %v, frozen %t", took, err, p.frozen("u-1"))
	}
	p.drop()
	p.goesOn("u-1")

	p.limit(time.Second) // it may be over before a look at the pod
	ctx, one, err := p.client.Begin(p.soon(), "fast", "pvc-1")
	p.must(err)
	<-ctx.Done()
	if _, err := one.End(); err == nil || !strings.Contains(err.Error(), "pause_limit") || p.frozen("u-1") {
		t.Errorf("%v, frozen %t", err, p.frozen("u-1"))
	}
	p.limit(20 * time.Second)

	ctx, one = begin()
	p.cancel()
	<-ctx.Done()
	if _, err := one.End(); err == nil || p.frozen("u-1") {
		t.Errorf("service stopped: %v, frozen %t", err, p.frozen("u-1"))
	}
	p.must(receive(t, p.ended))
}

// A pod that may not write to the volume is not stopped.
func TestPauseReaders(t *testing.T) {
	p := newPaused(t)
	p.pod("u-1", "sleep infinity")
	p.must(p.publish(func(r *spec.NodePublishVolumeRequest) { r.TargetPath, r.Readonly = p.target("u-2"), true }))
	_, one, err := p.client.Begin(p.soon(), "fast", "pvc-1")
	p.must(err)
	if one.Pods != 1 {
		t.Errorf("%d pods", one.Pods)
	}
	_, err = one.End()
	p.must(err)
}

// What an earlier process left frozen goes on when the service starts.
func TestPauseRecovers(t *testing.T) {
	p := newPaused(t)
	p.pod("u-1", "sleep infinity")
	_, err := p.cgroups.Freeze(p.soon(), []string{"u-1"})
	p.must(err)
	p.servePauses()
	p.goesOn("u-1")
}

// Nothing is paused for what is no volume of a pool that pauses, or whose pods are not all known.
func TestPauseRefuses(t *testing.T) {
	p := newPaused(t)
	p.create("slow", "pvc-2")
	p.pod("u-1", "sleep infinity")
	for _, c := range []struct{ pool, volume, want string }{
		{"slow", "pvc-2", `no pool "slow" with snapshots = "paused"`}, {"none", "pvc-1", `no pool "none"`}, {"fast", "pvc-2", "not recorded"},
	} {
		if _, _, err := p.client.Begin(p.soon(), c.pool, c.volume); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v", c.pool, c.volume, err)
		}
	}
	p.must(p.publish(func(r *spec.NodePublishVolumeRequest) { r.TargetPath = p.target("u-2") }))
	if _, _, err := p.client.Begin(p.soon(), "fast", "pvc-1"); err == nil || !strings.Contains(err.Error(), "pod u-2 has no process") || p.frozen("u-1") {
		t.Errorf("%v, frozen %t", err, p.frozen("u-1"))
	}
}

// A pod that starts while others stand still gets the volume when they go on.
func TestPublishWaitsForPause(t *testing.T) {
	p := newPaused(t)
	p.pod("u-1", "sleep infinity")
	_, one, err := p.client.Begin(p.soon(), "fast", "pvc-1")
	p.must(err)
	published := make(chan error, 1)
	go func() {
		published <- p.publish(func(r *spec.NodePublishVolumeRequest) { r.TargetPath = p.target("u-2") })
	}()
	for end := time.Now().Add(time.Minute); p.servers[0].turns.Users("pvc-1") < 2 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if n := len(p.mounted()); n != 1 {
		t.Errorf("%d mounts in the pause", n)
	}
	_, err = one.End()
	p.must(err, receive(t, published))
}

// Between two pauses the pods go on for a while.
func TestPauseRests(t *testing.T) {
	p := newPaused(t)
	p.pod("u-1", "sleep infinity")
	_, one, err := p.client.Begin(p.soon(), "fast", "pvc-1")
	p.must(err)
	took, err := one.End()
	p.must(err)
	p.service.one <- struct{}{} // is let go when the pause is over
	if rest := time.Until(p.service.rest); rest > restFactor*took {
		t.Errorf("%s after %s", rest, took)
	} else if p.service.rest.IsZero() {
		t.Error("no rest")
	}
	p.service.rest = time.Now().Add(time.Hour)
	<-p.service.one
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan error, 1)
	go func() {
		_, _, err := p.client.Begin(ctx, "fast", "pvc-1")
		begun <- err
	}()
	for end := time.Now().Add(time.Minute); len(p.service.one) == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := receive(t, begun); err == nil || p.frozen("u-1") {
		t.Errorf("%v, frozen %t", err, p.frozen("u-1"))
	}
}

// writer writes each number to one file and then to another: at each moment the second one has that
// of the first, or the one before.
const writer = `i=100000000; while :; do i=$((i+1)); printf $i 1<>first/number; printf $i 1<>last/number; done`

// In a snapshot that was made while the pods stand still the order of what they wrote holds.
func TestOrderedWriters(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			p := newPausedOn(t, fstype)
			p.pod("u-1", writer)
			for try := range 5 {
				p.snapshot(fmt.Sprintf("snapshot-%d", try))
			}
		})
	}
}

// newPausedOn has its volume on a filesystem that shares blocks.
func newPausedOn(t *testing.T, fstype string) *paused {
	p := newPaused(t)
	p.run("umount", p.at("fast"))
	hosttest.Mkfs(t, fstype, map[string]int{"xfs": 320, "btrfs": 256}[fstype]).Mount(t, p.at("fast"))
	t.Cleanup(func() { hosttest.Unmount(t, p.at("fast")) })
	p.must(os.Chmod(p.at("fast"), 0o700))
	p.prepare("fast")
	p.create("fast", "pvc-1")
	p.fill(p.at("fast/pvc-1"))
	return p
}

// There is no snapshot if a process wrote meanwhile that is in no pod that has the volume mounted:
// one of the host, or one in another pod, which has it as a hostPath. If it did not, or has ended,
// there is, and the order holds.
func TestUnknownWriter(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		for of, cgroup := range map[string]string{"host": "", "pod": "kubepods/podu-2"} {
			t.Run(fstype+"/"+of, func(t *testing.T) {
				p := newPausedOn(t, fstype)
				p.pod("u-1", "sleep infinity")
				cmd := exec.Command("sh", "-c", writer)
				if cmd.Dir = p.at("fast/pvc-1"); cgroup != "" {
					cmd = hosttest.InCgroup(t, hosttest.Cgroup(t, p.root+"/"+cgroup), cmd)
				}
				child, err := process.Start(cmd)
				p.must(err)
				t.Cleanup(func() { _ = child.Kill() })
				refused := 0
				for try := 0; refused < 5 && try < 100 && !t.Failed(); try++ { // it may get no processor while the pod stands still
					name := fmt.Sprintf("snapshot-%d", try)
					switch err := p.try(name); {
					case err == nil:
						p.ordered(name)
					case errors.Is(err, treecopy.ErrWritten) && strings.Contains(err.Error(), `/number": something that is not stopped writes to the volume`):
						refused++
					default:
						t.Fatal(err)
					}
				}
				if refused < 5 {
					t.Errorf("refused %d times", refused)
				}
				p.must(child.Kill())
				p.snapshot("snapshot")
			})
		}
	}
}

func (p *paused) fill(dir string) {
	p.Helper()
	p.must(os.Mkdir(dir+"/first", 0o755), os.Mkdir(dir+"/last", 0o755), os.Mkdir(dir+"/many", 0o755))
	p.must(os.WriteFile(dir+"/first/number", []byte("100000000"), 0o644), os.WriteFile(dir+"/last/number", []byte("100000000"), 0o644))
	for i := range 1000 {
		p.must(os.WriteFile(fmt.Sprintf("%s/many/%d", dir, i), []byte("x"), 0o644))
	}
}

// snapshot makes one, and compares what is in it.
func (p *paused) snapshot(name string) {
	p.Helper()
	p.must(p.try(name))
	p.ordered(name)
}

func (p *paused) ordered(name string) {
	p.Helper()
	first, last := p.number(name+"/first"), p.number(name+"/last")
	if first != last && first != last+1 {
		p.Errorf("%s: %d was written first, and then %d", name, first, last)
	}
}

// try makes a snapshot, after which the pod goes on.
func (p *paused) try(name string) error {
	p.Helper()
	store, id := p.store("fast")
	_, err := store.Create(p.soon(), id, volume.Spec{
		Mode: 0o700,
		Record: record.Record{Kind: record.Snapshot, PV: name, Directory: name, ClaimUID: "u-" + name, Namespace: "default", Claim: name, Unpublished: true,
			Requested: 1 << 20, Origin: record.Origin{Name: "pvc-1", UID: "u-pvc-1"}},
		Pause: func(ctx context.Context) (context.Context, func() error, error) {
			ctx, one, err := p.client.Begin(ctx, "fast", "pvc-1")
			return ctx, func() error { _, err := one.End(); return err }, err
		},
	})
	p.noRest()
	if p.frozen("u-1") {
		p.Error("the pod stands still")
	}
	return err
}

func (p *paused) number(dir string) int {
	p.Helper()
	text, err := os.ReadFile(p.at("fast/" + dir + "/number"))
	n, wrong := strconv.Atoi(string(text))
	p.must(err, wrong)
	return n
}

// What is no request gets no reply, and nothing of it stays open.
func TestPauseGarbage(t *testing.T) {
	p := newPaused(t)
	p.pod("u-1", "sleep infinity")
	conn, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	p.must(err)
	defer unix.Close(conn)
	null, err := os.Open(os.DevNull)
	p.must(err)
	defer null.Close()
	good := []byte(`{"pool":"fast","volume":"pvc-1"}`)
	for _, send := range []struct{ message, rights []byte }{
		{good, nil}, {good, unix.UnixRights(int(null.Fd()))}, {good, unix.UnixRights(int(null.Fd()), int(null.Fd()))}, {[]byte("{"), nil},
		{make([]byte, 2*pause.Largest), nil},
	} {
		p.must(unix.Sendmsg(conn, send.message, send.rights, &unix.SockaddrUnix{Name: p.client.Socket}, 0))
	}
	_, one, err := p.client.Begin(p.soon(), "fast", "pvc-1")
	p.must(err)
	_, err = one.End()
	p.must(err)
	if _, _, err := (pause.Client{Socket: p.at("none")}).Begin(p.soon(), "fast", "pvc-1"); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
}
