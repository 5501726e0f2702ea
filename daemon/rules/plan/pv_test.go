package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// The whole object, so that a field that should not be written is seen.
const wantVolume = `metadata:
  annotations:
    pv.kubernetes.io/provisioned-by: hostpath-provisioner
  finalizers:
  - external-provisioner.volume.kubernetes.io/finalizer
  labels:
    hostpath-provisioner/node: node-a
    hostpath-provisioner/pool: fast
  name: pvc-u-1
spec:
  accessModes:
  - ReadWriteOnce
  capacity:
    storage: 1Gi
  claimRef:
    apiVersion: v1
    kind: PersistentVolumeClaim
    name: data
    namespace: default
    uid: u-1
  hostPath:
    path: /srv/fast/pvc-u-1
    type: Directory
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions:
        - key: kubernetes.io/hostname
          operator: In
          values:
          - host-a
  persistentVolumeReclaimPolicy: Retain
  storageClassName: fast
  volumeMode: Filesystem
status: {}
`

func TestNewVolume(t *testing.T) {
	f, retain := ready(), corev1.PersistentVolumeReclaimRetain
	f.Class.ReclaimPolicy, f.Class.MountOptions = &retain, []string{"noatime"}
	got, err := yaml.Marshal(NewVolume(f, "pvc-u-1"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != wantVolume {
		t.Errorf("got\n%s\nwant\n%s", got, wantVolume)
	}
}

func TestNewVolumeLocal(t *testing.T) {
	f := ready()
	f.Pool.Source, f.Class.MountOptions = SourceLocal, []string{"ro"}
	pv := NewVolume(f, "dir")
	if len(pv.Spec.MountOptions) != 1 {
		t.Errorf("mountOptions %q", pv.Spec.MountOptions)
	}
	if pv.Spec.HostPath != nil || pv.Spec.Local == nil || pv.Spec.Local.Path != "/srv/fast/dir" {
		t.Errorf("source is %+v", pv.Spec.PersistentVolumeSource)
	}
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		t.Error("a class without a policy means Delete (storage/v1 defaults)")
	}
}

func TestSame(t *testing.T) {
	want := NewVolume(ready(), "pvc-u-1")
	if d := Same(want.DeepCopy(), want); d != "" {
		t.Errorf("the same object differs: %s", d)
	}
	for name, change := range map[string]func(*corev1.PersistentVolume){
		"provisioned by": func(v *corev1.PersistentVolume) { v.Annotations[ProvisionedBy] = "x" },
		"on node":        func(v *corev1.PersistentVolume) { v.Labels[NodeLabel] = them },
		"another claim":  func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "u-2" },
		"points to":      func(v *corev1.PersistentVolume) { v.Spec.HostPath.Path = "/etc" },
	} {
		other := want.DeepCopy()
		change(other)
		if d := Same(other, want); !strings.Contains(d, name) {
			t.Errorf("%s: got %q", name, d)
		}
	}
}

func TestNodeLabelValue(t *testing.T) {
	long := strings.Repeat("a", 49) + "." + strings.Repeat("b", 100)
	seen := map[string]string{}
	for _, node := range []string{"a", "node-a.example", strings.Repeat("n", 63), strings.Repeat("n", 64), long, long + "c"} {
		got := NodeLabelValue(node)
		if problems := validation.IsValidLabelValue(got); len(problems) > 0 {
			t.Errorf("%s: %q is no label value: %v", node, got, problems)
		}
		if other, taken := seen[got]; taken {
			t.Errorf("%s and %s have the same label value %q", node, other, got)
		}
		seen[got] = node
	}
}

