package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// inlinePage is the pod of docs/csi.md, as the API server takes it, and the pool's key.
func (w *environment) inlinePage(t *testing.T) (*corev1.CSIVolumeSource, string) {
	w.Helper()
	blocks := documented(t, "csi.md")
	key := ""
	for _, toml := range blocks["toml"] {
		if _, after, is := strings.Cut(toml, "path = \"/srv/fast\"\n"); is {
			key = after
		}
	}
	for _, text := range blocks["yaml"] {
		if !strings.Contains(text, "kind: Pod") {
			continue
		}
		var p corev1.Pod
		w.Must(yaml.UnmarshalStrict([]byte(text), &p))
		need(w.pods().Create(w.Ctx, &p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))(w)
		return p.Spec.Volumes[0].CSI, key
	}
	t.Fatal("docs/csi.md has no pod")
	return nil, ""
}

// inlineHost is a host whose daemon runs, with a node service that makes inline volumes.
func (w *environment) inlineHost(extra ...string) (h *host, root string, node *csinode.Service) {
	w.Helper()
	root = w.kubeletRoot()
	h = w.newHost("a", extra...).configureFirst(fmt.Sprintf("kubelet_root = %q", root)).run()
	return h, root, w.startNodeService(csinode.Options{Root: root, Driver: w.Provisioner,
		Command: h.Command, Log: h.Path("csi.log"), Inline: true})
}

// The inline volume of docs/csi.md: it is made when its pod starts and gone when that has ended,
// also if the daemon was away at the end, or the node service and all with it. What a pod has
// stays.
func TestInlineVolume(t *testing.T) {
	w := newEnvironment(t)
	source, key := w.inlinePage(t)
	h, root, node := w.inlineHost(strings.ReplaceAll(key, "20Gi", "32Mi"))
	source.VolumeAttributes["storagePool"], source.VolumeAttributes["size"] = "fast", "16Mi"
	of := func(uid string) csinode.Volume { return csinode.Inline(uid, "scratch", source.VolumeAttributes) }
	a, b := of("u-a"), of("u-b")

	w.Must(errors.Join(node.Publish(w.Soon(), "u-a", a), node.Publish(w.Soon(), "u-b", b)))
	w.Must(os.WriteFile(filepath.Join(node.Target("u-a", "scratch"), "file"), []byte("x"), 0o600))
	h.wantTree(pool.Of(a.PV, b.PV)...)
	h.call("volumes").Ends(0, "inline", "default/pod")
	if err := node.Publish(w.Soon(), "u-c", of("u-c")); err == nil || !strings.Contains(err.Error(), "of 32.0 MiB for all inline volumes (inline_volumes) 32.0 MiB are promised") {
		t.Errorf("a third one: %v", err)
	}
	w.Must(node.UnpublishInline(w.Soon(), "u-a", a))
	h.wantTree(pool.Of(b.PV)...)

	w.Must(node.Publish(w.Soon(), "u-a", a))
	h.stop()
	w.Must(errors.Join(node.UnpublishInline(w.Soon(), "u-a", a), os.RemoveAll(filepath.Join(root, "pods/u-a")))) // as kubelet does
	h.run()
	h.wantTree(pool.Of(b.PV)...)
	if data, err := os.ReadDir(node.Target("u-b", "scratch")); err != nil || len(data) != 0 {
		t.Errorf("the pod that runs has %v, %v", data, err)
	}
	w.Must(node.UnpublishInline(w.Soon(), "u-b", b))
	h.wantTree()
}

// A pod that asks for its volume while the daemon is away waits until that is back and has looked
// at its pools, and is not refused.
func TestInlineVolumeWaits(t *testing.T) {
	w := newEnvironment(t)
	h, _, node := w.inlineHost(`source = "csi"`, `inline_volumes = "32Mi"`)
	a := csinode.Inline("u-a", "scratch", map[string]string{"size": "16Mi"})
	for range 5 {
		h.stop()
		asked := make(chan error, 1)
		go func() { asked <- node.Publish(w.Soon(), "u-a", a) }()
		h.run()
		w.Must(<-asked)
		w.Must(node.UnpublishInline(w.Soon(), "u-a", a))
		h.wantTree()
	}
}
