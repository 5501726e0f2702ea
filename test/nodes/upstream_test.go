//go:build nodes

package nodes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/image"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// drivers are the definitions in test/upstream. What a test asks for and a definition lacks is
// skipped.
var drivers = []string{"csi.yaml", "hostpath.yaml", "immediate.yaml", "local.yaml"}

// TestUpstream runs Kubernetes' own tests of external storage and of StatefulSets.
func TestUpstream(t *testing.T) {
	w, ctx := newEnvironment(t), t.Context()
	w.step(ctx, usual, "a real control plane", startCluster)
	w.step(ctx, usual, "two nodes, each with its own kubelet and containerd", twoNodes)
	w.step(ctx, usual, "the images that the tests name, on both nodes", upstreamImages)
	w.step(ctx, usual, "Kubernetes' snapshot-controller", startSnapshotController)
	w.step(ctx, usual, "two pools, a daemon and the CSI driver on each node, and a default class",
		installForUpstream)
	w.step(ctx, upstreamLimit+time.Minute, "Kubernetes' tests", runUpstream)
	w.step(ctx, usual, "all pools are empty, records and trash included", allEmpty)
	w.held()
}

// suiteFile is the path of what make .build/upstream has built.
func (w *environment) suiteFile(name string) string {
	w.Helper()
	file := filepath.Join(rig.Root(), ".build", "upstream", name)
	_, err := os.Stat(file)
	w.must(err, "looking for what make test-upstream builds")
	return file
}

// upstreamImages gives each node one image of each program, under all of its names. Nothing is
// pulled.
func upstreamImages(_ context.Context, w *environment) {
	list, err := exec.Command(w.suiteFile("suite.test"), "-images").Output()
	w.must(err, "asking for the images' names")
	archives := map[string]string{}
	for line := range strings.Lines(string(list)) {
		program, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		made := "localhost/upstream-" + program + ":1"
		if archives[program] == "" {
			archives[program] = filepath.Join(w.dir, program+".tar")
			w.must(w.upstreamImage(program, made).Save(archives[program]), "writing the image of "+program)
			w.must(w.a.importImage(archives[program]), "importing "+program)
			w.must(w.b.importImage(archives[program]), "importing "+program)
		}
		for _, h := range []*host{w.a, w.b} {
			_, err := h.call("ctr", "--namespace=k8s.io", "images", "tag", made, name)
			w.must(err, "naming an image on "+h.name)
		}
		w.showf("%-8s %s", program, name)
	}
}

// upstreamImage has busybox under all of its names, and agnhost where that is asked for.
func (w *environment) upstreamImage(program, name string) image.Image {
	w.Helper()
	busybox, err := exec.LookPath("busybox")
	w.must(err, "looking for busybox")
	list, err := exec.Command(busybox, "--list").Output()
	w.must(err, "listing busybox's programs")
	i := image.Image{Name: name, Cmd: []string{"sh"}, Files: []image.File{
		{Name: "tmp/", Mode: 0o1777},
		{Name: "etc/passwd", Data: []byte("root:x:0:0::/root:/bin/sh\n")},
		{Name: "bin/busybox", Data: w.read(busybox), Mode: 0o755},
	}}
	for _, applet := range strings.Fields(string(list)) {
		if applet != "busybox" {
			i.Files = append(i.Files, image.File{Name: "bin/" + applet, Link: "busybox"})
		}
	}
	if program == "agnhost" {
		i.Entrypoint, i.Cmd = []string{"/agnhost"}, []string{"pause"}
		i.Files = append(i.Files, image.File{Name: "agnhost", Data: w.read(w.suiteFile("agnhost")), Mode: 0o755})
		for _, file := range []string{"localhost.crt", "localhost.key"} {
			i.Files = append(i.Files, image.File{Name: file, Data: w.read(w.suiteFile(file))})
		}
	}
	return i
}

