package plan

import (
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

var handleOf = "csi-" + strings.Repeat("0a", 32)

// Which pool an inline volume asks for.
func TestInlinePool(t *testing.T) {
	type attributes = map[string]string
	for _, c := range []struct {
		name, driver string
		attributes   attributes
		pools        string
		want, text   string
	}{
		{"the only one", "d", nil, "fast", "fast", ""},
		{"kubelet's own attributes", "d", attributes{"csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/pod.name": "p"}, "fast", "fast", ""},
		{"named", "d", attributes{"storagePool": "slow", "size": "1Gi"}, "fast slow", "slow", ""},
		{"one of two, not named", "d", nil, "fast slow", "", "has to name one of the pools fast, slow"},
		{"one of two, named empty", "d", attributes{"storagePool": ""}, "fast slow", "", `no pool "" with inline_volumes`},
		{"a pool without them", "d", attributes{"storagePool": "gone"}, "fast", "", `no pool "gone" with inline_volumes`},
		{"none", "d", nil, "", "", "no pool of this node has them"},
		{"kubevirt's default", KubevirtCSI, nil, "fast legacy", "legacy", ""},
		{"kubevirt's default is not there", KubevirtCSI, nil, "fast", "fast", ""},
		{"kubevirt's, named", KubevirtCSI, attributes{"storagePool": "fast"}, "fast legacy", "fast", ""},
		{"a pool named legacy, of our driver", "d", nil, "fast legacy", "", "has to name one"},
		{"an unknown attribute", "d", attributes{"pool": "fast"}, "fast", "", `unknown attribute "pool"`},
	} {
		got, err := InlinePool(c.driver, c.attributes, strings.Fields(c.pools))
		if got != c.want || (err == nil) != (c.text == "") || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

func TestInlineHandle(t *testing.T) {
	for handle, want := range map[string]bool{
		handleOf: true, "": false, "csi-": false, "pvc-1": false, handleOf + "0": false, handleOf[1:]: false, strings.ToUpper(handleOf): false,
		"csi-" + strings.Repeat("..", 32): false, handleOf + "\n": false, "csi-" + strings.Repeat("g", 64): false,
	} {
		if InlineHandle(handle) != want {
			t.Errorf("%q: %t", handle, !want)
		}
	}
}

// What is refused, in which words, and what is looked at first.
func TestForInline(t *testing.T) {
	const gi = 1 << 30
	other := func(size int64) record.Record {
		return record.Record{Kind: record.Inline, PV: "csi-other", ClaimUID: "v", Place: record.InPool, Requested: size}
	}
	own := record.Record{Kind: record.Inline, PV: handleOf, ClaimUID: "u", Place: record.InPool, Requested: 5 * gi}
	for _, c := range []struct {
		name   string
		change func(*InlineFacts)
		size   int64
		want   string
	}{
		{"no size", func(f *InlineFacts) { f.Size = "" }, gi, ""},
		{"all that there is", func(f *InlineFacts) { f.Size = "10Gi" }, 10 * gi, ""},
		{"more than that", func(f *InlineFacts) { f.Size = "11Gi" }, 0, "pool fast: it would be promised 11.0 GiB, and of 10.0 GiB for all inline volumes (inline_volumes) 0 B are promised"},
		{"more than others leave", func(f *InlineFacts) { f.Size, f.Records = "6Gi", []record.Record{other(5 * gi)} }, 0, "of 10.0 GiB for all inline volumes (inline_volumes) 5.0 GiB are promised"},
		{"what others leave", func(f *InlineFacts) { f.Size, f.Records = "5Gi", []record.Record{other(5 * gi)} }, 5 * gi, ""},
		{"claims do not count", func(f *InlineFacts) {
			f.Records = []record.Record{{PV: "pvc-1", Place: record.InPool, Requested: 100 * gi}, {Kind: record.Snapshot, PV: "s", Place: record.InPool, Requested: 100 * gi}}
		}, gi, ""},
		{"what is in the trash counts", func(f *InlineFacts) { r := other(10 * gi); r.Place = record.Emptying; f.Records = []record.Record{r} }, 0, "10.0 GiB are promised"},
		{"what is gone does not", func(f *InlineFacts) { r := other(10 * gi); r.Place = record.Nowhere; f.Records = []record.Record{r} }, gi, ""},
		{"a budget that was made smaller", func(f *InlineFacts) { f.Records = []record.Record{other(11 * gi)} }, 0, "11.0 GiB are promised"},
		{"there already, and the pool is full", func(f *InlineFacts) {
			f.Size, f.Records, f.Room = "5Gi", []record.Record{own, other(5 * gi)}, capacity.Room{}
		}, 5 * gi, ""},
		{"another pod's", func(f *InlineFacts) { f.UID, f.Size, f.Records = "w", "6Gi", []record.Record{own} }, 0, "5.0 GiB are promised"},
		{"no room in the pool", func(f *InlineFacts) { f.Room.Free = gi - 1 }, 0, "pool fast: it would be promised 1.0 GiB, and"},
		{"the most", func(f *InlineFacts) {
			f.Size = "1Mi"
			for range inlineMost {
				f.Records = append(f.Records, other(1))
			}
		}, 0, "pool fast has 1000 inline volumes, which is the most"},
		{"too small", func(f *InlineFacts) { f.Size = "1Ki" }, 0, "its size is 1.0 KiB, and the least is 1.0 MiB"},
		{"nothing", func(f *InlineFacts) { f.Size = "0" }, 0, "the least is 1.0 MiB"},
		{"negative", func(f *InlineFacts) { f.Size = "-1Gi" }, 0, `size "-1Gi" is no size`},
		{"huge", func(f *InlineFacts) { f.Size = "1e999999999" }, 0, "is no size"},
		{"tiny, which takes seconds to compute", func(f *InlineFacts) { f.Size = "1e-10000000" }, 0, `size "1e-10000000" is no size, such as 1Gi`},
		{"as a fraction", func(f *InlineFacts) { f.Size = "1.5Gi" }, 3 * gi / 2, ""},
		{"with an exponent", func(f *InlineFacts) { f.Size = "2e9" }, 2e9, ""},
		{"more digits than a size has", func(f *InlineFacts) { f.Size = strings.Repeat("0", 30) + "1Gi" }, 0, "is no size, such as 1Gi"},
		{"100E", func(f *InlineFacts) { f.Size = "100E" }, 0, "is no size that a volume can have"},
		{"a word", func(f *InlineFacts) { f.Size = "large" }, 0, `size "large" is no size, such as 1Gi`},
		{"closed, before too large", func(f *InlineFacts) { f.Size, f.Closed = "11Gi", "/srv/fast is not mounted" }, 0, "pool fast: /srv/fast is not mounted"},
		{"closed, and there already", func(f *InlineFacts) { f.Records, f.Closed = []record.Record{own}, "not mounted" }, 0, "pool fast: not mounted"},
		{"off, before closed", func(f *InlineFacts) { f.Pool.Inline, f.Closed = 0, "not mounted" }, 0, "pool fast has no inline volumes (inline_volumes)"},
		{"another source", func(f *InlineFacts) { f.Pool.Source = SourceLocal }, 0, "has no inline volumes"},
		{"a pool of several nodes", func(f *InlineFacts) { f.Pool.Scope = ScopeShared }, 0, "has no inline volumes"},
		{"another handle", func(f *InlineFacts) { f.Handle = "pvc-1" }, 0, "is none that kubelet gives"},
		{"a path for a pod", func(f *InlineFacts) { f.UID = "../u" }, 0, "is none that kubelet gives"},
		{"no pod", func(f *InlineFacts) { f.UID = "" }, 0, "is none that kubelet gives"},
	} {
		f := InlineFacts{Handle: handleOf, Size: "1Gi", UID: "u", Pool: Pool{Name: "fast", Source: SourceCSI, Scope: ScopeNode, Inline: 10 * gi}, Room: capacity.Room{Free: 100 * gi}}
		c.change(&f)
		size, refused := ForInline(f)
		if c.want == "" && (refused != "" || size != c.size) || !strings.Contains(refused, c.want) {
			t.Errorf("%s: %d, %q", c.name, size, refused)
		}
	}
}

// A record of an inline volume is removed when neither a mount nor kubelet has it, and no other
// record is.
func TestForInlineRecord(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*InlineRecordFacts)
		want   Action
	}{
		{"its pod is gone", func(*InlineRecordFacts) {}, Delete},
		{"mounted", func(f *InlineRecordFacts) { f.Mounted = true }, Keep},
		{"of a pod that starts", func(f *InlineRecordFacts) { f.Pod = true }, Keep},
		{"both", func(f *InlineRecordFacts) { f.Mounted, f.Pod = true, true }, Keep},
		{"whole in the trash", func(f *InlineRecordFacts) { f.Record.Place = record.InTrash }, Delete},
		{"whole in the trash, and its pod starts again", func(f *InlineRecordFacts) { f.Record.Place, f.Pod = record.InTrash, true }, Keep},
		{"half purged", func(f *InlineRecordFacts) { f.Record.Place, f.Pod = record.Emptying, true }, Finish},
		{"gone", func(f *InlineRecordFacts) { f.Record.Place = record.Nowhere }, Undo},
		{"in the archive", func(f *InlineRecordFacts) { f.Record.Place = record.InArchive }, Keep},
		{"in staging", func(f *InlineRecordFacts) { f.Record.Place = record.InStaging }, Keep},
		{"another node's", func(f *InlineRecordFacts) { f.Record.Node = "other" }, Keep},
		{"this node's, by its former name", func(f *InlineRecordFacts) { f.Record.Node, f.Former = "old", []string{"old"} }, Delete},
		{"retained", func(f *InlineRecordFacts) { f.Record.Retained = true }, Keep},
		{"a claim's", func(f *InlineRecordFacts) { f.Record.Kind = record.Volume }, Keep},
		{"a claim's in the trash", func(f *InlineRecordFacts) { f.Record.Kind, f.Record.Place = record.Volume, record.Emptying }, Keep},
		{"a snapshot", func(f *InlineRecordFacts) { f.Record.Kind = record.Snapshot }, Keep},
	} {
		f := InlineRecordFacts{Self: self, Record: record.Record{Kind: record.Inline, PV: handleOf, Node: us, Place: record.InPool}}
		c.change(&f)
		if got := ForInlineRecord(f); got.Action != c.want {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
}
