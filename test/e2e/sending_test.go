package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// What is written between send and receive is never lost: as long as a stream can be received no
// pod has the volume, wherever the calls were killed; a pod that came during send, or a write of
// which nothing is known, ends the stream without its end; and of a volume that was taken back, or
// sent again, no earlier stream is received.
func TestSendLosesNoWrite(t *testing.T) {
	w := newEnvironment(t)
	a, b := w.newHost("a").quiet().run(), w.newHost("b").quiet().run()
	pv := a.writes("data", w.Class("local", immediate))
	dir := cluster.PathOf(pv)
	w.Must(os.WriteFile(filepath.Join(dir, "large"), bytes.Repeat([]byte("large"), 1<<20), 0o640))

	// Written to by what no pod is, while it is sent.
	stream, said, err := a.sendsWhile(pv.Name, func() {
		w.Must(os.WriteFile(filepath.Join(dir, "late"), []byte("late"), 0o600))
	})
	if err == nil || !strings.Contains(said, "writes to the volume") {
		t.Errorf("written to meanwhile: %v\n%s", err, said)
	}
	b.refusesStream(stream, "sent again")
	a.follows("data") // and is not parked

	// A pod comes while it is sent.
	stream, said, err = a.sendsWhile(pv.Name, func() {
		w.pod("comes", nil, "data")
		w.Eventually("the pod has its node", func() bool { return w.nodeOf("comes") == a.node })
	})
	if err == nil || !strings.Contains(said, "pod "+w.Namespace+"/comes on node") {
		t.Errorf("a pod came meanwhile: %v\n%s", err, said)
	}
	w.deletePod("comes")
	b.refusesStream(stream, "sent again")

	// Killed anywhere, it is sent by the next call; and no pod runs from then on.
	k := w.killer()
	k.toTheEnd(a, "volume", "send", pv.Name)
	if len(k.at) < 5 {
		t.Errorf("killed at %q", k.at)
	}
	first := a.sent(pv.Name)
	w.pod("waits", nil, "data")
	w.Eventually("no node meets the affinity", func() bool {
		return w.unschedulable("waits", "node affinity")
	})

	// Taken back, and killed anywhere at that, it is here for pods, and the stream is void.
	k.kinds = map[string]int{}
	k.toTheEnd(a, "volume", "send", "--abort", pv.Name)
	a.follows("data")
	w.Eventually("the pod has its node", func() bool { return w.nodeOf("waits") == a.node })
	w.Must(os.WriteFile(filepath.Join(dir, "written"), []byte("by the pod"), 0o600))
	w.deletePod("waits")
	b.refusesStream(first, "sent again")
	second := a.sent(pv.Name)
	b.refusesStream(first, "sent again")

	// Its data is there, and the object is not made, before it is taken back.
	k.kinds, k.at, k.died = map[string]int{}, nil, false
	k.cmd = b.Command("volume", "receive", "fast", "--kubeconfig", k.kubeconfig())
	k.cmd.Stdin = bytes.NewReader(second)
	if err := k.cmd.Run(); err == nil || !slices.Equal(k.at, []string{"DELETE persistentvolumes"}) {
		t.Errorf("%v, killed at %q", err, k.at)
	}
	k.cmd = nil
	a.aborts("data", pv.Name)
	if said, err := b.receives(second); err == nil || !strings.Contains(said, "has it again") {
		t.Errorf("received although it was taken back: %v\n%s", err, said)
	}
	w.Must(os.WriteFile(filepath.Join(dir, "last"), []byte("by another pod"), 0o600))
	if said, err := b.receives(a.sent(pv.Name)); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	got := cluster.PathOf(b.follows("data"))
	for _, name := range []string{"late", "written", "last"} {
		if _, err := os.Stat(filepath.Join(got, name)); err != nil {
			t.Error(err)
		}
	}
}

