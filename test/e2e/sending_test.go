package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// What is written between send and receive is never lost: as long as a stream can be received no
// pod has the volume, wherever the calls were killed; a pod that came during send, or a write of
// which nothing is known, ends the stream without its end; and of a volume that was taken back, or
// sent again, no earlier stream is received.
func TestSendLosesNoWrite(t *testing.T) {
	w, a, b, class := twoHosts(t)
	pv := a.made("data", class)
	dir := cluster.PathOf(pv)
	w.Must(os.WriteFile(filepath.Join(dir, "large"), bytes.Repeat([]byte("large"), 1<<20), 0o640))

	// Written to by what no pod is, while it is sent.
	stream, said := a.sendsWhile(pv.Name, func() {
		w.Must(os.WriteFile(filepath.Join(dir, "late"), []byte("late"), 0o600))
	})
	said.Fails("writes to the volume")
	b.refusesStream(stream, "sent again")
	a.follows("data") // and is not parked

	// A pod comes while it is sent.
	stream, said = a.sendsWhile(pv.Name, func() {
		w.pod("comes", nil, "data")
		w.runsOn("comes", a)
	})
	said.Fails("pod " + w.Namespace + "/comes on node")
	w.deletePod("comes")
	b.refusesStream(stream, "sent again")

	// Killed anywhere, it is sent by the next call; and no pod runs from then on.
	k := w.killer()
	k.toTheEnd(a, "volume", "send", pv.Name)
	k.diedAt(5)
	first := a.sent(pv.Name)
	w.pod("waits", nil, "data")
	w.Eventually("no node meets the affinity", func() bool {
		return w.refusedFor("waits", "node affinity")
	})

	// Taken back, and killed anywhere at that, it is here for pods, and the stream is void.
	k.kinds = map[string]int{}
	k.toTheEnd(a, "volume", "send", "--abort", pv.Name)
	a.follows("data")
	w.runsOn("waits", a)
	w.Must(os.WriteFile(filepath.Join(dir, "written"), []byte("by the pod"), 0o600))
	w.deletePod("waits")
	b.refusesStream(first, "sent again")
	second := a.sent(pv.Name)
	b.refusesStream(first, "sent again")

	// Its data is there, and the object is not made, before it is taken back.
	k.kinds, k.at, k.input = map[string]int{}, nil, second
	_, err := k.once(b, "volume", "receive", "fast")
	if err == nil || !slices.Equal(k.at, []string{"DELETE persistentvolumes"}) {
		t.Errorf("%v, killed at %q", err, k.at)
	}
	a.aborts("data", pv.Name)
	b.receives(second).Fails("has it again")
	w.Must(os.WriteFile(filepath.Join(dir, "last"), []byte("by another pod"), 0o600))
	b.receives(a.sent(pv.Name)).Ends(0)
	got := cluster.PathOf(b.follows("data"))
	for _, name := range []string{"late", "written", "last"} {
		need(os.Stat(filepath.Join(got, name)))(w)
	}
}

// The first stream of a volume in use, which is the long one, is cut off twice, and gone on with:
// what came is not sent again, whatever changed, came or went meanwhile, also when the daemon starts
// again. Sent as a whole it begins again.
func TestSendResumed(t *testing.T) {
	w, a, b, class := twoHosts(t)
	pv := w.bound("data", class, "50Mi", annotate(provisionOnNode, a.node))
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
		said := b.receives(stream[:len(stream)/2]).Fails().Out
		from := goesOn.FindStringSubmatch(said)
		if from == nil {
			t.Fatal(said)
		}
		b.again() // it sweeps staging
		b.showsNothing()
		put(i, "changed")
		put(17+i, "new")
		args = []string{"--live", "-i", from[1]}
		if stream = a.sent(pv.Name, args...); len(stream) > whole*3/4 {
			t.Errorf("of %d bytes %d are sent again", whole, len(stream))
		}
	}
	said := b.receives(stream).Ends(0).Out
	next := regexp.MustCompile(`send -i (\S+) ` + pv.Name).FindStringSubmatch(said)[1]
	b.receives(stream).Fails("goes on from another one")
	for _, bad := range []string{next + "@", next + "@x", next + "@0", "@7"} {
		a.sendsNothing(pv.Name, "is no stream's name", "-i", bad)
	}
	w.Must(os.Remove(filepath.Join(dir, "large-16")))
	b.receives(a.sent(pv.Name, "-i", next)).Ends(0)
	hosttest.Run(t, "diff", "-r", dir, cluster.PathOf(b.follows("data")))
}

