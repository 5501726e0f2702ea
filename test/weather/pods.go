package weather

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// podPause is between two pods at most: each call opens the pool's directory for a moment, and
// keeps a plain unmount from it.
const podPause = 20 * time.Millisecond

// pods are those that begin and end while mounts change, with volumes from before the storm, by the
// node service.
type pods struct {
	*storm
	service *csinode.Service
	names   []string // of the volumes

	mounted int // volumes that were mounted for pods
	refused map[codes.Code]int
	faults  []string
}

func newPods(s *storm) *pods {
	p := &pods{storm: s, refused: map[codes.Code]int{}, names: slices.Sorted(maps.Keys(s.kept))}
	p.service = s.NodeService(csinode.Options{
		Root: filepath.Join(hosttest.Dir(s), "k"), Driver: s.Name(), Command: s.Daemon.Command, Log: s.Daemon.Path("csi.log"),
	})
	s.Must(p.service.Start(), "starting the node service")
	return p
}

// run begins and ends pods until ctx ends.
func (p *pods) run(ctx context.Context) {
	random := rand.New(rand.NewPCG(p.Seed, 1))
	for n := 0; ctx.Err() == nil; n++ {
		p.pod(fmt.Sprintf("pod-%d", n), p.names[random.IntN(len(p.names))])
		time.Sleep(time.Duration(random.Int64N(int64(podPause))))
	}
}

// pod begins once and ends.
func (p *pods) pod(pod, pv string) {
	p.judge(pod, pv, p.begin(pod, pv))
	p.finish(pod, pv)
}

func (p *pods) begin(pod, pv string) error {
	return p.service.Publish(p.Soon(), pod, csinode.Of(pv, p.Name(), filepath.Join(p.mount, pv)))
}

func (p *pods) finish(pod, pv string) {
	if err := p.service.Unpublish(p.Soon(), pod, pv); err != nil {
		p.blame("the end of %s: %v", pod, err)
	}
	p.Must(os.RemoveAll(filepath.Join(p.service.Root, "pods", pod)), "removing a pod's directory")
}

// judge: a pod has the data of its volume, or is refused because its pool is closed or was changed
// during the call.
func (p *pods) judge(pod, pv string, err error) {
	code := status.Code(err)
	switch {
	case code == codes.OK:
		data, err := os.ReadFile(filepath.Join(p.service.Target(pod, pv), "data-from-before"))
		if err != nil || string(data) != pv {
			p.blame("%s has %q in place of %s, %v", pod, data, pv, err)
		}
	case code != codes.FailedPrecondition && code != codes.Unavailable && code != codes.DeadlineExceeded: // the last on a busy machine
		p.blame("%s: %v", pod, err)
	}
	if code == codes.OK {
		p.mounted++
	} else {
		p.refused[code]++
	}
}

func (p *pods) blame(format string, args ...any) {
	if p.faults = append(p.faults, fmt.Sprintf(format, args...)); len(p.faults) > 20 {
		p.faults = p.faults[:20]
	}
}

// end compares: with the pool mounted each volume is there for a pod, and then nothing is mounted
// any more.
func (p *pods) end() {
	refused := p.refusals()
	p.Say("%d volumes were mounted for pods, %d pods were refused %v", p.mounted, refused, p.refused)
	if p.mounted == 0 || refused == 0 {
		p.Fault(harness.NothingProven, "%d volumes were mounted for pods, and %d refused", p.mounted, refused)
	}
	for _, pv := range p.names { // kubelet asks again
		var err error
		late := harness.Eventually(p.Soon(), func() bool { err = p.begin("after", pv); return err == nil })
		if late != nil {
			p.Fault(wrongMount, "a pod is refused once the pool is mounted: %v", err)
		}
		p.judge("after", pv, err)
		p.finish("after", pv)
	}
	for _, one := range p.faults {
		p.Fault(wrongMount, "%s", one)
	}
	left := harness.Need(p.service.Mounted())(p, "reading the mount table")
	for _, m := range left {
		p.Fault(wrongMount, "%s is left", m.Point)
	}
}

func (p *pods) refusals() (all int) {
	for _, n := range p.refused {
		all += n
	}
	return all
}
