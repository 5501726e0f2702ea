// Package charts renders what the product's package of this name writes by Helm and by Kustomize
// themselves. It is a module of its own: the product's go.mod does not name what these need.
package charts

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/packaging"
	"github.com/hostpath-provisioner/hostpath-provisioner/packaging/charts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/goldenfile"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// cases are values of the chart, and the options that mean the same.
var cases = map[string]struct {
	values  map[string]any
	options packaging.Options
}{
	"as it is": {nil, packaging.Options{}},
	"another name, no classes": {map[string]any{"provisioner": "Example.com/Host_Path", "classes": false},
		packaging.Options{Provisioner: "Example.com/Host_Path", NoClasses: true}},
	"classes named after it": {map[string]any{"provisioner": "Example.com/Host_Path"}, packaging.Options{Provisioner: "Example.com/Host_Path"}},
	"a long name":            {map[string]any{"provisioner": strings.Repeat("a", 64)}, packaging.Options{Provisioner: strings.Repeat("a", 64)}},
	"a prefix, the index": {map[string]any{"classPrefix": "disk", "claimIndex": true, "provisioner": "disk.example"},
		packaging.Options{ClassPrefix: "disk", ClaimIndex: true, Provisioner: "disk.example"}},
	"confined": {map[string]any{"poolPaths": []any{"/srv", "/mnt/a"}}, packaging.Options{Confine: packaging.Confinement{Paths: []string{"/srv", "/mnt/a"}}}},
	"confined in all ways": {map[string]any{
		"classPrefix": "disk", "confinedClasses": []any{"z", "a-*"},
		"sharedPoolPaths": []any{"/shared"}, "everyNodePoolPaths": []any{"/every"}, "aliases": []any{"b", "a", "hostpath-provisioner"},
		"audiences": []any{"https://a.example"}, "hostnames": map[string]any{"node-b": "b", "node-a": "a"},
	}, packaging.Options{ClassPrefix: "disk", Confine: packaging.Confinement{Classes: []string{"z", "a-*"},
		SharedPaths: []string{"/shared"}, EveryNodePaths: []string{"/every"}, Aliases: []string{"b", "a", "hostpath-provisioner"},
		Audiences: []string{"https://a.example"}, Hostnames: map[string]string{"node-a": "a", "node-b": "b"},
	}}},
}

func TestHelm(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := complete(c.options)
			want := objects(t, packaging.Manifests(o))
			delete(want, "Namespace  "+o.Namespace) // helm install --create-namespace
			same(t, objects(t, render(t, o.Namespace, c.values)), want)
		})
	}
}

func complete(o packaging.Options) packaging.Options {
	if o.Provisioner == "" {
		o.Provisioner = "hostpath-provisioner"
	}
	o.Namespace = "storage"
	return o
}

// render is the chart's objects.
func render(t *testing.T, namespace string, values map[string]any) string {
	t.Helper()
	rendered := hosttest.Need(try(t, namespace, values))(t)
	return rendered
}

func try(t *testing.T, namespace string, values map[string]any) (string, error) {
	t.Helper()
	var files []*loader.BufferedFile
	for name, text := range charts.Helm("v0.2.0-dev.1+gabc") {
		files = append(files, &loader.BufferedFile{Name: name, Data: []byte(text)})
	}
	chart := hosttest.Need(loader.LoadFiles(files))(t)
	hosttest.Check(t, chart.Validate())
	all, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{Name: "r", Namespace: namespace}, nil)
	if err != nil {
		return "", err
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		return "", err
	}
	if notes := rendered["hostpath-provisioner/templates/NOTES.txt"]; !strings.Contains(notes, "enroll --namespace "+namespace+" ") {
		t.Errorf("the notes are %q", notes)
	}
	const templates = "hostpath-provisioner/templates/"
	return rendered[templates+"manifests.yaml"] + rendered[templates+"monitoring.yaml"], nil
}

// Values that would not mean what they say are refused.
func TestValuesAreChecked(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"a key": {"poolPath": []any{"/srv"}}, "the root": {"poolPaths": []any{"/"}}, "a relative path": {"poolPaths": []any{"srv"}},
		"a path and a line": {"poolPaths": []any{"/srv\n/etc"}}, "a text for a list": {"poolPaths": "/srv"}, "no name": {"provisioner": ""},
		"no targets":      {"prometheus": map[string]any{"scrapeConfig": true}},
		"a target's URL":  {"prometheus": map[string]any{"targets": []any{"http://a:9812"}}},
		"a target's port": {"prometheus": map[string]any{"targets": []any{"a"}}},
		"other targets": {"prometheus": map[string]any{
			"scrape": map[string]any{"staticConfigs": []any{}}}},
		"a key beneath one": {"prometheus": map[string]any{"rule": true}},
		"a word for yes":    {"grafana": map[string]any{"dashboard": "yes"}},
		"a label's number":  {"prometheus": map[string]any{"labels": map[string]any{"a": 1}}},
	} {
		if rendered, err := try(t, "storage", values); err == nil {
			t.Errorf("%s is taken: %.300s", name, rendered)
		}
	}
}

func TestKustomize(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			disk := filesys.MakeFsInMemory()
			for file, text := range charts.Kustomization(complete(c.options)) {
				hosttest.Check(t, disk.WriteFile("/k/"+file, []byte(text)))
			}
			built := hosttest.Need(krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
				Run(disk, "/k"))(t)
			text := hosttest.Need(built.AsYaml())(t)
			same(t, objects(t, string(text)), objects(t, packaging.Manifests(complete(c.options))))
		})
	}
}

// objects are those in a text, by kind, namespace and name.
func objects(t *testing.T, text string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Namespace, Name string }
		}
		document += "\n" // of a block at its end it is a part
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if o.Kind == "" {
			continue
		}
		canonical, err := yaml.YAMLToJSONStrict([]byte(document))
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		all[o.Kind+" "+o.Metadata.Namespace+" "+o.Metadata.Name] = string(canonical)
	}
	return all
}

func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	if len(want) < 5 {
		t.Fatalf("there are %d objects", len(want))
	}
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(g, "\n"), strings.Join(w, "\n"))
	}
	for key := range want {
		if got[key] != want[key] {
			t.Errorf("%s: got\n%s\nwant\n%s", key, got[key], want[key])
		}
	}
}

// TestOrder: the orders that test/identity plays on a real API server are Helm's own.
func TestOrder(t *testing.T) {
	o := complete(cases["confined in all ways"].options)
	o.ClaimIndex = true
	files := map[string]string{"all.yaml": packaging.Manifests(o)}
	for name, order := range map[string]releaseutil.KindSortOrder{
		"install": releaseutil.InstallOrder, "uninstall": releaseutil.UninstallOrder,
	} {
		_, sorted, err := releaseutil.SortManifests(files, nil, order)
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, m := range sorted {
			if m.Head.Kind != "" { // the comment at the beginning
				kinds = append(kinds, m.Head.Kind)
			}
		}
		goldenfile.Compare(t, "../../identity/testdata/helm-"+name,
			strings.Join(slices.Compact(kinds), "\n")+"\n")
	}
}
