package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

const wantCSI = `csi:
  driver: hostpath-provisioner
  volumeAttributes:
    path: /srv/fast/pvc-u-1
    pool: fast
  volumeHandle: pvc-u-1
`

// The driver is the daemon's own, also for the class of an alias, whose driver is another
// program's.
func TestNewVolumeCSI(t *testing.T) {
	for _, provisioner := range []string{DefaultProvisioner, Torchbox} {
		f := ready()
		f.Pool.Source, f.Class.Provisioner = SourceCSI, provisioner
		pv := NewVolume(f, "pvc-u-1")
		got, err := yaml.Marshal(pv.Spec.PersistentVolumeSource)
		if err != nil || string(got) != wantCSI {
			t.Errorf("%s: got\n%s%v, want\n%s", provisioner, got, err, wantCSI)
		}
		if pv.Spec.NodeAffinity == nil || SourceOf(pv) != SourceCSI || PathOf(pv) != "/srv/fast/pvc-u-1" {
			t.Errorf("affinity %+v, source %q, path %q", pv.Spec.NodeAffinity, SourceOf(pv), PathOf(pv))
		}
	}
}

// ofCSI makes the volume one with source csi.
func ofCSI(change func(*corev1.CSIPersistentVolumeSource)) func(*VolumeFacts) {
	return func(f *VolumeFacts) {
		facts := ready()
		facts.Pool.Source = SourceCSI
		v := NewVolume(facts, "pvc-u-1")
		change(v.Spec.CSI)
		f.Volume.Spec.PersistentVolumeSource = v.Spec.PersistentVolumeSource
	}
}

// What an object with source csi says is compared with the record before anything is removed.
func TestVolumeCSI(t *testing.T) {
	type source = corev1.CSIPersistentVolumeSource
	for _, c := range []struct {
		name    string
		source  func(*source)
		changes []func(*VolumeFacts)
		action  Action
		reason  string
	}{
		{"as it was made", func(*source) {}, nil, Delete, ReasonDeleted},
		{"archived", func(*source) {}, []func(*VolumeFacts){func(f *VolumeFacts) { f.Record.OnDelete = OnDeleteArchive }}, Archive, ReasonArchived},
		{"no record and no directory", func(*source) {}, []func(*VolumeFacts){unrecorded}, LetGo, ReasonDeleted},
		{"another path", func(s *source) { s.VolumeAttributes[AttributePath] = "/etc" }, nil, Refuse, ReasonPathMismatch},
		{"no attributes", func(s *source) { s.VolumeAttributes = nil }, nil, Refuse, ReasonPathMismatch},
		{"another volume's handle", func(s *source) { s.VolumeHandle = "pvc-u-2" }, nil, Refuse, ReasonPathMismatch},
		{"another volume's handle, no record", func(s *source) { s.VolumeHandle = "pvc-u-2" }, []func(*VolumeFacts){unrecorded}, Refuse, ReasonPathMismatch},
		{"in use again, and in the trash", func(*source) {}, []func(*VolumeFacts){boundWithPlace(record.InTrash)}, PutBack, ReasonPutBack},
	} {
		f := changed(released(), append([]func(*VolumeFacts){ofCSI(c.source)}, c.changes...))
		if got := ForVolume(f); got.Action != c.action || got.Reason != c.reason {
			t.Errorf("%s: %+v, want %s, %s", c.name, got, c.action, c.reason)
		}
	}
}

func TestResolveCSI(t *testing.T) {
	csi := map[string]string{"source": "csi"}
	every := testPool("fast")
	every.Scope = ScopeEveryNode
	other := self
	other.Provisioner = "example.com/hostpath"
	for _, c := range []struct {
		name   string
		self   Self
		params map[string]string
		pool   Pool
		mount  []string
		want   string // "" is source csi
	}{
		{"the class says so", self, csi, testPool("fast"), nil, ""},
		{"the pool says so", self, nil, func() Pool { p := testPool("fast"); p.Source = SourceCSI; return p }(), nil, ""},
		{"of every node", self, csi, every, nil, "pool fast has scope every-node"},
		{"a name that no driver has", other, csi, testPool("fast"), nil, `"example.com/hostpath" cannot be a CSI driver's name`},
		{"mount options", self, csi, testPool("fast"), []string{"ro"}, "mountOptions: a volume with source csi takes none"},
	} {
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Provisioner: c.self.Provisioner, Parameters: c.params, MountOptions: c.mount}
		got, refusal := c.self.Resolve(class, []Pool{c.pool})
		switch {
		case c.want == "" && (refusal != nil || got.Source != SourceCSI):
			t.Errorf("%s: %+v, %+v", c.name, got, refusal)
		case c.want != "" && (refusal == nil || refusal.Reason != ReasonBadParameter || !strings.Contains(refusal.Message, c.want)):
			t.Errorf("%s: %+v, want %q", c.name, refusal, c.want)
		}
	}
}

func TestLacksDriver(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		name   string
		driver *storagev1.CSIDriver
		want   string
	}{
		{"none", nil, "the cluster has no CSIDriver d; an administrator runs: hostpath-provisioner manifests | kubectl apply -f -"},
		{"the API's default", &storagev1.CSIDriver{}, "attachRequired: true"},
		{"attached", &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: &yes}}, "attachRequired: true"},
		{"of the manifests", &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: &no}}, ""},
	} {
		if got := LacksDriver("d", c.driver); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