// installForUpstream makes pools for several claims of 10 GiB at once (NewStatefulSetPVC in
// test/e2e/framework/statefulset), whose files need memory only for what is written. The tests of
// source csi have a pool of their own: snapshots want a filesystem whose files can share blocks.
func installForUpstream(ctx context.Context, w *environment) {
	w.manifests(ctx, "--inline-volumes")
	for _, h := range []*host{w.a, w.b} {
		w.installOn(ctx, h,
			storage{name: "fast", path: poolDir, fs: "ext4", mib: 512 << 10, mkfs: []string{"-N", "100000", "-J", "size=16"}, keys: "default = true\n"},
			storage{name: "copied", path: copiedDir, fs: "xfs", mib: 512 << 10, mkfs: []string{"-l", "size=64m"}, keys: copiedKeys})
		c := &csiNode{driver: provisioner, h: h, asked: []string{"inline.sock"}}
		c.register(ctx, w)
	}
	patch := `{"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}`
	_, err := w.client.StorageV1().StorageClasses().Patch(ctx, provisioner,
		types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	w.must(err, "making the class the default")
}

// copiedDir is the pool of the tests of source csi, and copiedKeys what the configuration says of
// it.
const (
	copiedDir  = "/srv/copied"
	copiedKeys = `source = "csi"
clones = "reflink"
snapshots = "live"
inline_volumes = "100Gi"
`
)

// Left out are: the slow tests of StatefulSets, which take minutes and are about their controller;
// those of the class that binds at once, of which one wants the volumes of two claims on one node,
// and each is provisioned on any; and the test of volume populators, whose three images only a
// registry has.
const (
	upstreamFocus  = `External Storage|StatefulSet`
	upstreamSkip   = `(StatefulSet|Driver: immediate\]).*\[Slow\]|any volume data source`
	upstreamLabels = `Feature: isSubsetOf {VolumeSnapshotDataSource, VolumeSourceXFS} && !Disruptive && !Flaky`
)

// upstreamLimit is for the suite. Half of the time it waits, so that it runs in more processes than
// there are processors.
const (
	upstreamLimit = 18 * time.Minute
	upstreamProcs = 8
)

// upstreamRuns are the parts that run one after the other. The tests of capacities come alone and
// first: each of the others makes classes, more of them than the daemons publish at their rate.
var upstreamRuns = []struct{ name, focus, skip string }{
	{"capacity", `External Storage.*storage capacity`, upstreamSkip},
	{"rest", upstreamFocus, upstreamSkip + `|storage capacity`},
}

// runUpstream runs the suite, shows what its reports count, and judges that.
func runUpstream(ctx context.Context, w *environment) {
	expected, err := readExpected(w.definition("expected"))
	w.must(err, "reading what is expected")
	w.showf("about 8 minutes on 2 cores; logs and reports are .build/upstream-*")
	parts := map[string]tally{}
	for _, r := range upstreamRuns {
		found, err := readReport(w.runSuite(ctx, r.name, "--focus="+r.focus, "--skip="+r.skip))
		w.must(err, "reading the report")
		for part, t := range found {
			parts[part] = parts[part].and(t)
		}
	}
	w.showf("%s", describe(parts))
	passed := filepath.Join(rig.Root(), ".build", "upstream-passed") // in the form of what is expected
	w.must(os.WriteFile(passed, []byte(strings.Join(namesOf(parts), "\n")+"\n"), 0o644), "keeping what passed")
	w.must(judge(parts, expected), "Kubernetes' tests (all that they said is in .build/upstream-*.json)")
}

// runSuite runs what is selected, and returns the report. Log and report are kept in .build.
func (w *environment) runSuite(ctx context.Context, name string, selection ...string) []byte {
	w.Helper()
	args := append(selection,
		fmt.Sprintf("--procs=%d", upstreamProcs), "--no-color", "--timeout="+upstreamLimit.String(),
		"--json-report=report.json", "--output-dir="+w.dir, "--label-filter="+upstreamLabels,
		w.suiteFile("suite.test"), "--",
		"--kubeconfig="+w.cluster.Kubeconfig(), "--kubectl-path="+build(w, "kubectl"), "--repo-root="+w.definition(""),
		"--provider=skeleton", "--num-nodes=2",
	)
	for _, d := range drivers {
		args = append(args, "--storage.testdriver="+w.definition(d))
	}
	cmd := exec.CommandContext(ctx, w.suiteFile("ginkgo"), args...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "HOME="+w.dir) // kubectl's cache
	report, kept := filepath.Join(w.dir, "report.json"), filepath.Join(rig.Root(), ".build", "upstream-"+name)
	for _, old := range []string{report, kept + ".json", kept + ".log"} {
		w.must(os.RemoveAll(old), "removing what the last run left")
	}
	suite, err := launch(cmd, kept+".log")
	w.must(err, "starting the suite")
	<-suite.Exited()
	data, err := os.ReadFile(report)
	if err != nil {
		w.Fatalf("the suite left no report: %v; its log ends with\n%s", err, suite.tail(40))
	}
	w.must(os.WriteFile(kept+".json", data, 0o644), "keeping the report")
	return data
}

// definition is a file in test/upstream.
func (w *environment) definition(name string) string {
	return filepath.Join(rig.Root(), "test", "upstream", name)
}

// allEmpty waits until what the suite deleted is gone from the disks.
func allEmpty(ctx context.Context, w *environment) {
	for _, h := range []*host{w.a, w.b} {
		w.purged(ctx, h)
		w.purgedAt(ctx, h, copiedDir)
	}
}
