package charts

import (
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/packaging"
)

// The manifests have no braces of Helm, and nothing of the names in whose places its expressions
// are is left. What Helm makes of it is compared in test/upstream/charts.
func TestHelm(t *testing.T) {
	o := packaging.Options{Namespace: namespace, Provisioner: provisioner, ClassPrefix: class, ClaimIndex: true, Confine: packaging.Confinement{Paths: []string{"/pools"}}}
	if strings.Contains(packaging.Manifests(o), "{{") {
		t.Error("Helm would evaluate what is in the manifests")
	}
	files := Helm("v0.2.0-dev.1+gabc")
	text := files["templates/manifests.yaml"]
	for _, name := range []string{namespace, provisioner, class, list} {
		if strings.Contains(text, name) {
			t.Errorf("%s is left", name)
		}
	}
	for _, kind := range []string{"CSIDriver", "ServiceAccount", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "ClusterRole", "Role", "StorageClass"} {
		if !strings.Contains(text, "\nkind: "+kind+"\n") {
			t.Errorf("there is no %s", kind)
		}
	}
	if strings.Contains(text, "\nkind: Namespace\n") {
		t.Error("the namespace is a release's, and not the chart's")
	}
	if opened, closed := strings.Count(text, "{{- if ")+strings.Count(text, "{{- range ")+strings.Count(text, "{{- with "), strings.Count(text, "{{- end }}"); opened != closed {
		t.Errorf("%d are opened and %d closed", opened, closed)
	}
}

// A chart has the program's version, as far as that is one that Helm takes.
func TestVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v0.2.0": "version: 0.2.0\nappVersion: \"v0.2.0\"\n", "v0.2.0-dev.699+g29df68e.dirty": "version: 0.2.0-dev.699+g29df68e.dirty\n",
		"(devel)": "version: 0.0.0\n", "": "version: 0.0.0\n", "v1": "version: 0.0.0\n",
	} {
		if got := Helm(version)["Chart.yaml"]; !strings.Contains(got, want) {
			t.Errorf("%q: %s", version, got)
		}
	}
}

// Each object of the manifests is in one file, and each file in the list, once.
func TestKustomization(t *testing.T) {
	for name, o := range map[string]packaging.Options{
		"plain":    {Namespace: "storage", Provisioner: "p"},
		"confined": {Namespace: "hostpath-provisioner", Provisioner: "p", ClaimIndex: true, Confine: packaging.Confinement{Paths: []string{"/srv"}}},
		"bare":     {Namespace: "default", Provisioner: "Not/ADriver", NoClasses: true},
	} {
		files, objects := Kustomization(o), 0
		list := files["kustomization.yaml"]
		for file, text := range files {
			if file != "kustomization.yaml" {
				objects += len(documents(text))
				if strings.Count(list, "\n  - "+file+"\n") != 1 {
					t.Errorf("%s: %s is not listed once in\n%s", name, file, list)
				}
			}
		}
		if want := len(documents(packaging.Manifests(o))); objects != want || want < 4 {
			t.Errorf("%s: %d objects, want %d", name, objects, want)
		}
		if files["classes.yaml"] == "" != o.NoClasses || files["claim-index.yaml"] == "" == o.ClaimIndex || files["policies.yaml"] == "" == o.Confine.Any() {
			t.Errorf("%s: the files are\n%s", name, list)
		}
	}
}
