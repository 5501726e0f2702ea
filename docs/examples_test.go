package docs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/exporter-toolkit/web"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/packaging"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/certs"
)

func class(parameters map[string]string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Parameters: parameters}
}

// Every TOML block is a valid configuration without a warning. A "toml fragment" is a file of
// conf.d beside the installed example.
func TestTOML(t *testing.T) {
	for _, b := range blocks(t, "toml", "toml fragment") {
		dir := t.TempDir()
		main, text := filepath.Join(dir, "config.toml"), b.text
		if b.language == "toml fragment" {
			write(t, filepath.Join(dir, "conf.d", "50-site.toml"), b.text)
			text = packaging.Config
		}
		write(t, main, text)
		c, err := config.Load(main)
		if err != nil || len(c.Warnings) > 0 {
			t.Errorf("%s: %v, warnings %q in\n%s", b.in, err, c.Warnings, b.text)
		}
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Every web configuration is one, with certificates of the names that it has.
func TestWebConfigurations(t *testing.T) {
	for _, b := range blocks(t, "yaml web configuration") {
		dir, authority := t.TempDir(), certs.NewAuthority(t)
		certificate, key := authority.Sign(t, "node-a")
		certs.Replace(t, filepath.Join(dir, "metrics.crt"), certificate)
		certs.Replace(t, filepath.Join(dir, "metrics.key"), key)
		certs.Replace(t, filepath.Join(dir, "prometheus-ca.crt"), authority.PEM())
		write(t, filepath.Join(dir, "web.yml"), b.text)
		if err := web.Validate(filepath.Join(dir, "web.yml")); err != nil {
			t.Errorf("%s: %v", b.in, err)
		}
	}
}

// Every drop-in for the unit is one that systemd takes: it says nothing that it does not say of the
// unit alone. Its exit code tells nothing: an unknown key is a warning.
func TestDropIns(t *testing.T) {
	verify := func(dropIn string) string {
		dir := t.TempDir()
		unit := filepath.Join(dir, "hostpath-provisioner.service")
		write(t, unit, strings.ReplaceAll(read(t, "../systemd/hostpath-provisioner.service"), "/usr/bin/hostpath-provisioner", "/bin/true"))
		write(t, unit+".d/override.conf", dropIn)
		out, _ := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit).CombinedOutput()
		return strings.ReplaceAll(string(out), dir, "")
	}
	alone := verify("")
	for _, b := range blocks(t, "ini") {
		if said := verify(b.text); said != alone {
			t.Errorf("%s: %s\nof\n%s", b.in, said, b.text)
		}
	}
	if verify("[Service]\nIPAddressDenyy=any\n") == alone {
		t.Error("a key that does not exist passed")
	}
}

// Every YAML document is, strictly, an object of its kind, and every class one that the daemon
// takes.
func TestYAML(t *testing.T) {
	pools := []plan.Pool{
		{Name: "fast", Path: "/srv/fast", Default: true}, {Name: "agents", Path: "/srv/agents"},
		{Name: "local", Path: "/var/hpvolumes/csi"}, {Name: "cephfs", Path: "/ceph/pvs"},
		{Name: "shared", Path: "/srv/shared", Scope: plan.ScopeShared},
	}
	for _, b := range blocks(t, "yaml") {
		for doc := range strings.SplitSeq(b.text, "\n---\n") {
			var meta metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
				t.Fatalf("%s: %v in\n%s", b.in, err, doc)
			}
			object := map[string]any{
				"v1/PersistentVolume": &corev1.PersistentVolume{}, "v1/PersistentVolumeClaim": &corev1.PersistentVolumeClaim{},
				"v1/Pod": &corev1.Pod{}, "apps/v1/DaemonSet": &appsv1.DaemonSet{}, "storage.k8s.io/v1/StorageClass": &storagev1.StorageClass{},
				// test/upstream/snapshotter applies these two where their schemas are known.
				"snapshot.storage.k8s.io/v1/VolumeSnapshotClass": &map[string]any{}, "snapshot.storage.k8s.io/v1/VolumeSnapshot": &map[string]any{},
			}[meta.APIVersion+"/"+meta.Kind]
			if object == nil {
				t.Errorf("%s: a %s of %s", b.in, meta.Kind, meta.APIVersion)
				continue
			}
			if err := yaml.UnmarshalStrict([]byte(doc), object); err != nil {
				t.Errorf("%s: %v in\n%s", b.in, err, doc)
			}
			if class, is := object.(*storagev1.StorageClass); is {
				if _, refusal := (plan.Self{Provisioner: plan.DefaultProvisioner}).Resolve(class, pools); refusal != nil || !ours(class.Provisioner) {
					t.Errorf("%s: class %s: %+v", b.in, class.Name, refusal)
				}
			}
		}
	}
}

// ours reports whether a provisioner's name is one that the documents may use in a class.
func ours(provisioner string) bool {
	_, known := plan.SystemOf(provisioner)
	return known || provisioner == plan.DefaultProvisioner
}

// The volume that is made by hand for orphaned data is one that the daemon knows as its own.
func TestAdoptedVolume(t *testing.T) {
	var pv corev1.PersistentVolume
	for _, b := range blocks(t, "yaml") {
		if first, _, _ := strings.Cut(b.text, "\n---\n"); strings.Contains(first, "kind: PersistentVolume\n") {
			if err := yaml.UnmarshalStrict([]byte(first), &pv); err != nil {
				t.Fatal(err)
			}
		}
	}
	pv.Status.Phase, pv.Spec.ClaimRef = corev1.VolumeReleased, &corev1.ObjectReference{Namespace: "default", Name: "data", UID: "u-1"}
	pool := plan.Pool{Name: pv.Labels[plan.PoolLabel], Path: "/srv/fast"}
	facts := plan.VolumeFacts{Volume: &pv, Self: plan.Self{Provisioner: plan.DefaultProvisioner, Node: "node-a"}, Pool: &pool, Record: &record.Record{PV: pv.Name, Directory: pv.Name, Place: record.InPool}}
	if v := plan.ForVolume(facts); v.Action != plan.Unhold {
		t.Errorf("as it is made: %+v", v)
	}
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	if v := plan.ForVolume(facts); v.Action != plan.Delete {
		t.Errorf("with policy Delete: %+v", v)
	}
	if len(pv.Finalizers) != 1 || pv.Finalizers[0] != plan.Finalizer {
		t.Errorf("finalizers %q", pv.Finalizers)
	}
}

// The record that is shown has the fields that records have.
func TestRecord(t *testing.T) {
	for _, b := range blocks(t, "json") {
		var r record.Record
		decoder := json.NewDecoder(strings.NewReader(b.text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&r); err != nil || r.Version != record.Version {
			t.Errorf("%s: %v, version %d", b.in, err, r.Version)
		}
	}
}
