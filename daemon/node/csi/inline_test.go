package csi

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/inline"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// inlined is a host whose pool "fast" has inline volumes, with a daemon that makes what it is asked
// for.
type inlined struct {
	*host
	mu    sync.Mutex
	asked []inline.Request
	says  error // in place of making one
	came  chan inline.Act
	ends  func() // what it does about an end, if it is not nil
	end   func()
}

var inlineHandle = "csi-" + strings.Repeat("7f", 32)

func newInlined(t *testing.T) *inlined {
	i := &inlined{host: newHost(t), came: make(chan inline.Act, 64)}
	i.cfg.Pools[0].Source, i.cfg.Pools[0].InlineVolumes = plan.SourceCSI, 1<<30
	i.must(os.MkdirAll(filepath.Dir(i.inlineTarget("u-1")), 0o750))
	i.must(os.MkdirAll(filepath.Dir(i.inlineTarget("u-2")), 0o750))
	socket := inline.SocketPath(i.at("kubelet"), "hostpath-provisioner")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	i.must(err)
	service := &inline.Service{}
	i.servers[0].Inline = service
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = service.Serve(ctx, conn) })
	daemon, stop := context.WithCancel(ctx)
	all.Go(func() { inline.Daemon{Socket: socket, Do: i.do}.Run(daemon) })
	i.end = stop
	t.Cleanup(func() { cancel(); all.Wait() })
	return i
}

// do is the daemon.
func (i *inlined) do(ctx context.Context, r inline.Request) error {
	i.came <- r.Act
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked = append(i.asked, r)
	if r.Act == inline.End && i.ends != nil {
		i.ends()
	}
	if r.Act == inline.End || i.says != nil {
		return i.says
	}
	store, id := i.store(r.Pool)
	_, err := store.Create(ctx, id, volume.Spec{Mode: 0o777, Record: record.Record{
		Kind: record.Inline, PV: r.Handle, Directory: r.Handle, Namespace: r.Namespace, Claim: r.Pod, ClaimUID: r.UID, Requested: 1 << 20,
	}})
	return err
}

// acts are what the daemon was asked for since the last call.
func (i *inlined) acts() (all string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, r := range i.asked {
		all += " " + string(r.Act)
	}
	i.asked = nil
	return strings.TrimSpace(all)
}

func (i *inlined) inlineTarget(pod string) string {
	return i.at("kubelet/pods/" + pod + "/volumes/kubernetes.io~csi/scratch/mount")
}

func (i *inlined) publishInline(change ...func(*spec.NodePublishVolumeRequest)) error {
	return i.publish(append([]func(*spec.NodePublishVolumeRequest){func(r *spec.NodePublishVolumeRequest) {
		r.VolumeId, r.TargetPath = inlineHandle, i.inlineTarget("u-1")
		r.VolumeContext = map[string]string{ephemeral: "true", podUID: "u-1", podName: "p", podNamespace: "ns", "csi.storage.k8s.io/serviceAccount.name": "default", "size": "5Mi"}
	}}, change...)...)
}

func (i *inlined) unpublishInline() error {
	_, err := i.node.NodeUnpublishVolume(i.Context(), &spec.NodeUnpublishVolumeRequest{VolumeId: inlineHandle, TargetPath: i.inlineTarget("u-1")})
	return err
}

// An inline volume is made by the daemon, once, mounted, and the daemon is told of its end. What is
// there is mounted again without the daemon, and unmounted.
func TestInline(t *testing.T) {
	i := newInlined(t)
	i.must(i.publishInline(), i.publishInline())
	want := inline.Request{Act: inline.Make, Driver: "hostpath-provisioner", Handle: inlineHandle, Pool: "fast", Size: "5Mi", Namespace: "ns", Pod: "p", UID: "u-1"}
	if len(i.asked) != 1 || i.asked[0] != want {
		t.Errorf("the daemon was asked %+v", i.asked)
	}
	i.must(os.WriteFile(filepath.Join(i.inlineTarget("u-1"), "file"), []byte("x"), 0o600))
	if _, err := os.Stat(i.at("fast/" + inlineHandle + "/file")); err != nil {
		t.Error(err)
	}
	i.acts()
	i.must(i.unpublishInline())
	if acts := i.acts(); acts != "end" {
		t.Errorf("asked %q at the end", acts)
	}
	i.must(i.publishInline()) // the directory is still there
	if acts := i.acts(); acts != "" {
		t.Errorf("asked %q for what is there", acts)
	}
	i.end()
	i.must(i.unpublishInline(), i.publishInline(), i.unpublishInline())
	if all := i.mounted(); len(all) != 0 {
		t.Errorf("mounted are %q", all)
	}
}

// The daemon is told of the end of one that is mounted no more, also where its target stays.
func TestInlineEndsOverContent(t *testing.T) {
	i := newInlined(t)
	i.must(i.publishInline(), i.unpublishInline())
	i.acts()
	at := i.inlineTarget("u-1")
	i.must(os.Mkdir(at, 0o750), os.WriteFile(filepath.Join(at, "file"), nil, 0o600))
	i.want(i.publishInline(), codes.FailedPrecondition, "the directory itself has files")
	i.run("mount", "--bind", i.at("fast/"+inlineHandle), at)
	i.want(i.unpublishInline(), codes.FailedPrecondition, "the directory itself has files")
	if acts := i.acts(); acts != "end" || len(i.mounted()) != 0 {
		t.Errorf("asked %q; mounted are %q", acts, i.mounted())
	}
}

