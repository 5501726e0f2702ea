package prometheus

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// OfQuotas are the panels of the dashboard of which a daemon has series only with project quotas.
var OfQuotas = []string{"Projects taken", "Fullest volumes", "Volumes with most of their inodes"}

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

// values is the only form of a variable's query that the dashboard has.
var values = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// Asked are the queries of the packages' dashboard by their panels, as Grafana sends them where all
// values of each variable are chosen, and how many values there are of each variable.
func (s *Server) Asked() (queries map[string][]string, chosen map[string]int, err error) {
	text, err := os.ReadFile(filepath.Join(rig.Root(), "packaging", "grafana", "hostpath-provisioner.json"))
	if err != nil {
		return nil, nil, err
	}
	var d board
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, nil, err
	}
	all := []string{"$__rate_interval", "10m"}
	queries, chosen = map[string][]string{}, map[string]int{}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := values.FindStringSubmatch(v.Query)
		if m == nil {
			return nil, nil, fmt.Errorf("variable %s asks %q", v.Name, v.Query)
		}
		var got []string
		err := s.get("/api/v1/label/"+m[2]+"/values",
			url.Values{"match[]": {strings.NewReplacer(all...).Replace(m[1])}}, &got)
		if err != nil {
			return nil, nil, err
		}
		chosen[v.Name] = len(got)
		all = append(all, "$"+v.Name, v.AllValue)
	}
	whole := strings.NewReplacer(all...)
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			queries[panel.Title] = append(queries[panel.Title], whole.Replace(target.Expr))
		}
	}
	return queries, chosen, nil
}