// The first stream of a volume in use, which is the long one, is cut off twice, and gone on with:
// what came is not sent again, whatever changed, came or went meanwhile, also when the daemon starts
// again. Sent as a whole it begins again.
func TestSendResumed(t *testing.T) {
	w := newEnvironment(t)
	a, b := w.newHost("a").quiet().run(), w.newHost("b").quiet().run()
	w.claim("data", w.Class("local", immediate), "50Mi", annotate(provisionOnNode, a.node))
	pv := w.Bound("data")
	dir := cluster.PathOf(pv)
	put := func(i int, text string) {
		file := filepath.Join(dir, fmt.Sprint("large-", i))
		w.Must(os.WriteFile(file, bytes.Repeat([]byte(text), 1<<18), 0o600))
	}
	for i := range 16 {
		put(i, "before")
	}
	put(16, "gone")
	w.Must(os.WriteFile(filepath.Join(dir, "data"), []byte("data"), 0o600))

	goesOn := regexp.MustCompile(`send --live -i (\S+@\d+) ` + pv.Name)
	args := []string{"--live"}
	stream := a.sent(pv.Name, args...)
	whole := len(stream)
	for i := range 2 {
		said, err := b.receives(stream[:len(stream)/2])
		from := goesOn.FindStringSubmatch(said)
		if err == nil || from == nil {
			t.Fatalf("%v\n%s", err, said)
		}
		b.Kill()
		b.run() // it sweeps staging
		b.showsNothing()
		put(i, "changed")
		put(17+i, "new")
		args = []string{"--live", "-i", from[1]}
		if stream = a.sent(pv.Name, args...); len(stream) > whole*3/4 {
			t.Errorf("of %d bytes %d are sent again", whole, len(stream))
		}
	}
	said, err := b.receives(stream)
	w.Must(err)
	next := regexp.MustCompile(`send -i (\S+) ` + pv.Name).FindStringSubmatch(said)[1]
	if said, err := b.receives(stream); err == nil ||
		!strings.Contains(said, "goes on from another one") {
		t.Errorf("%v\n%s", err, said)
	}
	for _, bad := range []string{next + "@", next + "@x", next + "@0", "@7"} {
		if _, said, err := a.sends(pv.Name, "-i", bad); err == nil ||
			!strings.Contains(said, "is no stream's name") {
			t.Errorf("%s: %v\n%s", bad, err, said)
		}
	}
	w.Must(os.Remove(filepath.Join(dir, "large-16")))
	if said, err := b.receives(a.sent(pv.Name, "-i", next)); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	out, err := exec.Command("diff", "-r", dir, cluster.PathOf(b.follows("data"))).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// unschedulable reports whether the scheduler has found no node for a pod, and says this.
func (w *environment) unschedulable(pod, why string) bool {
	w.Helper()
	p, err := w.Client().CoreV1().Pods(w.Namespace).Get(w.Ctx, pod, metav1.GetOptions{})
	w.Must(err)
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && strings.Contains(c.Message, why)
	})
}

// sendsWhile is sends of more than a pipe takes; during is called before it is read to its end.
func (h *host) sendsWhile(pv string, during func()) (stream []byte, said string, err error) {
	h.w.Helper()
	var text bytes.Buffer
	c := h.Command("volume", "send", pv)
	c.Stderr = &text
	out, err := c.StdoutPipe()
	h.w.Must(err)
	h.w.Must(c.Start())
	stream = make([]byte, 1<<16)
	_, err = io.ReadFull(out, stream)
	h.w.Must(err)
	during()
	rest, err := io.ReadAll(out)
	h.w.Must(err)
	return append(stream, rest...), text.String(), c.Wait()
}

