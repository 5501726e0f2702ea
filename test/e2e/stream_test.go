package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/follow"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// sends calls send, and returns the stream, too.
func (h *host) sends(pv string, args ...string) (stream []byte, said fixture.Answer) {
	h.w.Helper()
	var out, text bytes.Buffer
	args = append([]string{"volume", "send", pv}, args...)
	c := h.Command(args...)
	c.Stdout, c.Stderr = &out, &text
	_ = c.Run() // the exit code has it
	return out.Bytes(), h.ended(c, args, text.String())
}

// sendsNothing wants a call of send to fail with these words.
func (h *host) sendsNothing(pv, want string, args ...string) {
	h.w.Helper()
	_, said := h.sends(pv, args...)
	said.Fails(want)
}

// sent is the stream of a volume that no pod uses.
func (h *host) sent(pv string, args ...string) []byte {
	h.w.Helper()
	stream, said := h.sends(pv, args...)
	said.Ends(0)
	return stream
}

// receives calls receive with this stream.
func (h *host) receives(stream []byte, args ...string) fixture.Answer {
	h.w.Helper()
	args = append([]string{"volume", "receive", "fast"}, args...)
	c := h.Command(args...)
	c.Stdin = bytes.NewReader(stream)
	out, _ := c.CombinedOutput() // the exit code has it
	return h.ended(c, args, string(out))
}

// refusesStream wants a stream refused with these words, and nothing changed.
func (h *host) refusesStream(stream []byte, want string, args ...string) {
	h.w.Helper()
	before := h.tree()
	h.receives(stream, args...).Fails(want)
	if now := h.tree(); !slices.Equal(now, before) {
		h.w.Errorf("%q: the pool has\n%q, before\n%q", want, now, before)
	}
}

// A volume goes to another node without its disk, beside both daemons: its claim follows, and its
// pod; however often the call is killed. Before that nothing of it is seen there. The old copy
// stays, retained, until it is dropped. A volume that a pod uses is not sent, and of two streams
// the older one is not received. It goes back in the same way.
func TestSendVolume(t *testing.T) {
	w := withDriver(t)
	a, b := w.newHost("a").quiet().run(), w.newHost("b").quiet().run()
	data := a.made("data", w.Class("local", immediate))
	csi := a.made("csi", w.Class("csi", immediate, fixture.Parameters("source", "csi")))
	old := cluster.PathOf(data)
	w.Must(os.WriteFile(filepath.Join(old, "large"), bytes.Repeat([]byte("large"), 1<<19), 0o640))
	w.Must(os.Link(filepath.Join(old, "large"), filepath.Join(old, "link")))
	w.Must(os.Chown(old, 1000, 1001))
	w.pod("uses", nil, "data")
	w.runsOn("uses", a)
	part, told := a.sends(data.Name)
	if told.Fails("pod " + w.Namespace + "/uses uses volume " + data.Name); len(part) > 0 {
		t.Errorf("%d bytes of a volume that is used", len(part))
	}
	b.sendsNothing(data.Name, "is named")
	w.deletePod("uses")
	older := a.sent(data.Name)
	a.aborts("data", data.Name)
	w.Must(os.WriteFile(filepath.Join(old, "late"), []byte("late"), 0o600))
	stream, before := a.sent(data.Name), b.tree()
	b.refusesStream(older, "sent again")
	b.refusesStream(stream[:len(stream)/2], "cut off")
	b.refusesStream(stream[:len(stream)-1], "cut off")
	b.refusesStream(slices.Replace(slices.Clone(stream), 2000, 2001, stream[2000]^1), "damaged")
	b.refusesStream(append([]byte("x"), stream...), "does not begin")
	a.refusesStream(stream, "the pool has a volume of this name")
	a.call("volumes", "fast").Says("sent")
	w.pod("waits", nil, "data")
	dies, _ := b.receivesMost(stream, data.Name)
	w.Must(dies.Process.Kill())
	_ = dies.Wait()
	b.showsNothing()
	k := w.killer()
	k.input = stream
	said := k.toTheEnd(b, "volume", "receive", "fast")
	if len(k.at) < 6 || !strings.Contains(said, "received "+data.Name) {
		t.Errorf("killed at %q\n%s", k.at, said)
	}
	now := b.follows("data")
	w.event(w.get("data"), "VolumeMoved")
	if now.UID == data.UID || now.Spec.ClaimRef.UID != data.Spec.ClaimRef.UID {
		t.Errorf("the volume is %+v", now)
	}
	same(t, old, cluster.PathOf(now))
	b.wantTree(append(before, pool.Of(data.Name)...)...)
	w.runsOn("waits", b)
	a.call("volume", "send", "--abort", data.Name).Ends(1, "it was received")
	b.receives(stream).Ends(0, "received before")
	b.refusesStream(older, "the pool has a volume of this name")
	b.call("volume", "drop", data.Name).Ends(1, "has a PersistentVolume: delete its claim")
	a.again()                                                // it looks at all records
	a.call("volumes", "fast").Becomes(data.Name, "retained") // the old copy
	a.wantData(old, "data")
	a.call("volume", "drop", data.Name).Ends(0)
	a.wantTree(pool.Of(csi.Name)...)

	w.deletePod("waits")
	a.receives(b.sent(data.Name)).Ends(0)
	a.follows("data")
	b.receives(a.sent(csi.Name)).Ends(0)
	b.follows("csi")
	w.Removes("csi", csi.Name)
	b.wantTree(append(before, pool.Of(data.Name)...)...) // the copy that was sent
}

// aborts takes a volume back that was sent, and wants its claim to have it here.
func (h *host) aborts(claim, pv string) {
	h.w.Helper()
	h.call("volume", "send", "--abort", pv).Ends(0)
	h.follows(claim)
}

