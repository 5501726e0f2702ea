package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// board is the part of the dashboard that asks.
type board struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
	Templating struct {
		List []struct{ Name, Type, Query, AllValue string }
	}
}

// unanswered are panels of which these daemons have no series, and why. One that is answered after
// all is an error.
var unanswered = map[string]string{
	"Projects taken":                    "no pool here has quota_ids",
	"Fullest volumes":                   "no pool here has project quotas",
	"Volumes with most of their inodes": "no pool here has project quotas",
}

// occurring are panels of what happens in this test, the last of which are a refused claim and a
// closed pool: when they have more than 0, everything has been scraped.
var occurring = []string{"Claims that got a volume", "Expansions", "Snapshots", "Volumes by state",
	"Removed, and not removed", "Claims that were refused", "Pools closed or full", "Findings"}

// A real Prometheus that scraped two real daemons, one with a closed pool, answers each query of
// the dashboard with numbers, and each variable with the nodes and pools that there are.
func TestDashboard(t *testing.T) {
	w := newEnvironment(t)
	a, b := w.newHost("a", `snapshots = "copy"`), w.newHost("b")
	p := w.prometheus(a.metrics(), b.metrics())
	a.run()
	b.run()
	w.Eventually("both were scraped before anything happened", func() bool {
		return len(p.query(`hostpath_provisioner_claims_provisioned_total{pool="fast"} == 0`)) == 2
	})
	a.eventful()
	hosttest.Unmount(t, b.mount)

	text, err := os.ReadFile(filepath.Join(rig.Root(), "packaging", "grafana",
		"hostpath-provisioner.json"))
	w.Must(err)
	var d board
	w.Must(json.Unmarshal(text, &d))
	asked := p.asked(d)
	for _, title := range occurring {
		w.Eventually(title+" has more than 0", func() bool {
			return len(asked[title]) == 1 && slices.Max(append(p.query(asked[title][0]), 0)) > 0
		})
	}
	queries := 0
	for title, expressions := range asked {
		for _, expression := range expressions {
			queries++
			if got := p.query(expression); (len(got) == 0) != (unanswered[title] != "") {
				t.Errorf("%s is answered with %v: %s", title, got, expression)
			}
		}
	}
	for title := range unanswered {
		if asked[title] == nil {
			t.Errorf("there is no panel %q", title)
		}
	}
	if queries < 40 {
		t.Errorf("%d queries", queries)
	}
}

// eventful has the daemon make, expand, copy, refuse and remove.
func (h *host) eventful() {
	w := h.w
	w.Helper()
	s := w.snapshots()
	class := w.Class("c", immediate, fixture.Expandable)
	origin := h.made("data", class)
	w.grow("2Mi")
	s.ready("snap", s.ask("snap", origin, w.Provisioner, "Delete"))
	gone := h.made("gone", class)
	w.DeleteClaim("gone")
	w.Must(w.WaitVolumeGone(w.Soon(), gone.Name))
	w.refused(w.claim("large", class, "1Ti", annotate(provisionOnNode, h.node)), "NotEnoughSpace")
}

// prometheus is a real one.
type prometheus struct {
	*environment
	url string
}

// prometheus starts one that scrapes these addresses, with what prometheus-operator makes of the
// Helm chart's ScrapeConfig: the label of the targets is the job's name. It ends with the test.
func (w *environment) prometheus(targets ...string) *prometheus {
	w.Helper()
	dir := hosttestDir(w.T, "prometheus")
	address, err := rig.FreeAddress()
	w.Must(err)
	list, err := json.Marshal(targets)
	w.Must(err)
	config := filepath.Join(dir, "prometheus.yml")
	w.Must(os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 200ms}
scrape_configs:
  - job_name: scrapeConfig/storage/hostpath-provisioner
    static_configs: [{targets: %s, labels: {job: hostpath-provisioner}}]
`, list), 0o600))
	log, err := os.Create(filepath.Join(dir, "log"))
	w.Must(err)
	cmd := exec.Command(filepath.Join(rig.Root(), ".build/prometheus"), "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address,
		"--log.level=warn")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // beside tests that wait for their daemons
	cmd.Stdout, cmd.Stderr = log, log
	child, err := process.Start(cmd)
	if err != nil {
		w.Fatalf("no prometheus: %v; run: make .build/prometheus", err)
	}
	w.Cleanup(func() {
		_ = child.Kill()
		if said, _ := os.ReadFile(log.Name()); w.Failed() {
			w.Logf("prometheus:\n%s", said)
		}
		log.Close()
	})
	p := &prometheus{w, "http://" + address}
	w.Eventually("prometheus is ready", func() bool {
		if !child.Running() {
			w.Fatal("prometheus has ended")
		}
		response, err := http.Get(p.url + "/-/ready")
		if err == nil {
			response.Body.Close()
		}
		return err == nil && response.StatusCode == http.StatusOK
	})
	return p
}

// get reads what the API has at a path, and fails for an error of it.
func (p *prometheus) get(path string, parameters url.Values, into any) {
	p.Helper()
	response, err := http.Get(p.url + path + "?" + parameters.Encode())
	p.Must(err)
	defer response.Body.Close()
	var whole struct {
		Status, Error string
		Data          json.RawMessage
	}
	p.Must(json.NewDecoder(response.Body).Decode(&whole))
	if whole.Status != "success" {
		p.Fatalf("%s: %s", parameters, whole.Error)
	}
	p.Must(json.Unmarshal(whole.Data, into))
}

// query returns the numbers of an instant query; NaN is none.
func (p *prometheus) query(expression string) (numbers []float64) {
	p.Helper()
	var got struct{ Result []struct{ Value [2]any } }
	p.get("/api/v1/query", url.Values{"query": {expression}}, &got)
	for _, series := range got.Result {
		number, err := strconv.ParseFloat(series.Value[1].(string), 64)
		if p.Must(err); !math.IsNaN(number) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// values is the only form of a variable's query that the dashboard has.
var values = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// asked are the dashboard's queries by their panels, as Grafana sends them where all values of each
// variable are chosen.
func (p *prometheus) asked(d board) map[string][]string {
	p.Helper()
	all := []string{"$__rate_interval", "10m"}
	found := map[string]int{}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := values.FindStringSubmatch(v.Query)
		if m == nil {
			p.Fatalf("variable %s asks %q", v.Name, v.Query)
		}
		var got []string
		p.get("/api/v1/label/"+m[2]+"/values",
			url.Values{"match[]": {strings.NewReplacer(all...).Replace(m[1])}}, &got)
		found[v.Name] = len(got)
		all = append(all, "$"+v.Name, v.AllValue)
	}
	if found["node"] != 2 || found["pool"] != 1 {
		p.Errorf("nodes and pools to choose: %v", found)
	}
	asked, chosen := map[string][]string{}, strings.NewReplacer(all...)
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			asked[panel.Title] = append(asked[panel.Title], chosen.Replace(target.Expr))
		}
	}
	return asked
}
