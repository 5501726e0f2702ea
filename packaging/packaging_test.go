package packaging

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
)

func load(t *testing.T, text string) config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var off = regexp.MustCompile(`(?m)^#([a-z_]+ = )`)

// The example as it is installed is valid, and what it shows as a default is the default: switching
// on every line that is off changes only what the text says is not one.
func TestConfig(t *testing.T) {
	asInstalled, allOn := load(t, Config), load(t, off.ReplaceAllString(Config, "$1"))
	pool := config.DefaultPool("fast")
	pool.Path, pool.MountPoint, pool.Default = "/srv/fast", "/srv/fast", true
	want := config.Default()
	want.Node, want.Pools, want.Warnings = asInstalled.Node, []config.Pool{pool}, asInstalled.Warnings
	if !reflect.DeepEqual(asInstalled, want) {
		t.Errorf("as installed\n%+v\nwant\n%+v", asInstalled, want)
	}
	want.Node, want.Aliases, want.Pools[0].ReclaimPolicy = "node-a", []string{"rancher.io/local-path",
		"kubevirt.io.hostpath-provisioner"}, "Retain"
	want.CSIDrivers = []string{"kubevirt.io.hostpath-provisioner"}
	want.Pools[0].Filesystem, want.Pools[0].Device = "ext4", "UUID=0a1b2c3d-1111-2222-3333-444455556666"
	want.Pools[0].Quota, want.Pools[0].InodesPerGiB, want.Pools[0].Clones = "project", 65536, "reflink"
	want.MetricsWebConfig, allOn.WebError = "/etc/hostpath-provisioner/web.yml", nil // it is not there
	want.Pools[0].Snapshots, want.Pools[0].Set, want.Pools[0].SourceSet = "live", "fast", true
	for _, name := range []string{"b", "c"} { // of paths
		one := want.Pools[0]
		one.Name, one.Path, one.MountPoint, one.Device = "fast-"+name, "/srv/"+name, "/srv/"+name, ""
		want.Pools = append(want.Pools, one)
	}
	if !reflect.DeepEqual(allOn, want) {
		t.Errorf("with every line on\n%+v\nwant\n%+v", allOn, want)
	}
}

