package plan

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// of is a class of another system, for the claim of ready().
func of(provisioner string, params ...string) func(*ClaimFacts) {
	return func(f *ClaimFacts) {
		f.Class.Provisioner, f.Class.Parameters = provisioner, map[string]string{}
		f.Claim.Annotations[StorageProvisioner] = provisioner
		f.Aliases = []string{provisioner}
		for i := 0; i < len(params); i += 2 {
			f.Class.Parameters[params[i]] = params[i+1]
		}
	}
}

// Each system's classes get its directory names and its annotations, exactly.
func TestAliases(t *testing.T) {
	for _, c := range []struct {
		provisioner string
		params      []string
		directory   string
		annotations map[string]string
	}{
		{"torchbox.com/hostpath", []string{"PVDIR", "/srv/fast/"}, "pvc-u-1", map[string]string{"torchbox.com/hostpath-provisioner-id": "torchbox.com/hostpath"}},
		{"hostpath", nil, "default-data-pvc-u-1", map[string]string{"hostPathProvisionerIdentity": "node-a"}},
		{"kubevirt.io/hostpath-provisioner", nil, "pvc-u-1", map[string]string{"hostPathProvisionerIdentity": "kubevirt.io/hostpath-provisioner", "kubevirt.io/provisionOnNode": "node-a"}},
		{"kubevirt.io.hostpath-provisioner", []string{"storagePool", "fast"}, "pvc-u-1", nil},
		{"kubeboost.github.com/hostpath-multihost-provisioner", nil, "default-data-pvc-u-1", map[string]string{"kubeboost.github.com/hostpath-multihost-provisioner-identity": "kubeboost.github.com/hostpath-multihost-provisioner"}},
		{"microk8s.io/hostpath", []string{"pvDir", "/srv/fast"}, "default-data-pvc-u-1", map[string]string{"hostPathProvisionerIdentity": "node-a"}},
		{"rancher.io/local-path", []string{"nodePath", "/srv/fast"}, "pvc-u-1_default_data", map[string]string{"local.path.provisioner/selected-node": "node-a"}},
		{"nobody.example/knows", nil, "pvc-u-1", nil},
		{"ceph.example/hostpath", []string{"pvdir", "/srv//fast/"}, "pvc-u-1", map[string]string{"torchbox.com/hostpath-provisioner-id": "torchbox.com/hostpath"}},
	} {
		t.Run(c.provisioner, func(t *testing.T) {
			f := ready()
			of(c.provisioner, c.params...)(&f)
			if f.Pool, f.Refusal = f.Resolve(f.Class, []Pool{testPool("fast"), testPool("slow")}[:1+len(c.params)/2]); f.Refusal != nil {
				t.Fatal(*f.Refusal)
			}
			if v := ForClaim(f); v.Action != Provision {
				t.Errorf("%+v", v)
			}
			directory, err := f.Pool.Directory("pvc-u-1", "default", "data")
			if directory != c.directory || err != nil || f.Pool.Name != "fast" {
				t.Errorf("directory %q in pool %s, %v; want %q in fast", directory, f.Pool.Name, err, c.directory)
			}
			pv := NewVolume(f, directory)
			want := map[string]string{ProvisionedBy: c.provisioner}
			maps.Copy(want, c.annotations)
			if !maps.Equal(pv.Annotations, want) {
				t.Errorf("annotations %q, want %q", pv.Annotations, want)
			}
			if got, err := DirectoryOf(testPool("fast"), pv); got != c.directory || err != nil {
				t.Errorf("by its object %q, %v", got, err)
			}
			if f.Aliases = nil; ForClaim(f).Action != Ignore {
				t.Error("taken without the alias")
			}
		})
	}
}

// A name that is no alias is ignored, in each of the three places where names are compared.
func TestNamesThatAreNotOurs(t *testing.T) {
	f, v, r := ready(), released(), RecordFacts{Self: self, Record: record.Record{PV: "pvc-u-1", ClaimUID: "u-1"}}
	of(Rancher)(&f)
	v.Volume.Annotations[ProvisionedBy], r.Claim = Rancher, f.Claim
	for aliases, want := range map[string]bool{"": false, Microk8s: false, Microk8s + " " + Rancher: true} {
		names := strings.Fields(aliases)
		f.Aliases, v.Aliases, r.Aliases = names, names, names
		if got := ForClaim(f).Action != Ignore; got != want {
			t.Errorf("%q: claim %t", names, got)
		}
		if got := f.KeepClaim(f.Claim); got != want {
			t.Errorf("%q: kept %t", names, got)
		}
		if got := ForVolume(v).Action == Delete; got != want {
			t.Errorf("%q: volume %t", names, got)
		}
		if got := ForRecord(r).Action == Keep; got != want {
			t.Errorf("%q: record %t", names, got)
		}
	}
}

