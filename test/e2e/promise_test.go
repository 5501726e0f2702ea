package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// settled waits until each of these claims is bound or was told that there is not enough space, and
// returns the bound ones and a message.
func (w *environment) settled(class, size string, names ...string) (bound []string, told string) {
	w.Helper()
	var all []*corev1.PersistentVolumeClaim
	for _, name := range names {
		all = append(all, w.claim(name, class, size))
	}
	for _, c := range all {
		if w.boundOrTold(c.Name, c, "NotEnoughSpace") == "" {
			bound = append(bound, c.Name)
		} else {
			told = w.refused(c, "NotEnoughSpace")
		}
	}
	return bound, told
}

func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(prefix, "-", i))
	}
	return names
}

// status is what the daemon has told of itself.
func (h *host) status() (s daemon.Status) {
	h.w.Helper()
	h.w.Must(json.Unmarshal([]byte(h.call("status", "--json").Out), &s))
	return s
}

// known is 0 where a number is absent.
func known(number *uint64) uint64 { return *cmp.Or(number, new(uint64)) }

// wantPromised waits until the pool has promised so many bytes.
func (h *host) wantPromised(bytes uint64) {
	h.w.Helper()
	what := fmt.Sprint(bytes, " bytes are promised")
	h.w.Eventually(what, func() bool { return h.promised() == bytes })
}

// promised is what the status has for the pool, in bytes.
func (h *host) promised() uint64 { h.w.Helper(); return known(h.status().Pools[0].Promised) }

// Of ten claims of 100 GiB on an empty disk of 500 GiB four fit: 5 % is root's, and as much is the
// reserve. The others are told what is free, promised and asked. A restart changes nothing, and a
// volume that goes makes room for one that waits.
func TestTenClaimsDoNotFit(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHostOn(hosttest.Mkfs(t, "ext4", 500<<10, "-E", "lazy_itable_init=1", "-J", "size=8"), "a").run()
	class := w.Class("c", immediate)
	bound, told := w.settled(class, "100Gi", numbered("data", 10)...)
	if len(bound) != 4 || !strings.Contains(told, "the claim requests 100Gi") || !strings.Contains(told, "and 400 GiB is promised to volumes") {
		t.Errorf("bound are %v; the others were told %q", bound, told)
	}
	h.again()
	h.wantPromised(400 << 30)
	if more, told := w.settled(class, "100Gi", "later"); len(more) > 0 || !strings.Contains(told, "400 GiB is promised") {
		t.Errorf("after a restart: %v, %q", more, told)
	}
	if small, told := w.settled(class, "1Gi", "small"); len(small) != 1 {
		t.Errorf("what fits was refused: %q", told)
	}
	w.DeleteClaim(bound[0])
	w.Eventually("one of those that wait has the room", func() bool {
		volumes := 0
		for _, name := range h.tree() {
			if strings.HasPrefix(name, "pvc-") {
				volumes++
			}
		}
		return volumes == 5 && h.promised() == 401<<30
	})
}

// A pool that was promised more than it has goes on with its volumes, and takes no new one; and so
// does a pool beside it on the same filesystem.
func TestOvercommittedPoolGoesOn(t *testing.T) {
	w := newEnvironment(t)
	image := hosttest.Mkfs(t, "ext4", 96)
	mount := hosttest.PoolMount(t, image)
	w.Must(os.Mkdir(filepath.Join(mount, "one"), 0o700))
	w.Must(os.Mkdir(filepath.Join(mount, "two"), 0o700))
	pools := func(overcommit string) []string {
		return []string{fmt.Sprintf("mount_point = %q\n%s\ndefault = true\n[pool.second]\npath = %q\nmount_point = %q\n", mount, overcommit, filepath.Join(mount, "two"), mount)}
	}
	h := w.hostAt(filepath.Join(mount, "one"), "a", pools("overcommit = 3")...)
	w.Must(w.AddNode(w.Ctx, h.node, map[string]string{corev1.LabelHostname: h.node}))
	h.call("prepare", "second").Ends(0)
	h.run()
	class := w.Class("c", immediate)
	if bound, told := w.settled(class, "40Mi", numbered("data", 4)...); len(bound) != 4 {
		t.Fatalf("promised three times: %v, %q", bound, told)
	}
	h.edit("overcommit = 3", "")
	h.again()
	for _, name := range numbered("data", 4) {
		w.Bound(name)
	}
	if bound, told := w.settled(class, "1Mi", "new"); len(bound) > 0 || !strings.Contains(told, "0 B is available for new volumes") || !strings.Contains(told, "160 MiB is promised") {
		t.Errorf("promised more than it has: %v, %q", bound, told)
	}
	beside := w.Class("beside", immediate, fixture.Parameters("pool", "second"))
	if bound, told := w.settled(beside, "1Mi", "beside"); len(bound) > 0 || !strings.Contains(told, "160 MiB is promised") {
		t.Errorf("on the same filesystem: %v, %q", bound, told)
	}
	w.DeleteClaim(numbered("data", 3)...)
	w.Bound("new")
	w.Bound("beside")
}

// A pool of which all is promised says so: to the operator's commands, with an exit code, and to
// the metrics. It is open again with the volume that goes.
func TestAllPromisedIsFull(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHostOn(hosttest.Mkfs(t, "ext4", 500), "a").serving().run()
	class := w.Class("c", immediate)
	w.bound("first", class, "100Mi")
	h.wantPromised(100 << 20)
	for _, command := range []string{"check", "status"} {
		h.call(command).Ends(0, " open ")
	}
	promised := h.records("PoolPromised")
	free := known(h.status().Pools[0].Free)
	w.bound("rest", class, fmt.Sprint(free-11<<10))
	w.Eventually("the status tells it", func() bool {
		return h.status().Pools[0].Reason == "Promised"
	})
	now := h.status().Pools[0]
	if now.Open || !now.Full || known(now.Free) != 11<<10 || known(now.Used) == 0 {
		t.Errorf("%+v", now)
	}
	for _, command := range []string{"check", "status"} {
		h.call(command).Ends(3, "full: Promised ", " 11.0 KiB of ", "hint: delete volumes")
	}
	h.tells(`pool_open{pool="fast"} 0`, `pool_used_bytes{pool="fast"} `,
		`pool_finding{pool="fast",reason="Promised",severity="full"} 1`)
	promised.Fires()
	small := w.claim("small", class, "10Mi")
	w.refused(small, "NotEnoughSpace")
	w.DeleteClaim("rest")
	w.Bound("small")
	h.tells(`pool_open{pool="fast"} 1`)
	promised.Resolves()
	h.call("check").Ends(0)
	h.logged().Says("reason=Promised", "pool fast: open, ")
}