func TestConfigHasEveryKey(t *testing.T) {
	for _, key := range config.Keys() {
		name := strings.TrimPrefix(key, "pool.NAME.")
		if n := len(regexp.MustCompile(`(?m)^#?`+name+` = `).FindAllString(Config, -1)); n != 1 {
			t.Errorf("%s stands %d times in config.toml", key, n)
		}
	}
	for line := range strings.Lines(Config) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// objects parses every document strictly into its own type, as the API server would, and lists what
// there is.
func objects(t *testing.T, text string) (list []string, all map[string]any) {
	t.Helper()
	all = map[string]any{}
	for _, doc := range strings.Split(text, "\n---\n") {
		var meta metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		kinds := map[string]any{
			"v1/Namespace": &corev1.Namespace{}, "v1/ServiceAccount": &corev1.ServiceAccount{}, "v1/Secret": &corev1.Secret{},
			"v1/ConfigMap": &corev1.ConfigMap{},
			"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy":        &admissionv1.ValidatingAdmissionPolicy{},
			"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding": &admissionv1.ValidatingAdmissionPolicyBinding{},
			"rbac.authorization.k8s.io/v1/ClusterRole":                         &rbacv1.ClusterRole{},
			"rbac.authorization.k8s.io/v1/ClusterRoleBinding":                  &rbacv1.ClusterRoleBinding{},
			"rbac.authorization.k8s.io/v1/Role":                                &rbacv1.Role{},
			"rbac.authorization.k8s.io/v1/RoleBinding":                         &rbacv1.RoleBinding{},
			"storage.k8s.io/v1/StorageClass":                                   &storagev1.StorageClass{},
			"storage.k8s.io/v1/CSIDriver":                                      &storagev1.CSIDriver{},
		}
		kind := meta.APIVersion + "/" + meta.Kind
		if meta.Kind == "" {
			continue // the instructions
		}
		if err := yaml.UnmarshalStrict([]byte(doc), kinds[kind]); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		name := strings.TrimPrefix(meta.Namespace+"/"+meta.Name, "/")
		list = append(list, meta.Kind+" "+name)
		all[meta.Kind+" "+name] = kinds[kind]
	}
	return list, all
}

// What is removed is what was applied: the CSIDriver first, bindings before their policies, and
// last what policies of earlier builds read, alone or with its namespace; but no namespace that may
// have what is not ours.
func TestManifestsDelete(t *testing.T) {
	for namespace, own := range map[string]bool{"hostpath-provisioner": true, "storage": false,
		"kube-system": false} {
		o := Options{Namespace: namespace, Provisioner: "p", TokenSecret: true,
			Confine: Confinement{Paths: []string{"/srv"}}}
		applied, _ := objects(t, Manifests(o))
		o.Delete, o.Confine = true, Confinement{}
		text := Manifests(o)
		removed, _ := objects(t, text)
		want := slices.DeleteFunc(applied, func(o string) bool {
			return strings.HasPrefix(o,
				"Namespace ") && !own
		})
		want = append(want, "ConfigMap "+namespace+"/hostpath-provisioner-confinement")
		order := []string{"CSIDriver ", "ServiceAccount ", "Secret ",
			"ValidatingAdmissionPolicyBinding ", "ValidatingAdmissionPolicy ", "", "ConfigMap ",
			"Namespace "}
		slices.SortStableFunc(want, func(a, b string) int {
			return cmp.Compare(placeIn(order, a), placeIn(order, b))
		})
		if !slices.Equal(removed, want) || removed[0] != "CSIDriver p" {
			t.Errorf("of %s:\n%s\nwant\n%s", namespace, strings.Join(removed, "\n"),
				strings.Join(want, "\n"))
		}
		if labels := "-n " + namespace + " -l csi.storage.k8s.io/managed-by=hostpath-provisioner,csi.storage.k8s.io/drivername=p\n"; !strings.Contains(text,
			labels) || strings.Contains(text, "@") {
			t.Errorf("of %s:\n%s", namespace, text)
		}
	}
}

// placeIn is that of the object's kind, or of "" for a kind that is not there.
func placeIn(order []string, object string) int {
	if at := slices.IndexFunc(order, func(kind string) bool {
		return kind != "" &&
			strings.HasPrefix(object, kind)
	}); at >= 0 {
		return at
	}
	return slices.Index(order, "")
}

func TestManifests(t *testing.T) {
	var policies string
	for _, p := range []string{"volumes", "claims", "claimstatus", "events", "leases", "capacities",
		"drivers", "snapshotcontents", "snapshotstatus", "tokens"} {
		policies += "ValidatingAdmissionPolicy " + p + ".c.hostpath-provisioner, "
	}
	for _, p := range strings.Split(strings.TrimSuffix(policies, ", "), ", ") {
		policies += strings.Replace(p, "Policy ", "PolicyBinding ", 1) + ", "
	}
	for _, c := range []struct {
		o      Options
		prefix string
		want   string
	}{
		{Options{Namespace: "c", Provisioner: "p", Confine: Confinement{Paths: []string{"/srv"}}},
			"p", "CSIDriver p, Namespace c, ServiceAccount c/hostpath-provisioner, " + policies},
		{Options{Namespace: "storage", Provisioner: "hostpath-provisioner"}, "hostpath-provisioner",
			"CSIDriver hostpath-provisioner, Namespace storage, ServiceAccount storage/hostpath-provisioner, "},
		{Options{Namespace: "kube-system", Provisioner: "torchbox.com/hostpath"},
			"torchbox.com-hostpath", "ServiceAccount kube-system/hostpath-provisioner, "},
		{Options{Namespace: "s", Provisioner: "p", TokenSecret: true, ClassPrefix: "fast"}, "fast",
			"CSIDriver p, Namespace s, ServiceAccount s/hostpath-provisioner, Secret s/hostpath-provisioner, "},
	} {
		text := Manifests(c.o)
		list, all := objects(t, text)
		roles := "ClusterRole hostpath-provisioner:" + c.o.Namespace + ", ClusterRoleBinding hostpath-provisioner:" + c.o.Namespace
		if of := c.o.Namespace + ":" + c.o.Provisioner; strings.HasPrefix(c.want, "CSIDriver") {
			roles += ", ClusterRole hostpath-provisioner:" + of + ", ClusterRoleBinding hostpath-provisioner:" + of
		}
		want := c.want + roles + ", Role " + c.o.Namespace + "/hostpath-provisioner, RoleBinding " + c.o.Namespace + "/hostpath-provisioner"
		classes := ", StorageClass " + c.prefix + ", StorageClass " + c.prefix + "-retain"
		if got := strings.Join(list, ", "); got != want+classes {
			t.Errorf("got\n%s\nwant\n%s", got, want+classes)
		}
		without := c.o
		without.NoClasses = true
		if list, _ := objects(t, Manifests(without)); strings.Join(list, ", ") != want {
			t.Errorf("without classes: %s", list)
		}
		for _, class := range []string{c.prefix, c.prefix + "-retain"} {
			if got := all["StorageClass "+class].(*storagev1.StorageClass).Provisioner; got != c.o.Provisioner {
				t.Errorf("class %s of provisioner %q", class, got)
			}
		}
		binding := all["ClusterRoleBinding hostpath-provisioner:"+c.o.Namespace].(*rbacv1.ClusterRoleBinding)
		if binding.RoleRef.Name != "hostpath-provisioner:"+c.o.Namespace {
			t.Errorf("bound to the role %s", binding.RoleRef.Name)
		}
		subject := binding.Subjects[0]
		if in := all["RoleBinding "+c.o.Namespace+"/hostpath-provisioner"].(*rbacv1.RoleBinding).Subjects[0]; in != subject {
			t.Errorf("bound to %+v and to %+v", subject, in)
		}
		if subject.Namespace != c.o.Namespace || subject.Name != "hostpath-provisioner" ||
			subject.Kind != "ServiceAccount" {
			t.Errorf("bound to %+v", subject)
		}
		if left := regexp.MustCompile(`NAMESPACE|PROVISIONER|CLASS|@`).FindString(text); left != "" {
			t.Errorf("%s was left in\n%s", left, text)
		}
	}
}

// The privileges, all of them: a new verb has to be written down here too.
func TestLeastPrivileges(t *testing.T) {
	_, all := objects(t, Manifests(Options{Namespace: "s", Provisioner: "p"}))
	var got []string
	rules := slices.Concat(all["ClusterRole hostpath-provisioner:s"].(*rbacv1.ClusterRole).Rules,
		all["ClusterRole hostpath-provisioner:s:p"].(*rbacv1.ClusterRole).Rules, all["Role s/hostpath-provisioner"].(*rbacv1.Role).Rules)
	for _, rule := range rules {
		got = append(got, fmt.Sprint(rule.APIGroups, rule.Resources, rule.ResourceNames,
			rule.NonResourceURLs, rule.Verbs))
	}
	want := []string{
		"[] [persistentvolumeclaims] [] [] [get list watch patch]",
		"[] [persistentvolumeclaims/status] [] [] [patch]",
		"[] [persistentvolumes] [] [] [get list watch create patch delete]",
		"[] [pods] [] [] [list watch]",
		"[] [nodes] [] [] [get list watch]",
		"[] [namespaces] [kube-system] [] [get]", // its UID is the cluster's
		"[] [events] [] [] [create get patch]",
		"[storage.k8s.io] [storageclasses] [] [] [get list watch]",
		"[admissionregistration.k8s.io] [mutatingadmissionpolicies] [hostpath-provisioner-claims] [] [get list watch]",
		"[admissionregistration.k8s.io] [mutatingadmissionpolicybindings] [hostpath-provisioner-claims] [] [list watch]",
		"[admissionregistration.k8s.io] [mutatingadmissionpolicies] [hostpath-provisioner-volumes] [] [get]",
		"[admissionregistration.k8s.io] [mutatingadmissionpolicybindings] [hostpath-provisioner-volumes] [] [get]",
		"[storage.k8s.io] [csinodes] [] [] [get]", // of the driver whose volumes are adopted
		"[snapshot.storage.k8s.io] [volumesnapshotcontents] [] [] [get list watch patch]",
		"[snapshot.storage.k8s.io] [volumesnapshotcontents/status] [] [] [patch]",
		"[snapshot.storage.k8s.io] [volumesnapshots] [] [] [get]",
		"[snapshot.storage.k8s.io] [volumesnapshotclasses] [] [] [get]",
		"[storage.k8s.io] [csidrivers] [p] [] [get patch]",
		"[coordination.k8s.io] [leases] [] [] [get list watch create update delete]", // in its namespace
		"[storage.k8s.io] [csistoragecapacities] [] [] [list create patch delete]",   // in its namespace
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The right to read pods is left out where that is asked for, and nothing else.
func TestNoPods(t *testing.T) {
	with, without := Rights(Options{Namespace: "n", Provisioner: "p"}), Rights(Options{Namespace: "n", Provisioner: "p", NoPods: true})
	ofPods := slices.DeleteFunc(slices.Clone(with), func(r Right) bool { return r.Resource != "pods" })
	rest := slices.DeleteFunc(with, func(r Right) bool { return r.Resource == "pods" })
	if len(ofPods) != 2 || !slices.Equal(rest, without) {
		t.Errorf("of pods %v; without them %v", ofPods, without)
	}
}

// The policy of the claim index is printed where it is asked for alone, to be applied and to be
// removed: a server before Kubernetes 1.36 does not know its kind. Who removes the rest is told.
func TestClaimIndexIsAskedFor(t *testing.T) {
	for _, o := range []Options{{ClaimIndex: true}, {ClaimIndex: true, Delete: true}, {},
		{Delete: true}} {
		o.Namespace, o.Provisioner = "s", "p"
		text := Manifests(o)
		if strings.Contains(text, claimindex.VolumesManifest+claimindex.Manifest) != o.ClaimIndex ||
			strings.Contains(text, "kind: Mutating") != o.ClaimIndex ||
			strings.Contains(text, "Where --claim-index was applied") != o.Delete {
			t.Errorf("%+v prints\n%s", o, text)
		}
	}
}

// Installations of two namespaces, or of two provisioners in one namespace, share only objects that
// are the same for both: an
// apply of the one takes nothing from the other.
func TestSideBySide(t *testing.T) {
	one := Options{Namespace: "a", Provisioner: "p",
		Confine: Confinement{Paths: []string{"/srv"}, Aliases: []string{"q"}}}
	for name, other := range map[string]Options{"namespaces": {Namespace: "b", Provisioner: "p",
		Confine: Confinement{Paths: []string{"/mnt"}}}, "provisioners": {Namespace: "a", Provisioner: "q", Confine: Confinement{Paths: []string{"/srv"},
		Aliases: []string{"p"}}}} {
		_, first := objects(t, Manifests(one))
		_, second := objects(t, Manifests(other))
		if len(first) != len(second) {
			t.Errorf("%s: %d and %d objects", name, len(first), len(second))
		}
		for object, is := range first {
			if there, both := second[object]; both && !reflect.DeepEqual(is, there) {
				t.Errorf("%s: %s is\n%+v\nand\n%+v", name, object, is, there)
			}
		}
	}
}
