package main

import (
	"os"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

const plain = "kubeconfig = 'BASE/kubeconfig'\n" + minimal + "require_mount = false\naccept = ['PlainDirectory', 'NotImmutable']\n"

// own writes into the prepared pool whose it is, as a daemon does that works in it.
func (h *host) own(node, cluster string) {
	h.t.Helper()
	store, report := h.opened()
	mark := report.Mark
	mark.Node, mark.Cluster = node, cluster
	h.must(store.Remark(h.t.Context(), report.Identity, mark))
}

// opened is the prepared pool, a plain directory.
func (h *host) opened() (*volume.Pool, hostcheck.Report) {
	pool := config.DefaultPool("fast")
	pool.Path, pool.MountPoint, pool.RequireMount = h.path("pool"), h.path("pool"), false
	return volume.New(volume.Options{Name: "fast", Path: pool.Path}), hostcheck.NewProber((&program{}).expect(pool, "")).Probe(h.t.Context())
}

// record makes a volume of a node in the prepared pool.
func (h *host) record(node, pv string) {
	h.t.Helper()
	store, report := h.opened()
	_, err := store.Create(h.t.Context(), report.Identity, volume.Spec{
		Record: record.Record{PV: pv, Namespace: "shop", Claim: "data", ClaimUID: "u-" + pv, Directory: pv, Node: node}, Mode: 0o777,
	})
	h.must(err)
}

// preparedStory begins with a pool that was prepared, a plain directory.
func preparedStory(t *testing.T) (*host, *story) {
	t.Helper()
	h := newHost(t, plain)
	s := &story{h: h}
	s.call("prepare", "fast")
	return h, s
}

// A disk of another node: every command refuses it until the operator has named the node that it
// was.
func TestPoolOfAnotherNode(t *testing.T) {
	h, s := preparedStory(t)
	h.own("node-b", "0a1b")
	s.says("the marker names node-b")
	s.call("check", "fast")
	s.call("prepare", "fast")
	s.call("volumes", "fast")
	s.says("what is no answer to that")
	s.call("prepare", "fast", "--from-node", "node-c")
	s.call("prepare", "fast", "--from-node", "node-a")
	s.call("prepare", "fast", "--from-node", "")
	s.call("prepare", "fast", "--new-cluster")
	s.says("the node that it was")
	s.call("prepare", "fast", "--from-node", "node-b")
	s.call("prepare", "fast", "--from-node", "node-b")
	s.call("check", "fast")
	golden(t, "another-node", s.b.String())
}

// A marker of an earlier version names no node, and then the records do.
func TestRecordsOfAnotherNode(t *testing.T) {
	h, s := preparedStory(t)
	h.record("node-b", "pvc-1")
	s.says("a record names node-b")
	s.call("check", "fast")
	s.call("prepare", "fast", "--from-node", "node-c")
	s.call("prepare", "fast", "--from-node", "node-b")
	s.call("check", "fast")
	golden(t, "another-nodes-records", s.b.String())
}

// What the operator says has to fit the pool's scope.
func TestHandOverOfAnotherScope(t *testing.T) {
	for _, c := range []struct{ scope, flag, want string }{
		{"every-node", "--from-node=node-b", "--from-node: pool fast has scope every-node, and belongs to no single node"},
		{"shared", "--from-shared", "--from-shared: pool fast has scope shared"},
	} {
		h := newHost(t, plain+"scope = '"+c.scope+"'\n")
		want := "--\nhostpath-provisioner: " + c.want + "\nhint: run: hostpath-provisioner prepare --help\nexit 2\n"
		if got := h.call("prepare", "fast", c.flag); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

// A cluster is another one only where both are known.
func TestOtherCluster(t *testing.T) {
	pool := config.Pool{Path: "/srv/fast"}
	for name, c := range map[string]struct {
		mark, cluster, want string
	}{
		"the same":            {"0a1b", "0a1b", ""},
		"another":             {"0a1b", "2c3d", "/srv/fast is a pool of the cluster with the UID 0a1b, and the kubeconfig leads to the cluster with the UID 2c3d"},
		"a pool of none yet":  {"", "2c3d", ""},
		"a pool of the next":  {hostcheck.ClusterAny, "2c3d", ""},
		"a cluster not known": {"0a1b", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, other := otherCluster(pool, hostcheck.Marker{Cluster: c.mark}, c.cluster)
			if other != (c.want != "") || f.Message != c.want || other && (f.Reason != hostcheck.ReasonOtherCluster || f.Severity != hostcheck.Close) {
				t.Errorf("%t, %+v", other, f)
			}
		})
	}
}

// A dead node's disk is taken in beside one's own pool of the same name, under another one: only by
// the names of both, node and pool, that its marker has.
func TestDiskOfAnotherNodeUnderAnotherName(t *testing.T) {
	h := newHost(t, plain)
	h.call("prepare", "fast")
	h.record("node-b", "pvc-1")
	h.own("node-b", "0a1b")
	config := strings.ReplaceAll(plain, "BASE", h.base)
	h.write("config.toml", strings.ReplaceAll(config, "[pool.fast]", "[pool.second]"))
	h.must(os.RemoveAll(h.path("state")))
	foreign := "belongs to another pool"
	for _, c := range []struct{ flags, want string }{
		{"", `is a pool of node "node-b"`}, {"--from-node node-b", foreign}, {"--from-node node-c --from-pool fast", foreign},
		{"--from-node node-b --from-pool slow", foreign}, {"--from-pool fast", "--from-node its node"},
		{"--from-node node-b --from-pool fast", `was called fast and is called second`},
		{"", "nothing had to be done"},
	} {
		out := h.call(append([]string{"prepare", "second"}, strings.Fields(c.flags)...)...)
		if !strings.Contains(out, c.want) {
			t.Errorf("%q: %s", c.flags, out)
		}
	}
	if out := h.call("check", "second"); strings.Contains(out, "MarkerForeign") || strings.Contains(out, "OtherNode") {
		t.Errorf("%s", out)
	}
	if out := h.call("volumes", "second"); !strings.Contains(out, "pvc-1") {
		t.Errorf("%s", out)
	}
}
