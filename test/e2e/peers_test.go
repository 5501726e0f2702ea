package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// peer is another provisioner: how its volumes look, as its source has them.
type peer struct {
	system, provisioner string
	directory           func(pv, namespace, claim string) string
	shape               func(h *host, pv *corev1.PersistentVolume)
	modes               []corev1.PersistentVolumeAccessMode // of claims and volumes, nil for the usual ones
}

func byVolume(pv, _, _ string) string            { return pv }
func byClaim(pv, namespace, claim string) string { return namespace + "-" + claim + "-" + pv }

func hostPathType(pv *corev1.PersistentVolume, kind corev1.HostPathType) {
	pv.Spec.HostPath.Type = &kind
}

// wholeFilesystem is what both of kubevirt's programs write as each volume's capacity, whatever
// its claim requests: the size of the filesystem, in whole MiB.
func wholeFilesystem(h *host, pv *corev1.PersistentVolume) {
	h.w.Helper()
	var st unix.Statfs_t
	h.w.Must(unix.Statfs(h.mount, &st))
	size := resource.NewQuantity(int64(st.Blocks)*st.Bsize>>20<<20, resource.BinarySI)
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: *size}
}

var peers = []peer{
	{system: "torchbox", provisioner: "torchbox.com/hostpath", directory: byVolume, shape: func(_ *host, pv *corev1.PersistentVolume) {
		pv.Annotations["torchbox.com/hostpath-provisioner-id"] = "torchbox.com/hostpath"
	}},
	{system: "MaZderMind", provisioner: "hostpath", directory: byClaim, shape: func(h *host, pv *corev1.PersistentVolume) {
		pv.Annotations["hostPathProvisionerIdentity"] = h.node
	}},
	{system: "kubevirt", provisioner: "kubevirt.io/hostpath-provisioner", directory: byVolume, shape: func(h *host, pv *corev1.PersistentVolume) {
		pv.Annotations["hostPathProvisionerIdentity"] = "kubevirt.io/hostpath-provisioner"
		pv.Annotations["kubevirt.io/provisionOnNode"] = h.node
		pv.Spec.NodeAffinity = cluster.Affinity(corev1.LabelHostname, h.node)
		wholeFilesystem(h, pv)
	}},
	{system: "kubeboost", provisioner: "kubeboost.github.com/hostpath-multihost-provisioner", directory: byClaim, shape: func(_ *host, pv *corev1.PersistentVolume) {
		pv.Annotations["kubeboost.github.com/hostpath-multihost-provisioner-identity"] = "kubeboost.github.com/hostpath-multihost-provisioner"
	}},
	{system: "microk8s", provisioner: "microk8s.io/hostpath", directory: byClaim, shape: func(h *host, pv *corev1.PersistentVolume) {
		pv.Annotations["hostPathProvisionerIdentity"] = "the-node-of-the-program"
		pv.Spec.NodeAffinity = cluster.Affinity(corev1.LabelHostname, h.node)
		hostPathType(pv, corev1.HostPathDirectoryOrCreate)
	}},
	{system: "rancher", provisioner: "rancher.io/local-path", directory: func(pv, namespace, claim string) string { return pv + "_" + namespace + "_" + claim }, shape: func(h *host, pv *corev1.PersistentVolume) {
		pv.Annotations["local.path.provisioner/selected-node"] = h.node
		pv.Spec.NodeAffinity = cluster.Affinity(corev1.LabelHostname, cmp.Or(h.label, "host-of-"+h.node))
		hostPathType(pv, corev1.HostPathDirectoryOrCreate)
	}},
}

func peerNamed(system string) peer {
	for _, p := range peers {
		if p.system == system {
			return p
		}
	}
	panic(system)
}

// aliased puts aliases into the configuration of a host whose daemon does not run yet.
func (h *host) aliased(names ...string) *host {
	h.w.Helper()
	config := h.config()
	h.w.Must(h.Configure(fmt.Sprintf("aliases = [%s]\n%s", `"`+strings.Join(names, `", "`)+`"`, config)))
	return h
}

// aliasedHost is a host that has all peers' aliases, whose daemon does not run yet.
func aliasedHost(t *testing.T, extra ...string) (w *environment, h *host) {
	t.Helper()
	w = newEnvironment(t)
	return w, w.newHost("a", extra...).aliased(allPeers()...)
}

func allPeers() []string {
	var names []string
	for _, p := range peers {
		names = append(names, p.provisioner)
	}
	return names
}

// made is a bound claim with a volume as the peer leaves it, and a file in it. The class waits for
// a consumer that never comes, so that no daemon takes the claim for its own.
func (p peer) made(h *host, name string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	w := h.w
	w.Helper()
	pv := p.volume(h, name, change...)
	dir := cluster.PathOf(pv)
	w.Must(os.Mkdir(dir, 0o777))
	w.Must(os.WriteFile(filepath.Join(dir, "data"), []byte(name), 0o600))
	return p.publish(h, pv)
}

// volume is the object alone; its claim exists.
func (p peer) volume(h *host, name string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	w := h.w
	w.Helper()
	class := w.ClassOf(p.provisioner, name, wait)
	c := w.claim(name, class, "1Mi", func(c *corev1.PersistentVolumeClaim) {
		if p.modes != nil {
			c.Spec.AccessModes = p.modes
		}
	})
	pvName := "pvc-" + string(c.UID)
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pvName, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": p.provisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: c.Spec.Resources.Requests, AccessModes: c.Spec.AccessModes, StorageClassName: class,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{
				Path: filepath.Join(h.mount, p.directory(pvName, c.Namespace, c.Name)),
			}},
		},
	}
	p.shape(h, pv)
	for _, f := range change {
		f(pv)
	}
	return pv
}

func (p peer) publish(h *host, pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	w := h.w
	w.Helper()
	createIn(w, w.pvs(), pv)
	return w.Phase(pv.Name, corev1.VolumeBound)
}

func keepPolicy(pv *corev1.PersistentVolume) {
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}

var uid = regexp.MustCompile(`pvc-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// wholeSize is what filesystems differ in.
var wholeSize = regexp.MustCompile(`capacity is [0-9]+[KMG]i,`)

// told is a subcommand's output without what differs between runs. Volumes are called after their
// claims, and the rows sorted by that.
func (h *host) told(out string, volumes ...*corev1.PersistentVolume) string {
	for _, pv := range volumes {
		out = strings.ReplaceAll(out, pv.Name, "PV-of-"+pv.Spec.ClaimRef.Name)
	}
	out = strings.NewReplacer(h.mount, "POOL", h.node, "NODE", h.w.Namespace, "NS").Replace(out)
	out = wholeSize.ReplaceAllString(out, "capacity is SIZE,")
	out = regexp.MustCompile(` {2,}`).ReplaceAllString(uid.ReplaceAllString(out, "PV"), "  ")
	head, table, _ := strings.Cut(out, "STATUS\n")
	table, rest, _ := strings.Cut(table, "\n\n")
	if table == "" {
		return out
	}
	rows := strings.Split(table, "\n")
	slices.Sort(rows)
	notes := strings.SplitAfter(rest, "\n")
	slices.SortStableFunc(notes, func(a, b string) int {
		if strings.HasPrefix(a, "note: ") && strings.HasPrefix(b, "note: ") {
			return strings.Compare(a, b)
		}
		return 0
	})
	return head + "STATUS\n" + strings.Join(rows, "\n") + "\n\n" + strings.Join(notes, "")
}
