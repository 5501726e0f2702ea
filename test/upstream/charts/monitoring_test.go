package charts

import (
	"maps"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoringv1alpha1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/packaging"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// monitoring are the values that ask for all of it.
var monitoring = map[string]any{
	"prometheus": map[string]any{
		"rules": true, "scrapeConfig": true, "targets": []any{"node-a:9812", "[2001:db8::1]:9812"},
		"labels": map[string]any{"release": "kube-prometheus-stack"},
		"scrape": map[string]any{"scheme": "HTTPS", "scrapeInterval": "30s",
			"tlsConfig": map[string]any{"ca": map[string]any{
				"secret": map[string]any{"name": "ca", "key": "ca.crt"}}}},
	},
	"grafana": map[string]any{"dashboard": true},
}

// What the chart has for Prometheus and Grafana is what the packages have, in objects that
// prometheus-operator's own types take. It is beside the others, which stay as they are.
func TestMonitoring(t *testing.T) {
	without := objects(t, render(t, "storage", nil))
	with := objects(t, render(t, "storage", monitoring))
	var rules monitoringv1.PrometheusRule
	read(t, with, "PrometheusRule storage hostpath-provisioner", &rules)
	var alerts monitoringv1.PrometheusRuleSpec
	hosttest.Check(t, yaml.UnmarshalStrict([]byte(packaging.Alerts), &alerts))
	if got, want := text(t, rules.Spec), text(t, alerts); got != want || len(alerts.Groups) != 1 ||
		!strings.Contains(want, "{{ $labels.instance }}") {
		t.Errorf("the rules are\n%s\nwant\n%s", got, want)
	}
	var scrape monitoringv1alpha1.ScrapeConfig
	read(t, with, "ScrapeConfig storage hostpath-provisioner", &scrape)
	const want = `scheme: HTTPS
scrapeInterval: 30s
staticConfigs:
- labels:
    job: hostpath-provisioner
  targets:
  - node-a:9812
  - '[2001:db8::1]:9812'
tlsConfig:
  ca:
    secret:
      key: ca.crt
      name: ca
  cert: {}
`
	if got := text(t, scrape.Spec); got != want {
		t.Errorf("it scrapes\n%s\nwant\n%s", got, want)
	}
	for kind, labels := range map[string]map[string]string{
		"rules": rules.Labels, "scrape": scrape.Labels} {
		if labels["release"] != "kube-prometheus-stack" || len(labels) != 2 {
			t.Errorf("%s: %v", kind, labels)
		}
	}
	var board corev1.ConfigMap
	read(t, with, "ConfigMap storage hostpath-provisioner-dashboard", &board)
	if board.Labels["grafana_dashboard"] != "1" || len(board.Data) != 1 ||
		board.Data["hostpath-provisioner.json"] != packaging.Dashboard ||
		!strings.Contains(packaging.Dashboard, "{{instance}}") {
		t.Errorf("%v\n%.300s", board.Labels, board.Data)
	}
	same(t, with, without)
}

// read takes an object out of those that are left, by a type that knows all its fields.
func read(t *testing.T, from map[string]string, name string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(from[name]), into); err != nil || from[name] == "" {
		t.Errorf("%s: %v in\n%.300s", name, err, from[name])
	}
	delete(from, name)
}

func text(t *testing.T, of any) string {
	t.Helper()
	all := hosttest.Need(yaml.Marshal(of))(t)
	return string(all)
}

// Each object has a value of its own, and a release that keeps the values of an earlier chart, or
// takes them away, has none.
func TestMonitoringIsAsked(t *testing.T) {
	asked := func(prometheus, grafana map[string]any) map[string]any {
		return map[string]any{"prometheus": prometheus, "grafana": grafana}
	}
	without := render(t, "storage", nil)
	for name, c := range map[string]struct {
		values map[string]any
		want   []string
	}{
		"nothing": {asked(map[string]any{"labels": map[string]any{"a": "b"},
			"targets": []any{"a:1"}}, nil), nil},
		"an older chart": {map[string]any{"prometheus": nil, "grafana": nil}, nil},
		"rules": {asked(map[string]any{"rules": true}, nil),
			[]string{"PrometheusRule storage hostpath-provisioner"}},
		"scraping": {asked(map[string]any{"scrapeConfig": true, "targets": []any{"a:1"}}, nil),
			[]string{"ScrapeConfig storage hostpath-provisioner"}},
		"a dashboard": {asked(nil, map[string]any{"dashboard": true}),
			[]string{"ConfigMap storage hostpath-provisioner-dashboard"}},
	} {
		rendered := render(t, "storage", c.values)
		made := objects(t, rendered)
		for key := range objects(t, without) {
			delete(made, key)
		}
		if got := slices.Sorted(maps.Keys(made)); !slices.Equal(got, c.want) {
			t.Errorf("%s: made %q, want %q", name, got, c.want)
		}
		if c.want == nil && rendered != without {
			t.Errorf("%s: the text differs", name)
		}
	}
}
