package model

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	hoststate "github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi/target"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// The world of the CSI node service: a pool with one volume, and two pods. Its calls are made on
// the real kernel, in each state, between which anything else may happen that mounts, removes or
// restarts. A state is made anew for each event that is tried in it.

// lies is what is mounted at the pool's mount point.
type lies uint8

const (
	bare    lies = iota // the directory under the mount point, which has one of the volume's name
	ours                // the pool's filesystem
	another             // another one, with a marker of its own and a directory of the volume's name
)

// mounting is what there is of a pod's target.
type mounting uint8

const (
	noTarget    mounting = iota
	emptyTarget          // its directory, by a service that died before it mounted
	shown                // the volume is mounted on it
)

// scene is a state.
type scene struct {
	at       lies
	removed  bool // the daemon removed the volume, as its object was deleted
	lost     bool // its record is lost
	targets  [2]mounting
	opened   bool // a publish for the first pod opened the volume's directory
	departed bool // and what that lies on was unmounted since
}

func (s scene) String() string { return fmt.Sprintf("%+v", struct{ scene }{s}) }

// playhouse is where scenes are played: a real mount namespace.
type playhouse struct {
	*testing.T
	dir   string
	fd    int // of the opened directory, -1 for none
	pools *csi.Pools
}

const (
	publishedPV = "pvc-1"
	ownText     = "ours"
)

func newPlayhouse(t *testing.T) *playhouse {
	p := &playhouse{T: t, dir: hosttest.Dir(t), fd: -1}
	for _, dir := range []string{"pool", "ours", "another", "state", "kubelet"} {
		p.must(os.MkdirAll(p.path(dir), 0o700))
	}
	p.must(os.MkdirAll(p.path("pool/"+publishedPV), 0o700))
	p.must(os.WriteFile(p.path("pool/"+publishedPV+"/data"), []byte("under the mount point"), 0o600))
	for pod := range 2 {
		p.must(os.MkdirAll(filepath.Dir(p.target(pod)), 0o750))
	}
	for _, name := range []string{"ours", "another"} {
		hosttest.Mount(t, "-t", "tmpfs", "-o", "mode=0700", name, p.path(name))
		marker := hostcheck.NewMarker("p", time.Now())
		text := hosttest.Need(hostcheck.EncodeMarker(marker))(p)
		p.must(p.store(name).InitMarker(t.Context(), p.identity(name), text))
		if name == "ours" {
			p.must(hoststate.Remember(p.path("state"), "p", marker))
		}
	}
	p.makes("another", "of another filesystem")
	p.starts()
	t.Cleanup(p.clear)
	return p
}

func (p *playhouse) path(name string) string { return filepath.Join(p.dir, name) }

func (p *playhouse) target(pod int) string {
	return p.path(fmt.Sprintf("kubelet/pods/u-%d/volumes/kubernetes.io~csi/%s/mount", pod, publishedPV))
}

func (p *playhouse) must(err error) {
	p.Helper()
	hosttest.Check(p, err)
}

func (p *playhouse) identity(name string) mounts.Identity {
	return identity(p, p.path(name))
}

func (p *playhouse) store(name string) *volume.Pool {
	return volume.New(volume.Options{Name: "p", Path: p.path(name)})
}

// makes makes the volume with a file.
func (p *playhouse) makes(name, text string) {
	p.Helper()
	_, err := p.store(name).Create(p.Context(), p.identity(name), volume.Spec{Mode: 0o777, Record: record.Record{
		PV: publishedPV, Namespace: namespace, Claim: "data", ClaimUID: "u", Directory: publishedPV, Source: plan.SourceCSI, Requested: 1 << 20,
	}})
	p.must(err)
	p.must(os.WriteFile(p.path(name+"/"+publishedPV+"/data"), []byte(text), 0o600))
}

// starts is the service as it starts: it knows nothing.
func (p *playhouse) starts() {
	cfg := config.Default()
	cfg.Node = nodeName(0)
	of := config.DefaultPool("p")
	of.Path, of.MountPoint, of.Immutable, of.SELinuxType = p.path("pool"), p.path("pool"), config.ImmutableOff, ""
	cfg.Pools = append(cfg.Pools, of)
	p.pools = csi.NewPools(func() (config.Config, error) { return cfg, nil }, p.path("state"), 20*time.Second)
}

func (p *playhouse) dies() {
	if p.fd >= 0 {
		unix.Close(p.fd)
	}
	p.fd = -1
	p.starts()
}