// Rancher's claims and classes name the kind of their volumes in annotations, the claim's before
// the class's.
func TestRancherVolumeType(t *testing.T) {
	pools := []Pool{testPool("fast")}
	for _, c := range []struct{ claim, class, want string }{
		{"", "", SourceHostPath}, {"local", "", SourceLocal}, {"", "local", SourceLocal}, {"Local",
			"", SourceLocal},
		{"hostPath", "local", SourceHostPath}, {"", "hostPath", SourceHostPath},
		{"nfs", "local", `class c: volumeType "nfs" is neither local nor hostPath`}, {"", "nfs",
			`class c: volumeType "nfs" is neither local nor hostPath`},
	} {
		for provisioner, want := range map[string]string{Rancher: c.want,
			Kubevirt: SourceHostPath} {
			f := ready()
			of(provisioner)(&f)
			f.Class.Name = "c"
			annotate := func(o metav1.Object, key, value string) {
				if value != "" {
					o.SetAnnotations(map[string]string{key: value})
				}
			}
			annotate(f.Claim, volumeType, c.claim)
			annotate(f.Class, defaultVolumeType, c.class)
			pool, refusal := f.Resolve(ClassFor(LeanClaim(f.Claim), LeanClass(f.Class)), pools)
			got := pool.Source
			if refusal != nil {
				got = refusal.Message
			}
			if got != want {
				t.Errorf("%s, %+v: %q", provisioner, c, got)
			}
		}
	}
}

// Volumes of an alias' classes have the source that its program gives them, unless the configuration
// or the class says another.
func TestAliasSource(t *testing.T) {
	pool := testPool("fast")
	pool.Source = SourceLocal
	said := pool
	said.Sourced = true
	serves := Self{Provisioner: DefaultProvisioner, Aliases: []string{"plain.example.org"}}
	for _, provisioner := range []string{DefaultProvisioner, Torchbox, MaZderMind, Kubevirt,
		KubevirtCSI, Kubeboost, Microk8s, Rancher, "plain.example.org"} {
		want := SourceHostPath
		if provisioner == DefaultProvisioner || provisioner == KubevirtCSI {
			want = SourceLocal
		}
		class := &storagev1.StorageClass{Provisioner: provisioner}
		asked := &storagev1.StorageClass{Provisioner: provisioner, Parameters: map[string]string{"source": "local"}}
		for name, c := range map[string]struct {
			class *storagev1.StorageClass
			pool  Pool
			want  string
		}{"default": {class, pool, want}, "configured": {class, said, SourceLocal}, "asked": {asked, pool, SourceLocal}} {
			got, refusal := serves.Resolve(c.class, []Pool{c.pool})
			if refusal != nil || got.Source != c.want {
				t.Errorf("%s, %s: %s, want %s; %+v", provisioner, name, got.Source, c.want, refusal)
			}
		}
	}
}

