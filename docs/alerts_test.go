package docs

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// alertPage is where the pages are that alerts name.
const alertPage = "https://github.com/hostpath-provisioner/hostpath-provisioner/blob/main/docs/"

// Every alert has a severity, and names a heading that there is; operation.md lists them all.
func TestAlerts(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert               string
				Labels, Annotations map[string]string
			}
		}
	}
	text := read(t, "../packaging/prometheus/rules.yaml")
	if err := yaml.Unmarshal([]byte(text), &rules); err != nil {
		t.Fatal(err)
	}
	var real []string
	for _, r := range rules.Groups[0].Rules {
		real = append(real, r.Alert)
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s has the severity %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s does not say what is the matter", r.Alert)
		}
		page, is := strings.CutPrefix(r.Annotations["runbook_url"], alertPage)
		file, anchor, _ := strings.Cut(page, "#")
		if !is || !slices.Contains(anchors(read(t, file)), anchor) {
			t.Errorf("%s leads to %q, which is no heading", r.Alert, r.Annotations["runbook_url"])
		}
	}
	same(t, "alerts", firstCells(t, "operation.md", "Alerts"), real)
}