// The pods of a volume go on while it is sent, and stop for what changed alone; until then nothing
// is seen on the other node, whose copy waits in staging, also when its daemon looks, and when a
// call is killed. A stream that goes on from another one than is there is refused. With the last
// one the claim follows, with what was changed, removed and renamed since.
func TestSendIncremental(t *testing.T) {
	w := newEnvironment(t)
	a, b := w.newHost("a").quiet().run(), w.newHost("b").quiet().run()
	w.claim("data", w.Class("local", immediate), "50Mi", annotate(provisionOnNode, a.node))
	pv := w.Bound("data")
	dir, before := cluster.PathOf(pv), b.tree()
	large := bytes.Repeat([]byte("large"), 1<<19)
	put := func(name, text string) {
		w.Must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	w.Must(os.WriteFile(filepath.Join(dir, "large"), large, 0o640))
	w.Must(os.Mkdir(filepath.Join(dir, "sub"), 0o750))
	put("data", "data")
	put("sub/stays", "as it is")
	put("goes", "away")
	put("changes", "before")
	w.pod("uses", nil, "data")
	w.Eventually("the pod has its node", func() bool { return w.nodeOf("uses") == a.node })

	live := a.sent(pv.Name, "--live")
	if said, err := b.receives(live[:len(live)/2]); err == nil ||
		!strings.Contains(said, "cut off") {
		t.Errorf("%v\n%s", err, said)
	}
	b.refusesStream(live, "of a volume in use", "--new-cluster")
	said, err := b.receives(live)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	base := regexp.MustCompile(`send -i (\S+) ` + pv.Name).FindStringSubmatch(said)
	if base == nil {
		t.Fatalf("received and said:\n%s", said)
	}
	put("changes", "after")
	more := a.sent(pv.Name, "--live", "-i", base[1])
	if len(more) > len(large)/4 {
		t.Errorf("what changed is %d bytes", len(more))
	}
	if _, err := b.receives(more[:len(more)-1]); err == nil { // takes nothing of the base
		t.Error("cut off, and taken")
	}
	b.Kill()
	b.run() // it sweeps staging
	said, err = b.receives(more)
	w.Must(err)
	next := regexp.MustCompile(`send -i (\S+) ` + pv.Name).FindStringSubmatch(said)[1]
	b.refusesStream(more, "goes on from another one than was received here")
	b.showsNothing()

	if _, said, err := a.sends(pv.Name, "-i", next); err == nil ||
		!strings.Contains(said, "uses volume "+pv.Name) {
		t.Errorf("in use, sent to its end: %v\n%s", err, said)
	}
	if _, said, err := a.sends(pv.Name, "-i", "yesterday"); err == nil ||
		!strings.Contains(said, "is no stream's name") {
		t.Errorf("%v\n%s", err, said)
	}
	w.Must(os.Remove(filepath.Join(dir, "goes")))
	w.Must(os.Rename(filepath.Join(dir, "sub"), filepath.Join(dir, "renamed")))
	put("late", "late")
	w.deletePod("uses")
	last := a.sent(pv.Name, "-i", next)
	if len(last) > len(large)/4 {
		t.Errorf("what changed is %d bytes", len(last))
	}
	w.pod("waits", nil, "data")
	said, err = b.receives(last[:len(last)-1])
	if err == nil || !strings.Contains(said, "cut off") {
		t.Errorf("%v\n%s", err, said)
	}
	k := w.killer()
	k.input = last
	k.toTheEnd(b, "volume", "receive", "fast")
	if now := b.follows("data"); len(k.at) < 6 {
		t.Errorf("killed at %q", k.at)
	} else {
		out, err := exec.Command("diff", "-r", dir, cluster.PathOf(now)).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	w.Eventually("the pod follows", func() bool { return w.nodeOf("waits") == b.node })
	b.wantTree(append(before, pool.Of(pv.Name)...)...)

	// What came of a volume in use, and is not wanted any more, is dropped by a word.
	back := b.sent(pv.Name, "--live")
	if said, err := a.receives(back); err == nil || !strings.Contains(said, "volume of this name") {
		t.Errorf("over the old copy: %v\n%s", err, said)
	}
	w.Eventually("the old copy is retained", func() bool {
		out, code := a.Call("volume", "drop", pv.Name)
		return code == 0 && strings.Contains(out, "dropped")
	})
	if said, err := a.receives(back); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	if out, code := a.Call("volume", "drop", pv.Name); code != 0 {
		t.Errorf("dropped: exit code %d\n%s", code, out)
	}
	a.wantTree()
}

// While a volume is received its room is no other claim's.
func TestReceiveIsPromised(t *testing.T) {
	w := newEnvironment(t)
	a, b := w.newHost("a").quiet().run(), w.newHost("b").quiet().run()
	class := w.Class("c", immediate)
	b.writes("before", class) // so that the daemon has counted
	w.claim("large", class, "50Mi", annotate(provisionOnNode, a.node))
	pv := w.Bound("large")
	w.Must(os.WriteFile(filepath.Join(cluster.PathOf(pv), "data"), []byte("large"), 0o600))
	w.Must(os.WriteFile(filepath.Join(cluster.PathOf(pv), "more"),
		bytes.Repeat([]byte("large"), 1<<20), 0o600))
	stream := a.sent(pv.Name)
	c := b.Command("volume", "receive", "fast")
	in, err := c.StdinPipe()
	w.Must(err)
	w.Must(c.Start())
	_, err = in.Write(stream[:len(stream)*3/4])
	w.Must(err)
	w.Eventually("some of it came", func() bool {
		some, _ := os.ReadDir(filepath.Join(b.ours("staging"), pv.Name))
		return len(some) > 0
	})
	w.claim("second", class, "50Mi", annotate(provisionOnNode, b.node))
	if _, err := w.WaitEvent(w.Soon(), w.claimNamed("second"), "NotEnoughSpace"); err != nil {
		t.Error(err)
	}
	_, err = in.Write(stream[len(stream)*3/4:])
	w.Must(errors.Join(err, in.Close(), c.Wait()))
	b.follows("large")
	if now := w.claimNamed("second"); now.Status.Phase == corev1.ClaimBound {
		t.Error("the other claim has got the room, too")
	}
}