func TestAliasParameters(t *testing.T) {
	legacy, fast := testPool("legacy"), testPool("fast")
	fast.Default = true
	pools := []Pool{fast, legacy}
	for _, c := range []struct {
		name, provisioner string
		params            []string
		want              string // the pool, or the refusal
	}{
		{"torchbox: keys in any case", Torchbox, []string{"PvDir", "/srv/legacy"}, "legacy"},
		{"torchbox: a slash behind", Torchbox, []string{"pvdir", "/srv/legacy/"}, "legacy"},
		{"torchbox: the path of no pool", Torchbox, []string{"pvDir", "/srv"}, `UnknownPool class c: this node has no pool at "/srv"; it has fast (/srv/fast), legacy (/srv/legacy)`},
		{"torchbox: said twice", Torchbox, []string{"pvDir", "/srv/fast", "PVDIR", "/srv/legacy"}, `BadParameter class c: parameter "pvDir" says again what another one says`},
		{"microk8s: keys as they are", Microk8s, []string{"PVDIR", "/srv/fast"}, `UnknownParameter class c: unknown parameter "PVDIR"; known are `},
		{"MaZderMind has none", MaZderMind, []string{"storagePool", "fast"}, `UnknownParameter class c: unknown parameter "storagePool"; known are `},
		{"ours are known too", MaZderMind, []string{"pool", "legacy"}, "legacy"},
		{"CSI: the pool's name", KubevirtCSI, []string{"storagePool", "fast"}, "fast"},
		{"CSI: its default", KubevirtCSI, nil, "legacy"},
		{"CSI: no such pool", KubevirtCSI, []string{"storagePool", "local"}, `UnknownPool class c: this node has no pool "local"; it has fast (/srv/fast), legacy (/srv/legacy)`},
		{"rancher: a path", Rancher, []string{"nodePath", "/srv/legacy"}, "legacy"},
		{"rancher: a template", Rancher, []string{"pathPattern", "{{ .PVC.Namespace }}/{{ .PVC.Name }}"}, `BadParameter class c: parameter "pathPattern" of rancher: a volume's directory lies directly in the pool; the pool's directory key names it`},
		{"rancher: anything else", Rancher, []string{"size", "1"}, `UnknownParameter class c: unknown parameter "size"; known are `},
		{"torchbox's program under another name", "example.com/x", []string{"PVDIR", "/srv/fast/../legacy/", "CEPHFSQUOTA", "false"}, "legacy"},
		{"torchbox's program under another name: said twice", "example.com/x", []string{"pvDir", "/srv/fast", "PVDIR", "/srv/legacy"}, `BadParameter class c: parameter "pvDir" says again what another one says`},
		{"a plain name", "example.com/x", []string{"nodePath", "/srv/fast"}, `UnknownParameter class c: unknown parameter "nodePath"; known are `},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := ready()
			of(c.provisioner, c.params...)(&f)
			f.Class.Name = "c"
			pool, refusal := f.Resolve(f.Class, pools)
			got := pool.Name
			if refusal != nil {
				got = refusal.Reason + " " + refusal.Message
			}
			if got != c.want && (!strings.HasSuffix(c.want, " ") || !strings.HasPrefix(got, c.want)) {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

// A class of another system is only read: others look at the same object.
func TestTranslateChangesNothing(t *testing.T) {
	class := &storagev1.StorageClass{Provisioner: Torchbox, Parameters: map[string]string{"PVDIR": "/srv/fast/"}}
	if _, refusal := self.Resolve(class, []Pool{testPool("fast")}); refusal != nil || class.Parameters["PVDIR"] != "/srv/fast/" || len(class.Parameters) != 1 {
		t.Errorf("%+v, %q", refusal, class.Parameters)
	}
}

// A parameter that other rules judge comes to them under our name.
func TestTranslateCase(t *testing.T) {
	class := &storagev1.StorageClass{Provisioner: Torchbox, Parameters: map[string]string{"CEPHFSQUOTA": "true", "Other": "x"}}
	got, refusal := self.translate(class, nil)
	if want := map[string]string{"cephFSQuota": "true", "Other": "x"}; refusal != nil || !maps.Equal(got.Parameters, want) {
		t.Errorf("%+v, %q, want %q", refusal, got.Parameters, want)
	}
}

// What the configuration says of directories counts for every class: kubevirt's USE_NAMING_PREFIX.
func TestNamingPrefix(t *testing.T) {
	pool := testPool("fast")
	pool.Named = true
	pool.Directory = func(pv, _, claim string) (string, error) { return claim + "-" + pv, nil }
	f := ready()
	of(Kubevirt)(&f)
	got, refusal := f.Resolve(f.Class, []Pool{pool})
	if refusal != nil {
		t.Fatal(*refusal)
	}
	if directory, err := got.Directory("pvc-u-1", "default", "data"); directory != "data-pvc-u-1" || err != nil {
		t.Errorf("%q, %v", directory, err)
	}
}

// Names that are valid in Kubernetes can be too long together for a file's name.
func TestLongName(t *testing.T) {
	f := ready()
	of(MaZderMind)(&f)
	f.Claim.Name = strings.Repeat("x", 250)
	f.Pool, f.Refusal = f.Resolve(f.Class, []Pool{testPool("fast")})
	v := ForClaim(f)
	if v.Reason != ReasonBadName || !strings.Contains(v.Message, "has 266 bytes, a name has at most 255") {
		t.Errorf("%+v", v)
	}
}

// The pool's reclaim policy outranks the class's, in both directions.
func TestReclaimPolicy(t *testing.T) {
	retain, remove := corev1.PersistentVolumeReclaimRetain, corev1.PersistentVolumeReclaimDelete
	for _, c := range []struct {
		class *corev1.PersistentVolumeReclaimPolicy
		pool  string
		want  corev1.PersistentVolumeReclaimPolicy
	}{{nil, "", remove}, {&retain, "", retain}, {nil, "Retain", retain}, {&remove, "Retain", retain}, {&retain, "Delete", remove}} {
		f := ready()
		f.Class.ReclaimPolicy, f.Pool.Reclaim = c.class, c.pool
		if got := NewVolume(f, "x").Spec.PersistentVolumeReclaimPolicy; got != c.want {
			t.Errorf("class %v, pool %q: %s, want %s", c.class, c.pool, got, c.want)
		}
	}
}
