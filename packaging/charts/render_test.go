package charts

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/packaging"
)

// inCluster is what the cluster has of what the chart looks for.
var inCluster map[string]any

// functions are those of Helm that the chart calls. That Helm's own do the same is shown in
// test/upstream/charts.
var functions = template.FuncMap{
	"default": func(otherwise, value string) string {
		if value == "" {
			return otherwise
		}
		return value
	},
	"lower":      strings.ToLower,
	"lookup":     func(...string) map[string]any { return inCluster },
	"replace":    func(old, with, in string) string { return strings.ReplaceAll(in, old, with) },
	"regexMatch": regexp.MatchString,
	"list":       func(all ...any) []any { return all },
	"toJson":     func(of any) (string, error) { text, err := json.Marshal(of); return string(text), err },
	"ternary": func(yes, no any, condition bool) any {
		if condition {
			return yes
		}
		return no
	},
	"has": func(one string, all []any) bool {
		return slices.ContainsFunc(all, func(of any) bool { return of == one })
	},
	"concat": func(all ...[]any) []any { return append([]any{}, slices.Concat(all...)...) },
	"uniq":   func(all []string) []string { return slices.Compact(all) },
	"indent": func(by int, text string) string {
		margin := strings.Repeat(" ", by)
		return margin + strings.ReplaceAll(text, "\n", "\n"+margin)
	},
	"sortAlpha": func(all []any) (sorted []string) {
		sorted = []string{}
		for _, one := range all {
			sorted = append(sorted, one.(string))
		}
		slices.Sort(sorted)
		return sorted
	},
}

// chartFiles are those of the chart, as templates read them.
type chartFiles map[string]string

// Get is Helm's.
func (f chartFiles) Get(name string) string { return f[name] }

// rendered is a file of the chart with these values in the places of its own, in a namespace.
func rendered(t *testing.T, file, namespace string, values map[string]any) string {
	t.Helper()
	files := Helm("v0.2.0")
	all := map[string]any{}
	if err := yaml.Unmarshal([]byte(files["values.yaml"]), &all); err != nil {
		t.Fatal(err)
	}
	maps.Copy(all, values)
	parsed, err := template.New(file).Funcs(functions).Option("missingkey=error").Parse(files[file])
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := parsed.Execute(&text, map[string]any{"Values": all, "Files": chartFiles(files),
		"Release": map[string]any{"Namespace": namespace}}); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// parsed are the objects in a text, by their kinds and names, each of which it has once.
func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, d := range documents(text) {
		var object any
		if err := yaml.UnmarshalStrict([]byte(d.text), &object); err != nil {
			t.Fatalf("%v in\n%s", err, d.text)
		}
		if _, twice := all[d.kind+" "+d.name]; twice {
			t.Errorf("%s %s is there twice", d.kind, d.name)
		}
		all[d.kind+" "+d.name] = object
	}
	return all
}

func differ(t *testing.T, got, want map[string]any) {
	t.Helper()
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(g, "\n"), strings.Join(w, "\n"))
	}
	for name := range want {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("%s is\n%v\nwant\n%v", name, got[name], want[name])
		}
	}
}