func TestResolve(t *testing.T) {
	fast, slow := testPool("fast"), testPool("slow")
	slow.Default = true
	cases := []struct {
		name    string
		params  map[string]string
		pools   []Pool
		pool    string
		reason  string
		message string
	}{
		{"the only pool", nil, []Pool{fast}, "fast", "", ""},
		{"the default of several", nil, []Pool{fast, slow}, "slow", "", ""},
		{"by name", map[string]string{"pool": "fast"}, []Pool{fast, slow}, "fast", "", ""},
		{"by path", map[string]string{"pvDir": "/srv/fast"}, []Pool{fast, slow}, "fast", "", ""},
		{"several and no default", nil, []Pool{fast, testPool("other")}, "", ReasonUnknownPool, "none of this node's pools is the default"},
		{"a pool it lacks", map[string]string{"pool": "gone"}, []Pool{fast, slow}, "", ReasonUnknownPool, `no pool "gone"; it has fast (/srv/fast), slow (/srv/slow)`},
		{"a path that is no pool's", map[string]string{"pvDir": "/etc"}, []Pool{fast}, "", ReasonUnknownPool, `no pool at "/etc"`},
		{"a path is compared, not cleaned", map[string]string{"pvDir": "/srv/fast/"}, []Pool{fast}, "", ReasonUnknownPool, "no pool at"},
		{"both", map[string]string{"pool": "fast", "pvDir": "/srv/fast"}, []Pool{fast}, "", ReasonBadParameter, "exclude each other"},
		{"unknown parameter before unknown pool", map[string]string{"pool": "gone", "pvdir": "/srv"}, []Pool{fast}, "", ReasonUnknownParameter, `unknown parameter "pvdir"; known are cephFSQuota, mode, onDelete, placement, pool, pools, pvDir, source`},
		{"bad source", map[string]string{"source": "nfs"}, []Pool{fast}, "", ReasonBadParameter, `"nfs" is none of hostPath, local and csi`},
		{"bad mode", map[string]string{"mode": "999"}, []Pool{fast}, "", ReasonBadParameter, `"999" is not an octal mode`},
		{"cephFSQuota for every node", map[string]string{"cephFSQuota": "true"}, []Pool{{Name: "each", Path: "/srv/each", Scope: ScopeEveryNode}}, "", ReasonBadParameter, `a volume of scope every-node has a directory on each node: this would limit only one`},
		{"cephFSQuota with project quotas", map[string]string{"cephFSQuota": "true"}, []Pool{{Name: "limited", Path: "/srv/limited", Quota: QuotaProject}}, "", ReasonBadParameter, `pool limited has quota = "project"`},
		{"bad cephFSQuota", map[string]string{"cephFSQuota": "yes"}, []Pool{fast}, "", ReasonBadParameter, `"yes" is neither true nor false`},
		{"mode for no user", map[string]string{"mode": "000"}, []Pool{fast}, "", ReasonBadParameter, `mode: "000" lets no user but root into a volume`},
		{"mode without a way in", map[string]string{"mode": "2666"}, []Pool{fast}, "", ReasonBadParameter, `"2666" lets no user but root into a volume`},
		{"mode without writing", map[string]string{"mode": "0555"}, []Pool{fast}, "", ReasonBadParameter, `"0555" lets no user but root write to a volume`},
		{"mode of one user", map[string]string{"mode": "0300"}, []Pool{fast}, "fast", "", ""},
		{"setuid", map[string]string{"mode": "4755"}, []Pool{fast}, "", ReasonBadParameter, `"4755" is not an octal mode`},
		{"one digit", map[string]string{"mode": "7"}, []Pool{fast}, "", ReasonBadParameter, `"7" is not an octal mode`},
		{"bad onDelete", map[string]string{"onDelete": "keep"}, []Pool{fast}, "", ReasonBadParameter, `"keep" is neither delete nor archive`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			class := &storagev1.StorageClass{Parameters: c.params}
			got, refusal := self.Resolve(class, c.pools)
			if refusal == nil {
				refusal = &Refusal{}
			}
			if got.Name != c.pool || refusal.Reason != c.reason || !strings.Contains(refusal.Message, c.message) {
				t.Errorf("got %q, %+v", got.Name, *refusal)
			}
		})
	}
}

// kubelet starts no pod on a hostPath volume with mount options. Another provisioner's class had
// them ignored.
func TestResolveMountOptions(t *testing.T) {
	for _, c := range []struct {
		provisioner, source string
		refused             bool
	}{
		{"hostpath-provisioner", "", true}, {"hostpath-provisioner", SourceLocal, false}, {Torchbox, "", false},
	} {
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Provisioner: c.provisioner, MountOptions: []string{"ro"}, Parameters: map[string]string{}}
		if c.source != "" {
			class.Parameters[paramSource] = c.source
		}
		if c.provisioner == Torchbox {
			class.Parameters[paramPvDir] = "/srv/fast"
		}
		_, refusal := self.Resolve(class, []Pool{ready().Pool})
		if refused := refusal != nil && refusal.Reason == ReasonBadParameter && strings.Contains(refusal.Message, "mountOptions"); refused != c.refused || refusal != nil && !refused {
			t.Errorf("%s, source %q: %+v", c.provisioner, c.source, refusal)
		}
	}
}

func TestResolveOverrides(t *testing.T) {
	class := &storagev1.StorageClass{Parameters: map[string]string{"source": "local", "mode": "2770", "onDelete": "archive", "cephFSQuota": "true"}}
	got, refusal := self.Resolve(class, []Pool{testPool("fast")})
	if refusal != nil || got.Source != SourceLocal || got.OnDelete != OnDeleteArchive || got.Quota != QuotaCeph || got.Mode.String() != "grwxrwx---" {
		t.Errorf("got %+v (mode %s), %+v", got, got.Mode, refusal)
	}
}
