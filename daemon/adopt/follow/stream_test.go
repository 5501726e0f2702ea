package follow

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// headOf is a stream's head of a volume with such a record.
func headOf(t *testing.T, change func(*record.Record)) Head {
	t.Helper()
	r := record.Record{PV: "pvc-1", Namespace: "ns", Claim: "c", Directory: "dir", Requested: 1}
	if change != nil {
		change(&r)
	}
	text, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return Head{Stream: "s", Cluster: "x", Record: text, Entries: 1, Bytes: 1}
}

// What is no head of a volume's stream is refused, whoever wrote it: nothing is made of a name that
// leads out of the pool, of a later version, or of what is no volume.
func TestReadHead(t *testing.T) {
	of := func(h any) []byte {
		var stream bytes.Buffer
		stream.WriteString(streamMagic)
		e := treecopy.NewEncoder(&stream)
		if err := errors.Join(treecopy.WriteItem(e, h), e.End()); err != nil {
			t.Fatal(err)
		}
		return stream.Bytes()
	}
	with := func(change func(*Head)) []byte { h := headOf(t, nil); change(&h); return of(h) }
	recorded := func(change func(*record.Record)) []byte { return of(headOf(t, change)) }
	good, bad := of(headOf(t, nil)), treecopy.ErrStream
	recordOf := func(text string) []byte {
		return with(func(h *Head) { h.Record = json.RawMessage(text) })
	}
	for name, c := range map[string]struct {
		stream []byte
		want   error
	}{
		"good":          {good, nil},
		"empty":         {nil, errNoStream},
		"other text":    {[]byte("hostpath-provisioner volume 2\nxxxx"), errNoStream},
		"cut off":       {good[:len(good)-40], treecopy.ErrCutOff},
		"an odd field":  {of(map[string]string{"path": "/etc"}), bad},
		"a large one":   {of(strings.Repeat("x", 2*record.MaxSize)), bad},
		"no UID":        {with(func(h *Head) { h.Stream = "" }), bad},
		"less than 0":   {with(func(h *Head) { h.Bytes = -1 }), bad},
		"no record":     {recordOf("{}"), bad},
		"a newer one":   {recordOf(`{"version":99}`), bad},
		"a snapshot":    {recorded(func(r *record.Record) { r.Kind = record.Snapshot }), bad},
		"no size":       {recorded(func(r *record.Record) { r.Requested = 0 }), bad},
		"name ..":       {recorded(func(r *record.Record) { r.PV = ".." }), bad},
		"a path":        {recorded(func(r *record.Record) { r.PV = "../x" }), bad},
		"directory ..":  {recorded(func(r *record.Record) { r.Directory = ".." }), bad},
		"directory a/b": {recorded(func(r *record.Record) { r.Directory = "a/b" }), bad},
		"our directory": {recorded(func(r *record.Record) { r.Directory = record.OwnDir }), bad},
	} {
		h, r, rest, err := ReadHead(bytes.NewReader(c.stream))
		if c.want != nil {
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || h.Stream != "s" || r.PV != "pvc-1" {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
		if more, err := io.ReadAll(rest); err != nil || len(more) > 0 {
			t.Errorf("%s: %d bytes follow, %v", name, len(more), err)
		}
	}
}

// What is recorded of a volume on this node has nothing of the other one's: not its project, and
// not the object that was replaced there.
func TestReceivedRecord(t *testing.T) {
	o := Receiving{Head: Head{Stream: "s"}, Is: record.Record{PV: "pvc-1", Node: "a", ProjectID: 7,
		Replaced: "{}", Moving: "{}", Sent: "s", Retained: true, Unpublished: true, Requested: 5,
		Scope: "shared", Reclaim: "Retain", Directory: "dir", Unheld: true}}
	o.Node = "b"
	want := record.Record{PV: "pvc-1", Node: "b", Scope: "node", Requested: 5, Reclaim: "Retain",
		Directory: "dir", Unheld: true,
		Origin: record.Origin{Kind: record.Stream, Name: "pvc-1", UID: "s"}}
	if got := o.record(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