// The chart has the objects of the manifests, whichever values are given.
func TestRendered(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		values map[string]any
		want   packaging.Options
	}{
		"as it is":            {nil, packaging.Options{Provisioner: "hostpath-provisioner"}},
		"no classes":          {map[string]any{"classes": false}, packaging.Options{Provisioner: "hostpath-provisioner", NoClasses: true}},
		"a prefix":            {map[string]any{"classPrefix": "disk"}, packaging.Options{Provisioner: "hostpath-provisioner", ClassPrefix: "disk"}},
		"inline volumes":      {map[string]any{"inlineVolumes": true}, packaging.Options{Provisioner: "hostpath-provisioner", InlineVolumes: true}},
		"a qualified name":    {map[string]any{"provisioner": "Example.com/Host_Path"}, packaging.Options{Provisioner: "Example.com/Host_Path"}},
		"a driver's name":     {map[string]any{"provisioner": "disk.example"}, packaging.Options{Provisioner: "disk.example"}},
		"no driver's name":    {map[string]any{"provisioner": "disk..example"}, packaging.Options{Provisioner: "disk..example"}},
		"the longest driver":  {map[string]any{"provisioner": long[1:]}, packaging.Options{Provisioner: long[1:]}},
		"longer than that":    {map[string]any{"provisioner": long}, packaging.Options{Provisioner: long}},
		"the index of claims": {map[string]any{"claimIndex": true}, packaging.Options{Provisioner: "hostpath-provisioner", ClaimIndex: true}},
		"classes of their own": {map[string]any{"poolPaths": []any{"/srv/<&>/*"}, "classPrefix": "disk", "confinedClasses": []any{"z", "disk", "a-*"}},
			packaging.Options{Provisioner: "hostpath-provisioner", ClassPrefix: "disk", Confine: packaging.Confinement{Paths: []string{"/srv/<&>/*"}, Classes: []string{"z", "disk", "a-*"}}}},
		"two paths": {map[string]any{"poolPaths": []any{"/srv", "/mnt/a"}},
			packaging.Options{Provisioner: "hostpath-provisioner", Confine: packaging.Confinement{Paths: []string{"/srv", "/mnt/a"}}}},
		"shared pools alone": {map[string]any{"sharedPoolPaths": []any{"/shared"}, "provisioner": "p", "aliases": []any{"q", "p", "b"}},
			packaging.Options{Provisioner: "p", Confine: packaging.Confinement{SharedPaths: []string{"/shared"}, Aliases: []string{"q", "p", "b"}}}},
		"in the place of kubevirt's": {
			map[string]any{"aliases": []any{"kubevirt.io.hostpath-provisioner"}},
			packaging.Options{Provisioner: "hostpath-provisioner",
				Confine: packaging.Confinement{Aliases: []string{packaging.KubevirtCSI}}}},
		"kubevirt's, confined": {
			map[string]any{"aliases": []any{"kubevirt.io.hostpath-provisioner"}, "poolPaths": []any{"/srv"}},
			packaging.Options{Provisioner: "hostpath-provisioner", Confine: packaging.Confinement{
				Paths: []string{"/srv"}, Aliases: []string{packaging.KubevirtCSI}}}},
		"pools of every node alone": {map[string]any{"everyNodePoolPaths": []any{"/every"}, "hostnames": map[string]any{"node-b.example": "b", "node-a": "1"}, "audiences": []any{"https://a.example"}},
			packaging.Options{Provisioner: "hostpath-provisioner", Confine: packaging.Confinement{EveryNodePaths: []string{"/every"}, Hostnames: map[string]string{"node-a": "1", "node-b.example": "b"}, Audiences: []string{"https://a.example"}}}},
	} {
		for _, c.want.Namespace = range []string{"storage", "hostpath-provisioner", "kube-system"} {
			t.Run(name+" in "+c.want.Namespace, func(t *testing.T) {
				want := parsed(t, packaging.Manifests(c.want))
				delete(want, "Namespace "+c.want.Namespace) // helm install --create-namespace
				differ(t, parsed(t, rendered(t, "templates/manifests.yaml", c.want.Namespace, c.values)), want)
			})
		}
	}
	if got := rendered(t, "templates/NOTES.txt", "storage", nil); !strings.Contains(got, "enroll --namespace storage ") {
		t.Errorf("the notes are %q", got)
	}
}

// The chart has the packages' alerts and dashboard, byte for byte, where its values ask for them,
// and nothing for Prometheus and Grafana where they do not. Without targets nothing is scraped.
func TestMonitoring(t *testing.T) {
	const file = "templates/monitoring.yaml"
	for name, values := range map[string]map[string]any{
		"as it is": nil, "values of an earlier chart": {"prometheus": nil, "grafana": nil}} {
		if got := strings.TrimSpace(rendered(t, file, "storage", values)); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
	got := parsed(t, rendered(t, file, "storage", map[string]any{
		"prometheus": map[string]any{"rules": true, "scrapeConfig": true, "targets": []any{"a:1"},
			"scrape": map[string]any{"scheme": "HTTPS"}, "labels": map[string]any{"release": "r"}},
		"grafana": map[string]any{"dashboard": true},
	}))
	var alerts any
	if err := yaml.UnmarshalStrict([]byte(packaging.Alerts), &alerts); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"PrometheusRule hostpath-provisioner": alerts,
		"ScrapeConfig hostpath-provisioner": map[string]any{
			"scheme": "HTTPS", "staticConfigs": []any{map[string]any{
				"targets": []any{"a:1"}, "labels": map[string]any{"job": "hostpath-provisioner"}}}},
		"ConfigMap hostpath-provisioner-dashboard": map[string]any{
			"hostpath-provisioner.json": packaging.Dashboard},
	}
	for object, spec := range got {
		of := spec.(map[string]any)
		if got[object] = of["spec"]; of["data"] != nil {
			got[object] = of["data"]
		}
	}
	differ(t, got, want)
}