// showsNothing wants no volume to be seen in the pool.
func (h *host) showsNothing() {
	h.w.Helper()
	if got := slices.DeleteFunc(h.tree(), func(name string) bool {
		return strings.HasPrefix(name, "ours/")
	}); len(got) > 0 {
		h.w.Errorf("it is seen before it is whole: %q", got)
	}
}

// receivesMost calls receive with a part of the stream, of which some is on the disk then.
func (h *host) receivesMost(stream []byte, pv string) (c *exec.Cmd, in io.WriteCloser) {
	h.w.Helper()
	c = h.Command("volume", "receive", "fast")
	in = need(c.StdinPipe())(h.w)
	h.w.Must(c.Start())
	need(in.Write(stream[:len(stream)*3/4]))(h.w)
	h.w.Eventually("some of it came", func() bool {
		some, _ := os.ReadDir(filepath.Join(h.ours("staging"), pv))
		return len(some) > 0
	})
	return c, in
}

// same compares two directories with diff(1), and the owner of the directories themselves.
func same(t *testing.T, one, other string) {
	t.Helper()
	for _, name := range []string{"data", "large", "link", "late"} {
		a := need(os.ReadFile(filepath.Join(one, name)))(t)
		if b, err := os.ReadFile(filepath.Join(other, name)); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: %v, %d bytes, want %d", name, err, len(b), len(a))
		}
	}
}

// rewritten is a stream with another head.
func (w *environment) rewritten(stream []byte, change func(*follow.Head)) []byte {
	w.Helper()
	head, _, rest, err := follow.ReadHead(bytes.NewReader(stream))
	w.Must(err)
	change(&head)
	var other bytes.Buffer
	e := need(follow.WriteHead(&other, head))(w)
	need(io.Copy(e, rest))(w)
	w.Must(e.End())
	return other.Bytes()
}

// Refused is what does not fit: a stream of another cluster's volume of the name, one whose claim
// is another by now, one that says less than comes, a pool of another cluster, and one without
// room.
func TestReceiveRefuses(t *testing.T) {
	w, a, b, class := twoHosts(t)
	pv := a.made("data", class)
	stream := a.sent(pv.Name)
	b.refusesStream(w.rewritten(stream, func(h *follow.Head) { h.Cluster = "another" }),
		"the stream is of another cluster's")
	b.refusesStream(w.rewritten(stream, func(h *follow.Head) { h.Bytes = 3 }), "more data than")
	b.refusesStream(w.rewritten(stream, func(h *follow.Head) { h.Entries = 0 }), "more data than")
	b.refusesStream(w.rewritten(stream, func(h *follow.Head) { h.Bytes = 1 << 40 }), "has no room")
	marker := b.ours("pool.json")
	was := need(os.ReadFile(marker))(w)
	b.editMarkers(func(m map[string]any) { m["cluster"] = "another" }, marker)
	b.refusesStream(stream, "OtherCluster")
	w.Must(os.WriteFile(marker, was, 0o600))
	w.Retain(pv.Name)
	w.Releases("data", pv.Name)
	w.claim("data", class, "1Mi", annotate(provisionOnNode, "nobody"))
	b.refusesStream(stream, "is another one than the volume's")
	a.call("volume", "drop", pv.Name).Ends(1, "has a PersistentVolume")
	w.RemovesVolume(pv.Name)
	a.call("volume", "drop", pv.Name).Becomes("dropped " + pv.Name) // once it is retained
	a.wantTree()
}

// A stream is a backup: where the cluster has nothing of the volume, it is made from it, and its
// claim with it. One of a volume whose claim is another by now is refused, and so is one where
// there is no room.
func TestReceiveBackup(t *testing.T) {
	w, a, b, class := twoHosts(t)
	pv := a.made("data", class)
	stream, k := a.sent(pv.Name, "--backup"), w.killer()
	b.refusesStream(stream, "is a backup, and the cluster has the volume")
	a.call("volumes", "fast").Lacks("sent") // it was only backed up
	w.Removes("data", pv.Name)
	b.refusesStream(stream, "with --new-cluster")
	w.claim("data", class, "1Mi", annotate(provisionOnNode, "nobody"))
	b.refusesStream(stream, "is not its own", "--new-cluster")
	w.DeleteClaim("data")
	b.call("pool", "cordon", "fast").Ends(0)
	b.refusesStream(stream, "PoolCordoned", "--new-cluster")
	b.call("pool", "uncordon", "fast").Ends(0)
	again := []string{"volume", "receive", "fast", "--new-cluster", "--claims", "--class",
		class + "=" + w.Class("new", immediate)}
	k.input = stream
	k.toTheEnd(b, again...)
	now := b.follows("data")
	if now.Name != pv.Name || now.UID == pv.UID || now.Spec.PersistentVolumeReclaimPolicy !=
		corev1.PersistentVolumeReclaimDelete || len(k.at) < 4 {
		t.Errorf("killed at %q: %+v", k.at, now)
	}
	w.Removes("data", pv.Name)
	b.receives(stream, "--new-cluster").Ends(0)
	w.Retain(pv.Name)
	patch := `{"spec":{"claimRef":{"uid":%q}}}` // a kube-controller-manager's that is late
	w.PatchVolume(pv.Name, types.MergePatchType, fmt.Sprintf(patch, "gone"))
	k.fails = true
	if said := k.toTheEnd(b, again...); !strings.Contains(said, "was deleted meanwhile") {
		t.Error(said)
	}
	w.PatchVolume(pv.Name, types.MergePatchType, fmt.Sprintf(patch, ""))
	k.fails = false
	k.toTheEnd(b, again...)
	b.follows("data")
}
