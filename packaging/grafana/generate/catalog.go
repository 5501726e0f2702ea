package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/metrics"
)

// ours begins the names of the product's metrics. The registry has those of the Go runtime and of
// the process, too, as every other program in Go.
const ours = "hostpath_provisioner_"

// metric is one of the list: what it is, in the words that the daemon serves, and its labels.
type metric struct {
	help   string
	labels []string
}

// catalog are the metrics that the daemon serves, by their names.
type catalog map[string]metric

// described is a prometheus.Desc as it prints itself, which is all that it tells.
var described = regexp.MustCompile(
	`fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"),.*variableLabels: \{([^}]*)\}`)

func readCatalog() catalog {
	all := make(chan *prometheus.Desc, 1000)
	metrics.New("", metrics.Sources{}).Registry.Describe(all)
	close(all)
	found := catalog{}
	for d := range all {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			continue // of the Go runtime's some have no name until they are collected
		}
		name, _ := strconv.Unquote(m[1])
		help, _ := strconv.Unquote(m[2])
		found[name] = metric{help, strings.Split(m[3], ",")}
	}
	return found
}

// place is where an expression has a metric: <pool_open> is one of ours, <=go_goroutines> another
// one, whose name says nothing of the daemon, and which is chosen by its job.
var place = regexp.MustCompile(`<(=?)(\w+)>`)

// series is what a histogram has beside its name.
var series = regexp.MustCompile(`_(bucket|count|sum)$`)

// fill puts the metrics with their selectors in their places in an expression, and returns their
// names. An error names a metric that is not in the list.
func (c catalog) fill(expression string) (filled string, names []string, err error) {
	filled = place.ReplaceAllStringFunc(expression, func(of string) string {
		m := place.FindStringSubmatch(of)
		name, selectors := m[2], `instance=~"$node"`
		if m[1] == "" {
			name = ours + name
		} else {
			selectors = `job="hostpath-provisioner",` + selectors
		}
		known := name
		if _, is := c[known]; !is {
			known = series.ReplaceAllString(name, "")
		}
		if _, is := c[known]; !is && known != "up" { // which Prometheus makes
			err = fmt.Errorf("%s is no metric of the daemon", name)
		}
		if slices.Contains(c[known].labels, "pool") {
			selectors += `,pool=~"$pool"`
		}
		names = append(names, known)
		return name + "{" + selectors + "}"
	})
	return filled, names, err
}

// missing are metrics of ours that no panel shows, and reasons that are not needed.
func (c catalog) missing(shown []string) error {
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		reason, excepted := notShown[strings.TrimPrefix(name, ours)]
		switch is := slices.Contains(shown, name); {
		case !strings.HasPrefix(name, ours):
		case !is && reason == "":
			wrong = append(wrong, name+" is in no panel")
		case is && excepted:
			wrong = append(wrong, name+" is in a panel, and has a reason not to be")
		}
	}
	for name := range maps.Keys(notShown) {
		if _, is := c[ours+name]; !is {
			wrong = append(wrong, ours+name+" is no metric, and has a reason not to be shown")
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "\n"))
	}
	return nil
}
