package prepare

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

func recordsOf(nodes ...string) func(context.Context, hostcheck.Report) ([]string, error) {
	return func(context.Context, hostcheck.Report) ([]string, error) { return nodes, nil }
}

// The marker names one node, and remembers under which names its records may be.
func TestTakenOver(t *testing.T) {
	for name, c := range map[string]struct {
		node, former, from string
		recorded           []string
		want               string // the node and the former ones, or the error
	}{
		"the node of the marker":         {"node-b", "", "node-b", nil, "node-a [node-b]"},
		"again":                          {"node-a", "node-b", "node-b", nil, "node-a [node-b]"},
		"a second name":                  {"node-c", "node-b", "node-c", nil, "node-a [node-b node-c]"},
		"back under the first name":      {"node-b", "node-a", "node-b", nil, "node-a [node-b]"},
		"no node in the marker":          {"", "", "node-b", []string{"node-b"}, "node-a [node-b]"},
		"only records have the name":     {"node-a", "", "node-b", []string{"node-c", "node-b"}, "node-a [node-b]"},
		"its own name":                   {"node-a", "", "node-a", nil, "node-a []"},
		"another node's":                 {"node-c", "", "node-b", []string{"node-b"}, `the marker names node "node-c", not "node-b": the pool is not that node's`},
		"another node's, formerly that":  {"node-c", "node-b", "node-b", nil, `the marker names node "node-c", not "node-b": the pool is not that node's`},
		"nothing has the name":           {"node-a", "node-c", "node-b", []string{"node-a"}, `neither the marker nor a record names node "node-b": the pool is not that node's`},
		"nothing has the name, no owner": {"", "", "node-b", nil, `neither the marker nor a record names node "node-b": the pool is not that node's`},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Owner: Owner{Node: "node-a", From: c.from, Recorded: recordsOf(c.recorded...)}}
			m, err := o.takenOver(context.Background(), hostcheck.Report{}, hostcheck.Marker{Node: c.node, FormerNodes: c.former})
			got := m.Node + " [" + m.FormerNodes + "]"
			if err != nil {
				got = err.Error()
			}
			if got != c.want || err != nil && !errors.Is(err, ErrNotOwner) {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// ofNode is a prepared plain directory whose marker names a node and a cluster, as a daemon there
// wrote it.
func ofNode(t *testing.T, node string) *host {
	t.Helper()
	h := newHost(t)
	h.pool.RequireMount = false
	h.run(false)
	o := h.options()
	report := o.Check(t.Context())
	m, err := o.markerAt(report.Identity)
	h.must(err)
	m.Node, m.Cluster = node, "0a1b"
	h.must(o.Marking.Remark(t.Context(), report.Identity, *m))
	h.owner = Owner{Node: "node-a", Recorded: recordsOf()}
	return h
}

// marker is what the filesystem says, and whether the host remembers the same.
func (h *host) marker() string {
	h.t.Helper()
	files := []string{h.pool.Path + "/.hostpath-provisioner/pool.json", h.state + "/pools/fast.json"}
	var texts [2]string
	for i, file := range files {
		text, err := os.ReadFile(file)
		h.must(err)
		texts[i] = string(text)
	}
	m, err := hostcheck.DecodeMarker([]byte(texts[0]))
	h.must(err)
	said := m.Node + m.Scope + " [" + m.FormerNodes + "] in " + m.Cluster
	if texts[0] != texts[1] {
		said += ", and the host remembers another text"
	}
	return said
}

// A pool of another node is refused until the operator says whose it was; what is said twice is
// done once.
func TestHandOver(t *testing.T) {
	h := ofNode(t, "node-b")
	refused := `error: pool "fast": /pool is a pool of node "node-b", and this node's name is "node-a"`
	h.want(h.run(false), refused)
	h.want(h.run(true), refused)
	h.owner.From = "node-c"
	h.want(h.run(false), `error: pool "fast": the marker names node "node-b", not "node-c": the pool is not that node's`)
	h.owner.From = "node-b"
	h.want(h.run(false), "noted in marker ID that the pool was node node-b's and is node node-a's",
		`note: PersistentVolumes keep the name of node node-b: see docs/operation.md, "A node with another name"`)
	h.want(h.marker(), "node-a [node-b] in 0a1b")
	again := h.options()
	again.Marking = marking{again.Marking, nil, errors.New("the marker is written again")}
	h.want(h.said(Run(t.Context(), again)), "")
	h.owner.From, h.owner.NewCluster = "", true
	h.want(h.run(false), "noted in marker ID that the pool belongs to the cluster that the daemon finds next")
	h.want(h.marker(), "node-a [node-b] in any")
	h.want(h.run(false), "")
}

// A pool that was another node's can be shared from then on, and one that was shared be this
// node's.
func TestHandOverOfSharedPools(t *testing.T) {
	h := ofNode(t, "node-b")
	h.owner.From, h.owner.Shared = "node-b", true
	h.want(h.run(false), "noted in marker ID that the pool was node node-b's and is shared",
		`note: PersistentVolumes keep the name of node node-b: see docs/operation.md, "A node with another name"`)
	h.want(h.marker(), " [] in 0a1b")
	o := h.options()
	report := o.Check(t.Context())
	m, err := o.markerAt(report.Identity)
	h.must(err)
	m.Scope = hostcheck.ScopeShared
	h.must(o.Marking.Remark(t.Context(), report.Identity, *m))
	h.owner = Owner{Node: "node-a", FromShared: true, Recorded: recordsOf()}
	h.want(h.run(false), "noted in marker ID that nodes do not share the pool any more")
	h.want(h.marker(), " [] in 0a1b")
	h.want(h.run(false), "")
}

func TestBothHandedOver(t *testing.T) {
	h := ofNode(t, "node-b")
	h.owner.From, h.owner.NewCluster = "node-b", true
	h.want(h.run(false), "noted in marker ID that the pool was node node-b's and is node node-a's",
		"noted in marker ID that the pool belongs to the cluster that the daemon finds next",
		`note: PersistentVolumes keep the name of node node-b: see docs/operation.md, "A node with another name"`)
	h.want(h.marker(), "node-a [node-b] in any")
}

// Which names the records have has to be known before the marker loses one.
func TestRecordsThatCannotBeRead(t *testing.T) {
	h := ofNode(t, "node-b")
	h.owner.From = "node-b"
	h.owner.Recorded = func(context.Context, hostcheck.Report) ([]string, error) {
		return nil, errors.New("reading volumes: input/output error")
	}
	h.want(h.run(false), `error: pool "fast": reading volumes: input/output error`)
	if got := h.marker(); !strings.HasPrefix(got, "node-b []") {
		t.Errorf("the marker says %s", got)
	}
}
