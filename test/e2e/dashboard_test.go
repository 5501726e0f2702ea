package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/alerts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/prometheus"
)

// occurring are panels of what happens in this test, the last of which are a refused claim and a
// closed pool: when they have more than 0, everything has been scraped.
var occurring = []string{"Claims that got a volume", "Expansions", "Snapshots", "Volumes by state",
	"Removed, and not removed", "Claims that were refused", "Pools closed or full", "Findings"}

// A real Prometheus that scraped two real daemons, one with a closed pool, answers each query of
// the dashboard with numbers, and each variable with the nodes and pools that there are.
func TestDashboard(t *testing.T) {
	w := newEnvironment(t)
	a, b := w.newHost("a", `snapshots = "copy"`), w.newHost("b")
	p := w.prometheus(a.serving().address, b.serving().address)
	a.run()
	b.run()
	w.Eventually("both were scraped before anything happened", func() bool {
		return len(p.query(`hostpath_provisioner_claims_provisioned_total{pool="fast"} == 0`)) == 2
	})
	a.eventful()
	hosttest.Unmount(t, b.mount)

	asked, chosen, err := p.Asked()
	w.Must(err)
	if chosen["node"] != 2 || chosen["pool"] != 1 {
		t.Errorf("nodes and pools to choose: %v", chosen)
	}
	for _, title := range occurring {
		w.Eventually(title+" has more than 0", func() bool {
			return len(asked[title]) == 1 && slices.Max(append(p.query(asked[title][0]), 0)) > 0
		})
	}
	queries := 0
	for title, expressions := range asked {
		for _, expression := range expressions {
			queries++
			unanswered := slices.Contains(prometheus.OfQuotas, title) // those are answered in test/vm
			if got := p.query(expression); (len(got) == 0) != unanswered {
				t.Errorf("%s is answered with %v: %s", title, got, expression)
			}
		}
	}
	for _, title := range prometheus.OfQuotas {
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
	s, class := w.snapshots(), w.Class("c", immediate, fixture.Expandable)
	origin := h.made("data", class)
	w.grow("2Mi")
	s.take("snap", origin)
	gone := h.made("gone", class)
	w.Removes("gone", gone.Name)
	w.refused(w.claim("large", class, "1Ti", annotate(provisionOnNode, h.node)), "NotEnoughSpace")
}

// scraper is a real Prometheus.
type scraper struct {
	*environment
	*prometheus.Server
}

// prometheus starts one that scrapes these addresses. It ends with the test.
func (w *environment) prometheus(targets ...string) *scraper {
	w.Helper()
	dir := hosttestDir(w.T, "prometheus")
	server := need(prometheus.Start(dir, 200*time.Millisecond, targets...))(w)
	w.Cleanup(func() {
		server.Stop()
		if w.Failed() {
			w.Logf("prometheus:\n%s", server.Log())
		}
	})
	w.Eventually("prometheus is ready", func() bool {
		return need(server.Ready())(w)
	})
	return &scraper{w, server}
}

// query returns the numbers of an instant query.
func (p *scraper) query(expression string) []float64 {
	p.Helper()
	return need(p.Query(expression))(p.environment)
}

// up is what Prometheus has of its own about the one target, as a page of metrics.
func (p *scraper) up() (page string) {
	p.Helper()
	for _, number := range p.query(`up{job="hostpath-provisioner"}`) {
		page += fmt.Sprintf("up %g\n", number)
	}
	return page
}

// A daemon that has ended, and one that is no target any more, as a real Prometheus that scraped it
// has them.
func TestDaemonIsDownOrAbsent(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a").serving().run()
	p := w.prometheus(h.address)
	any := func(alerts.Samples) bool { return true }
	down := w.recordsOf("Down", p.up, any)
	h.Kill()
	w.Eventually("the target is down", func() bool { return p.up() == "up 0\n" })
	down.Fires()
	w.Must(h.Run(w.Soon()))
	w.Eventually("the target is up", func() bool { return p.up() == "up 1\n" })
	down.Resolves()
	absent := w.recordsOf("Absent", p.up, any)
	w.Must(p.Retarget())
	w.Eventually("there is no target", func() bool { return p.up() == "" })
	absent.Fires()
	w.Must(p.Retarget(h.address))
	absent.Resolves()
}