// sendsWhile is sends of more than a pipe takes; during is called before it is read to its end.
func (h *host) sendsWhile(pv string, during func()) (stream []byte, said fixture.Answer) {
	h.w.Helper()
	var text bytes.Buffer
	args := []string{"volume", "send", pv}
	c := h.Command(args...)
	c.Stderr = &text
	out := need(c.StdoutPipe())(h.w)
	h.w.Must(c.Start())
	stream = make([]byte, 1<<16)
	need(io.ReadFull(out, stream))(h.w)
	during()
	rest := need(io.ReadAll(out))(h.w)
	_ = c.Wait() // the exit code has it
	return append(stream, rest...), h.ended(c, args, text.String())
}

// The pods of a volume go on while it is sent, and stop for what changed alone; until then nothing
// is seen on the other node, whose copy waits in staging, also when its daemon looks, and when a
// call is killed. A stream that goes on from another one than is there is refused. With the last
// one the claim follows, with what was changed, removed and renamed since.
func TestSendIncremental(t *testing.T) {
	w, a, b, class := twoHosts(t)
	pv := w.bound("data", class, "50Mi", annotate(provisionOnNode, a.node))
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
	w.runsOn("uses", a)

	live := a.sent(pv.Name, "--live")
	b.receives(live[:len(live)/2]).Fails("cut off")
	b.refusesStream(live, "send one with --backup", "--new-cluster")
	said := b.receives(live).Ends(0).Out
	base := regexp.MustCompile(`send -i (\S+) ` + pv.Name).FindStringSubmatch(said)
	if base == nil {
		t.Fatalf("received and said:\n%s", said)
	}
	put("changes", "after")
	more := a.sent(pv.Name, "--live", "-i", base[1])
	if len(more) > len(large)/4 {
		t.Errorf("what changed is %d bytes", len(more))
	}
	b.receives(more[:len(more)-1]).Fails() // takes nothing of the base
	b.again()                              // it sweeps staging
	said = b.receives(more).Ends(0).Out
	next := regexp.MustCompile(`send -i (\S+) ` + pv.Name).FindStringSubmatch(said)[1]
	b.refusesStream(more, "goes on from another one than was received here")
	b.showsNothing()

	a.sendsNothing(pv.Name, "uses volume "+pv.Name, "-i", next)
	a.sendsNothing(pv.Name, "is no stream's name", "-i", "yesterday")
	w.Must(os.Remove(filepath.Join(dir, "goes")))
	w.Must(os.Rename(filepath.Join(dir, "sub"), filepath.Join(dir, "renamed")))
	put("late", "late")
	w.deletePod("uses")
	last := a.sent(pv.Name, "-i", next)
	if len(last) > len(large)/4 {
		t.Errorf("what changed is %d bytes", len(last))
	}
	w.pod("waits", nil, "data")
	b.receives(last[:len(last)-1]).Fails("cut off")
	k := w.killer()
	k.input = last
	k.toTheEnd(b, "volume", "receive", "fast")
	k.diedAt(6)
	hosttest.Run(t, "diff", "-r", dir, cluster.PathOf(b.follows("data")))
	w.runsOn("waits", b)
	b.wantTree(append(before, pool.Of(pv.Name)...)...)

	// What came of a volume in use, and is not wanted any more, is dropped by a word.
	back := b.sent(pv.Name, "--live")
	a.receives(back).Fails("volume of this name")
	a.call("volume", "drop", pv.Name).Becomes("dropped") // once the old copy is retained
	a.receives(back).Ends(0)
	a.call("volume", "drop", pv.Name).Ends(0)
	a.wantTree()
}

// While a volume is received its room is no other claim's.
func TestReceiveIsPromised(t *testing.T) {
	w, a, b, class := twoHosts(t)
	b.made("before", class) // so that the daemon has counted
	pv := w.bound("large", class, "50Mi", annotate(provisionOnNode, a.node))
	w.Must(os.WriteFile(filepath.Join(cluster.PathOf(pv), "data"), []byte("large"), 0o600))
	w.Must(os.WriteFile(filepath.Join(cluster.PathOf(pv), "more"),
		bytes.Repeat([]byte("large"), 1<<20), 0o600))
	stream := a.sent(pv.Name)
	c, in := b.receivesMost(stream, pv.Name)
	w.claim("second", class, "50Mi", annotate(provisionOnNode, b.node))
	w.event(w.get("second"), "NotEnoughSpace")
	_, err := in.Write(stream[len(stream)*3/4:])
	w.Must(errors.Join(err, in.Close(), c.Wait()))
	b.follows("large")
	if now := w.get("second"); now.Status.Phase == corev1.ClaimBound {
		t.Error("the other claim has got the room, too")
	}
}