// An upgrade keeps what the policies of an earlier version read, whatever is in it, and makes none
// where there is none.
func TestEarlierParametersAreKept(t *testing.T) {
	const name = "ConfigMap hostpath-provisioner-confinement"
	if _, made := parsed(t, rendered(t, "templates/manifests.yaml", "storage", nil))[name]; made {
		t.Error("it is made where there is none")
	}
	data := map[string]any{"paths": "/srv/a\n/srv/b", "hostname.a": "1"}
	inCluster = map[string]any{"metadata": map[string]any{"namespace": "storage"}, "data": data}
	defer func() { inCluster = nil }()
	kept, is := parsed(t, rendered(t, "templates/manifests.yaml", "storage", nil))[name].(map[string]any)
	if !is || !reflect.DeepEqual(kept["data"], data) || !strings.Contains(fmt.Sprint(kept["metadata"]), "helm.sh/resource-policy:keep") {
		t.Errorf("%v", kept)
	}
}

// A kustomization in a namespace, with names of its own, has what the manifests have, each kind in
// the file that an overlay expects.
func TestKustomizedFiles(t *testing.T) {
	for name, o := range map[string]packaging.Options{
		"another name":  {Namespace: "a", Provisioner: "Example.com/Host_Path"},
		"a prefix":      {Namespace: "b", Provisioner: "p", ClassPrefix: "disk", ClaimIndex: true},
		"a kept token":  {Namespace: "kube-system", Provisioner: "p", TokenSecret: true},
		"to be removed": {Namespace: "hostpath-provisioner", Provisioner: "p", Delete: true},
		"confined":      {Namespace: "a", Provisioner: "p", Confine: packaging.Confinement{Paths: []string{"/a"}, Hostnames: map[string]string{"n": "1"}}},
	} {
		got := map[string]any{}
		for file, text := range Kustomization(o) {
			for object, is := range parsed(t, text) {
				got[object] = is
				kind, _, _ := strings.Cut(object, " ")
				if want := fileOf(kind); file != want {
					t.Errorf("%s: %s is in %s, want %s", name, object, file, want)
				}
			}
		}
		differ(t, got, parsed(t, packaging.Manifests(o)))
	}
}

func fileOf(kind string) string {
	return map[string]string{
		"StorageClass": "classes.yaml", "ConfigMap": "objects.yaml", "ValidatingAdmissionPolicy": "policies.yaml", "ValidatingAdmissionPolicyBinding": "policies.yaml",
		"MutatingAdmissionPolicy": "claim-index.yaml", "MutatingAdmissionPolicyBinding": "claim-index.yaml",
		"Role": "rights.yaml", "RoleBinding": "rights.yaml", "ClusterRole": "rights.yaml", "ClusterRoleBinding": "rights.yaml",
		"CSIDriver": "objects.yaml", "Namespace": "objects.yaml", "ServiceAccount": "objects.yaml", "Secret": "objects.yaml",
	}[kind]
}

// The schema knows each value of the chart and no other, and its paths are those under which pools
// can be.
func TestSchema(t *testing.T) {
	var checked struct {
		Additional  bool `json:"additionalProperties"`
		Properties  map[string]map[string]any
		Definitions map[string]struct{ Items struct{ Pattern string } }
	}
	if err := json.Unmarshal([]byte(schema), &checked); err != nil {
		t.Fatal(err)
	}
	var known map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &known); err != nil {
		t.Fatal(err)
	}
	known["global"] = map[string]any{} // Helm's own
	if got, want := slices.Sorted(maps.Keys(checked.Properties)), slices.Sorted(maps.Keys(known)); !slices.Equal(got, want) || checked.Additional {
		t.Errorf("it takes %q, want %q; others: %t", got, want, checked.Additional)
	}
	types := map[string]any{"bool": "boolean", "string": "string", "[]interface {}": "array", "map[string]interface {}": "object"}
	for key, value := range known {
		if is := checked.Properties[key]; is["$ref"] == nil && is["type"] != types[reflect.TypeOf(value).String()] || (is["$ref"] == "#/definitions/paths") != strings.HasSuffix(strings.ToLower(key), "poolpaths") {
			t.Errorf("%s is %T, and the schema has %v", key, value, is)
		}
	}
	path := regexp.MustCompile(checked.Definitions["paths"].Items.Pattern)
	for text, want := range map[string]bool{"/srv": true, "/srv/fast disk/1": true, "/srv/*": true, "/*": false, "/srv*": false, "/srv/*/a": false, "/": false, "": false, "srv": false, "/srv/": false, "//srv": false, "/srv\n/etc": false, "/srv\n": false} {
		if path.MatchString(text) != want {
			t.Errorf("the path %q is taken: %t", text, !want)
		}
	}
}