// What is refused, and in which words. The daemon is asked for nothing that cannot be.
func TestInlineRefuses(t *testing.T) {
	type request = spec.NodePublishVolumeRequest
	i := newInlined(t)
	attribute := func(key, value string) func(*request) {
		return func(r *request) { r.VolumeContext[key] = value }
	}
	for _, c := range []struct {
		name   string
		change func(*request)
		code   codes.Code
		text   string
	}{
		{"a handle of a claim", func(r *request) { r.VolumeId = "pvc-1" }, codes.InvalidArgument, "is none that kubelet gives"},
		{"a path for a handle", func(r *request) { r.VolumeId = "csi-" + strings.Repeat("..", 32) }, codes.InvalidArgument, "is none that kubelet gives"},
		{"another pod's target", func(r *request) { r.TargetPath = i.inlineTarget("u-2") }, codes.InvalidArgument, `a volume of pod "u-2"`},
		{"no pod", attribute(podUID, ""), codes.InvalidArgument, "is none that kubelet gives"},
		{"a pool without them", attribute(plan.KubevirtPool, "slow"), codes.InvalidArgument, `no pool "slow" with inline_volumes`},
		{"no pool", attribute(plan.KubevirtPool, "gone"), codes.InvalidArgument, `no pool "gone" with inline_volumes`},
		{"an unknown attribute", attribute("path", "/etc"), codes.InvalidArgument, `unknown attribute "path"`},
		{"mount options", func(r *request) { r.VolumeCapability.GetMount().MountFlags = []string{"suid"} }, codes.InvalidArgument, "suid"},
	} {
		i.want(i.publishInline(c.change), c.code, c.text)
		if acts := i.acts(); acts != "" {
			t.Errorf("%s: the daemon was asked %s", c.name, acts)
		}
	}
	i.says = errors.New("pool fast: it would be promised 5Gi, and 1Gi is available")
	i.want(i.publishInline(), codes.FailedPrecondition, "inline volume: pool fast: it would be promised 5Gi")
	i.says = nil
	i.must(i.publishInline(), i.unpublishInline())
	i.want(i.publishInline(func(r *request) { r.TargetPath, r.VolumeContext[podUID] = i.inlineTarget("u-2"), "u-2" }), codes.InvalidArgument, "differ")
	i.run("umount", i.at("fast"))
	i.want(i.publishInline(), codes.FailedPrecondition, `pool "fast" is closed: `)
	i.cfg.Pools[0].InlineVolumes = 0
	i.want(i.publishInline(), codes.InvalidArgument, "no pool of this node has them")
	if all := i.mounted(); len(all) != 0 {
		t.Errorf("mounted are %q", all)
	}
}

// The inline volume of a pod is mounted for no other one, whatever an object says that names it;
// nor is a claim's as an inline one.
func TestInlineIsNoOthers(t *testing.T) {
	i := newInlined(t)
	i.must(i.publishInline(), i.unpublishInline())
	i.want(i.publish(func(r *spec.NodePublishVolumeRequest) {
		r.VolumeId, r.VolumeContext = inlineHandle, map[string]string{plan.AttributePool: "fast", plan.AttributePath: i.at("fast/" + inlineHandle)}
	}), codes.NotFound, `the record is one of kind "inline"`)
	other := "csi-" + strings.Repeat("00", 32)
	i.create("fast", other)
	i.acts()
	i.want(i.publishInline(func(r *spec.NodePublishVolumeRequest) { r.VolumeId = other }), codes.FailedPrecondition, "")
	if all := i.mounted(); len(all) != 0 || !slices.Contains([]string{"make"}, i.acts()) {
		t.Errorf("mounted are %q", all)
	}
}

// Without a socket of the daemon's the pod waits, with a sentence; the end of one needs none.
func TestInlineWithoutSocket(t *testing.T) {
	i := newInlined(t)
	i.must(i.publishInline())
	i.servers[0].Inline = nil
	i.must(i.unpublishInline(), i.publishInline(), i.unpublishInline())
	store, id := i.store("fast")
	i.must(store.Trash(t.Context(), id, inlineHandle))
	i.want(i.publishInline(), codes.InvalidArgument, "restart the socket unit")
}

// A daemon that takes long to remove a volume does not remove it under its pod that was started
// again.
func TestInlineEndThatComesLate(t *testing.T) {
	i := newInlined(t)
	goOn, done := make(chan struct{}), make(chan struct{})
	store, id := i.store("fast")
	i.ends = func() {
		<-goOn
		i.must(store.Trash(context.Background(), id, inlineHandle))
		close(done)
	}
	i.must(i.publishInline(), i.unpublishInline())
	if first, second := <-i.came, <-i.came; first != inline.Make || second != inline.End {
		t.Fatalf("asked %s, %s", first, second)
	}
	again := make(chan error, 1)
	go func() { again <- i.publishInline() }()
	var published bool
	select {
	case <-i.came: // it waits for the daemon
	case err := <-again:
		published = true
		i.must(err)
	}
	close(goOn)
	<-done
	if !published {
		i.must(<-again)
	}
	i.must(os.WriteFile(filepath.Join(i.inlineTarget("u-1"), "file"), nil, 0o600))
	if _, err := os.Stat(i.at("fast/" + inlineHandle + "/file")); err != nil {
		t.Errorf("the pod writes into what was removed: %v", err)
	}
	i.acts()
	i.ends = nil
	i.must(i.unpublishInline(), i.publishInline(), i.unpublishInline()) // what is there needs no daemon again
	if acts := i.acts(); acts != "end end" {
		t.Errorf("asked %q", acts)
	}
}