// clear takes away what a scene mounted.
func (p *playhouse) clear() {
	p.dies()
	for pod := range 2 {
		_ = unix.Unmount(p.target(pod), unix.MNT_DETACH)
		_ = os.Remove(p.target(pod))
	}
	p.mounts(bare)
}

// mounts has this at the pool's mount point.
func (p *playhouse) mounts(what lies) {
	for unix.Unmount(p.path("pool"), unix.MNT_DETACH) == nil {
	}
	if name := [...]string{"", "ours", "another"}[what]; name != "" {
		p.must(unix.Mount(p.path(name), p.path("pool"), "", unix.MS_BIND, ""))
	}
}

// sets makes a scene.
func (p *playhouse) sets(s scene) {
	p.clear()
	p.must(os.RemoveAll(p.path("ours/" + publishedPV)))
	p.must(os.RemoveAll(p.record()))
	p.makes("ours", ownText)
	p.mounts(ours)
	for pod, is := range s.targets {
		switch is {
		case emptyTarget:
			p.must(os.Mkdir(p.target(pod), 0o750))
		case shown:
			p.must(p.opens())
			p.must(p.mountsFor(pod))
			p.dies()
		}
	}
	if s.opened {
		p.must(p.opens())
	}
	if s.removed {
		p.removes()
	}
	if s.lost {
		p.must(os.Remove(p.record()))
	}
	if s.departed || s.at != ours {
		p.mounts(s.at)
	}
}

// sees is the scene that there is. What cannot be seen is as before.
func (p *playhouse) sees(before scene) scene {
	s := before
	for pod := range s.targets {
		s.targets[pod] = noTarget
		if fi, err := os.Stat(p.target(pod)); err == nil && fi.IsDir() {
			s.targets[pod] = emptyTarget
		}
		if p.isMounted(pod) {
			s.targets[pod] = shown
		}
	}
	s.opened = p.fd >= 0
	s.departed = s.departed && s.opened
	return s
}

func (p *playhouse) isMounted(pod int) bool {
	table := hosttest.Need(mounts.Read())(p)
	return slices.ContainsFunc(table, func(m mounts.Mount) bool { return m.Point == p.target(pod) })
}

// opens is the first half of NodePublishVolume, for the first pod.
func (p *playhouse) opens() (err error) {
	p.fd, err = p.pools.Open(p.Context(), publishedPV, map[string]string{plan.AttributePool: "p", plan.AttributePath: p.path("pool/" + publishedPV)})
	return err
}

// at does something with the target of a pod.
func (p *playhouse) at(pod int, do func(*target.Target) error) error {
	t := hosttest.Need(target.Root(p.path("kubelet")).Open(p.target(pod)))(p)
	defer t.Close()
	return do(t)
}

// mountsFor is the second half.
func (p *playhouse) mountsFor(pod int) error {
	return p.at(pod, func(t *target.Target) error { return t.Publish(p.fd, target.Options{}) })
}

// removes is what the daemon does with a volume whose object was deleted.
func (p *playhouse) removes() {
	store, id, ctx := p.store("pool"), p.identity("pool"), context.Background()
	p.must(store.Trash(ctx, id, publishedPV))
	p.must(store.Discard(ctx, id, publishedPV))
	hosttest.Need(store.Purge(ctx, id, publishedPV))(p)
}

func (p *playhouse) record() string {
	return p.path("ours/" + record.OwnDir + "/volumes/" + publishedPV + ".json")
}

// act is something that can happen in a scene. apply reports what is wrong with what came of it;
// may whether it can happen.
type sceneEvent struct {
	name  string
	may   func(s scene) bool
	apply func(p *playhouse, s *scene) (wrong string)
}

func nothingWrong(do func(p *playhouse, s *scene)) func(*playhouse, *scene) string {
	return func(p *playhouse, s *scene) string { do(p, s); return "" }
}

