// Package alerts keeps what daemons served of the series that the packages' alerts read, each in
// the state that the alert is about, and writes of that the test that promtool plays.
//
// It evaluates no expression: promtool does that.
package alerts

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// prefix begins the name of each alert.
const prefix = "HostpathProvisioner"

// Rule is one alert of packaging/prometheus/rules.yaml.
type Rule struct {
	Name   string        // without the prefix
	For    time.Duration // how long it is pending
	Window time.Duration // the range of its expression, 0 if it has none
	// Whole: the expression has to be true in the whole window, and not at one time of it.
	Whole bool
	Still bool // it is about a counter that does not become larger
	reads []selector
}

// selector is a name of a metric and the matchers of its labels.
type selector struct {
	metric   string
	matchers []matcher
}

type matcher struct {
	label string
	value *regexp.Regexp
	not   bool
}

var (
	selectors = regexp.MustCompile(`\b(hostpath_provisioner_[a-z_]+|up)\b(?:\{([^}]*)\})?`)
	matchers  = regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`)
	windows   = regexp.MustCompile(`\[(\d+[mh])\]`)
)

// Rules reads the alerts below the repository's root.
func Rules(root string) ([]Rule, error) {
	text, err := os.ReadFile(filepath.Join(root, "packaging", "prometheus", "rules.yaml"))
	if err != nil {
		return nil, err
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr, For string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	var rules []Rule
	for _, r := range file.Groups[0].Rules {
		rule := Rule{Name: strings.TrimPrefix(r.Alert, prefix), reads: selectorsOf(r.Expr),
			Still: strings.Contains(r.Expr, "increase(") && strings.HasSuffix(r.Expr, "== 0")}
		rule.Whole = rule.Still || strings.Contains(r.Expr, "min_over_time")
		if r.For != "" {
			if rule.For, err = time.ParseDuration(r.For); err != nil {
				return nil, fmt.Errorf("%s: %w", r.Alert, err)
			}
		}
		if m := windows.FindStringSubmatch(r.Expr); m != nil {
			if rule.Window, err = time.ParseDuration(m[1]); err != nil {
				return nil, fmt.Errorf("%s: %w", r.Alert, err)
			}
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func selectorsOf(expression string) (all []selector) {
	for _, m := range selectors.FindAllStringSubmatch(expression, -1) {
		s := selector{metric: m[1]}
		for _, label := range matchers.FindAllStringSubmatch(m[2], -1) {
			if label[1] == "job" {
				continue // Prometheus adds it
			}
			value := label[3]
			if !strings.HasSuffix(label[2], "~") {
				value = regexp.QuoteMeta(value)
			}
			s.matchers = append(s.matchers, matcher{label[1],
				regexp.MustCompile("^(?:" + value + ")$"), label[2][0] == '!'})
		}
		all = append(all, s)
	}
	return all
}

// Reads reports whether the alert's expression has a selector of this series, which is written as
// /metrics has it.
func (r Rule) Reads(series string) bool {
	metric, labels, _ := strings.Cut(series, "{")
	values := map[string]string{}
	for _, m := range matchers.FindAllStringSubmatch(labels, -1) {
		values[m[1]] = m[3]
	}
	for _, s := range r.reads {
		if s.metric == metric && s.takes(values) {
			return true
		}
	}
	return false
}

func (s selector) takes(labels map[string]string) bool {
	for _, m := range s.matchers {
		if m.value.MatchString(labels[m.label]) == m.not {
			return false
		}
	}
	return true
}