var sceneEvents = []sceneEvent{
	{"the pool is unmounted", func(s scene) bool { return s.at != bare }, nothingWrong(func(p *playhouse, s *scene) {
		s.departed = s.opened
		s.at = bare
		p.mounts(bare)
	})},
	{"the pool is mounted", func(s scene) bool { return s.at == bare }, nothingWrong(func(p *playhouse, s *scene) { s.at = ours; p.mounts(ours) })},
	{"another filesystem is mounted in its place", func(s scene) bool { return s.at == bare }, nothingWrong(func(p *playhouse, s *scene) { s.at = another; p.mounts(another) })},
	{"the daemon removes the volume", func(s scene) bool { return s.at == ours && !s.removed && !s.lost }, nothingWrong(func(p *playhouse, s *scene) { s.removed = true; p.removes() })},
	{"the record is lost", func(s scene) bool { return !s.removed && !s.lost },
		nothingWrong(func(p *playhouse, s *scene) { s.lost = true; p.must(os.Remove(p.record())) })},
	{"the service is restarted", func(s scene) bool { return s.opened }, nothingWrong(func(p *playhouse, _ *scene) { p.dies() })},
	{"the service dies when it has made the target's directory", func(s scene) bool { return s.opened && s.targets[0] == noTarget }, nothingWrong(func(p *playhouse, _ *scene) {
		p.must(os.Mkdir(p.target(0), 0o750))
		p.dies()
	})},
	{"the volume is opened for the first pod", func(s scene) bool { return !s.opened }, opensForPod},
	{"it is mounted for the first pod", func(s scene) bool { return s.opened }, func(p *playhouse, s *scene) string { return mountsForPod(p, s, 0) }},
	{"it is mounted for the second pod", func(s scene) bool { return s.opened }, func(p *playhouse, s *scene) string { return mountsForPod(p, s, 1) }},
	{"it is taken from the first pod", func(s scene) bool { return !s.opened }, func(p *playhouse, _ *scene) string { return unpublishesFor(p, 0) }},
	{"it is taken from the second pod", func(s scene) bool { return !s.opened }, func(p *playhouse, _ *scene) string { return unpublishesFor(p, 1) }},
}

func opensForPod(p *playhouse, s *scene) string {
	err := p.opens()
	switch may := s.at == ours && !s.removed && !s.lost; {
	case may && err != nil:
		return "PublishSettles: the volume is there, and it cannot be published: " + err.Error()
	case !may && err == nil:
		return "PublishFailsClosed: it was opened"
	}
	return ""
}

func mountsForPod(p *playhouse, s *scene, pod int) string {
	err := p.mountsFor(pod)
	p.dies()
	switch {
	case s.departed && !errors.Is(err, target.ErrChanged):
		return fmt.Sprintf("PublishFailsClosed: the pool was unmounted meanwhile, and it came to %v", err)
	case !s.departed && !s.removed && err != nil:
		return "PublishSettles: " + err.Error()
	}
	return ""
}

func unpublishesFor(p *playhouse, pod int) string {
	if err := p.at(pod, (*target.Target).Unpublish); err != nil { // NodeUnpublishVolume
		return "UnpublishEnds: " + err.Error()
	}
	if _, err := os.Lstat(p.target(pod)); !os.IsNotExist(err) {
		return fmt.Sprintf("UnpublishEnds: the target is there: %v", err)
	}
	return ""
}

// wrongIn is what does not hold in a scene.
func (p *playhouse) wrongIn(s scene) string {
	for pod, is := range s.targets {
		if is != shown {
			continue
		}
		text, err := os.ReadFile(filepath.Join(p.target(pod), "data"))
		switch {
		case err != nil && !s.removed:
			return fmt.Sprintf("OwnVolume: pod %d cannot read its file: %v", pod, err)
		case err == nil && string(text) != ownText:
			return fmt.Sprintf("OwnVolume: pod %d sees %q", pod, text)
		}
	}
	text, err := os.ReadFile(p.path("ours/" + publishedPV + "/data"))
	if !s.removed && (err != nil || string(text) != ownText) {
		return fmt.Sprintf("PublishedStays: the volume has %q, %v", text, err)
	}
	for name, want := range map[string]string{"another": "of another filesystem", "pool": "under the mount point"} {
		if name == "pool" && s.at != bare {
			continue
		}
		if text, err := os.ReadFile(p.path(name + "/" + publishedPV + "/data")); err != nil || string(text) != want {
			return fmt.Sprintf("ForeignStays: %s has %q, %v", name, text, err)
		}
	}
	return ""
}

// TestPublished plays every order of events between the CSI node service and a pool, and checks
// named invariants in each state.
func TestPublished(t *testing.T) {
	p := newPlayhouse(t)
	first := scene{at: ours}
	from, queue, moves := map[scene][]string{first: nil}, []scene{first}, 0
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		for _, e := range sceneEvents {
			if !e.may(s) {
				continue
			}
			moves++
			p.sets(s)
			after := s
			wrong := e.apply(p, &after)
			if after = p.sees(after); wrong == "" {
				wrong = p.wrongIn(after)
			}
			way := append(slices.Clone(from[s]), e.name)
			if wrong != "" {
				t.Fatalf("%s\n%s", wrong, strings.Join(way, "\n"))
			}
			if _, known := from[after]; !known {
				from[after], queue = way, append(queue, after)
			}
		}
	}
	t.Logf("%d states by %d moves", len(from), moves)
}
