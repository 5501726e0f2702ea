package metrics

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

func noHealth() Health { return Health{} }

func noVolumes() map[string]int { return nil }

func noRooms() map[string]Room { return nil }

func noStates() map[string]map[string]int { return nil }

func noWork() map[string][]volume.Work { return nil }

// The pool's series are its last report and nothing of the one before.
func TestPoolSeriesFollowTheReport(t *testing.T) {
	used := uint64(9)
	rooms := map[string]Room{"fast": {Free: 40, Promised: 20, Counted: true, Used: &used}, "new": {Free: 7}}
	m := New("v1", Sources{func() map[string]int { return map[string]int{"fast": 3} }, noHealth, func() map[string]Room { return rooms },
		func() map[string]map[string]int { return map[string]map[string]int{"fast": {"bound": 2, "missing": 1}} }, noWork})
	g := gate.New("fast")
	tell := func(r hostcheck.Report) { _, s := g.Set(r, time.Now()); m.Pool(s) }
	tell(hostcheck.Report{Pool: "fast", Findings: []hostcheck.Finding{{Reason: "NotMounted", Severity: hostcheck.Close}}})
	tell(hostcheck.Report{Pool: "fast", Size: 100, Available: 60, Findings: []hostcheck.Finding{{Reason: "ModeTooOpen", Severity: hostcheck.Warn}}})
	want := `
# HELP hostpath_provisioner_pool_avail_bytes What is available on the pool's filesystem.
# TYPE hostpath_provisioner_pool_avail_bytes gauge
hostpath_provisioner_pool_avail_bytes{pool="fast"} 60
# HELP hostpath_provisioner_pool_finding 1 for each reason found when the pool was last checked; severity is close, full or warn.
# TYPE hostpath_provisioner_pool_finding gauge
hostpath_provisioner_pool_finding{pool="fast",reason="ModeTooOpen",severity="warn"} 1
# HELP hostpath_provisioner_pool_open 1 if the pool takes new volumes, 0 if it is closed or full; pool_finding tells which.
# TYPE hostpath_provisioner_pool_open gauge
hostpath_provisioner_pool_open{pool="fast"} 1
# HELP hostpath_provisioner_pool_promised_bytes What the pool keeps for its volumes, whether or not they use it: the sum of their sizes.
# TYPE hostpath_provisioner_pool_promised_bytes gauge
hostpath_provisioner_pool_promised_bytes{pool="fast"} 20
# HELP hostpath_provisioner_pool_provisionable_bytes What one more volume can get: what is available, less the reserve, and no more than was not promised.
# TYPE hostpath_provisioner_pool_provisionable_bytes gauge
hostpath_provisioner_pool_provisionable_bytes{pool="fast"} 40
hostpath_provisioner_pool_provisionable_bytes{pool="new"} 7
# HELP hostpath_provisioner_pool_size_bytes Size of the pool's filesystem.
# TYPE hostpath_provisioner_pool_size_bytes gauge
hostpath_provisioner_pool_size_bytes{pool="fast"} 100
# HELP hostpath_provisioner_pool_used_bytes What the pool's volumes take, by their quotas, or what is in use on the filesystem that is the pool's alone, or by their directories; absent where none is known.
# TYPE hostpath_provisioner_pool_used_bytes gauge
hostpath_provisioner_pool_used_bytes{pool="fast"} 9
# HELP hostpath_provisioner_pool_volumes Volume objects of this node, by pool.
# TYPE hostpath_provisioner_pool_volumes gauge
hostpath_provisioner_pool_volumes{pool="fast"} 3
# HELP hostpath_provisioner_volumes Volumes of the pool by state, as the volumes command has them; each is counted once.
# TYPE hostpath_provisioner_volumes gauge
hostpath_provisioner_volumes{pool="fast",state="bound"} 2
hostpath_provisioner_volumes{pool="fast",state="missing"} 1
`
	names := []string{"size_bytes", "avail_bytes", "provisionable_bytes", "promised_bytes", "finding", "open", "used_bytes", "volumes"}
	for i, n := range names {
		names[i] = "hostpath_provisioner_pool_" + n
	}
	compared := append(names, "hostpath_provisioner_volumes")
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(want), compared...); err != nil {
		t.Error(err)
	}
	tell(hostcheck.Report{Pool: "fast", Findings: []hostcheck.Finding{{Reason: "NotMounted", Severity: hostcheck.Close}}})
	clear(rooms)
	if n, err := testutil.GatherAndCount(m.Registry, names[:4]...); err != nil || n != 0 {
		t.Errorf("%d sizes of a pool whose storage is away, %v", n, err)
	}
	m.Forget()
	if n, err := testutil.GatherAndCount(m.Registry, names[:5]...); err != nil || n != 0 {
		t.Errorf("%d series are left after Forget, %v", n, err)
	}
}

func TestClaimsAreProvisionedOrRefused(t *testing.T) {
	m := New("v1", Sources{noVolumes, noHealth, noRooms, noStates, noWork})
	m.Claim("fast", "ProvisioningSucceeded", time.Second)
	m.Claim("fast", "PoolClosed", 0)
	m.Claim("fast", "PoolClosed", 0)
	m.Volume("fast", "Deleted")
	for name, got := range map[string]float64{
		"provisioned": testutil.ToFloat64(m.provisioned.WithLabelValues("fast")) - 1,
		"refused":     testutil.ToFloat64(m.refused.WithLabelValues("fast", "PoolClosed")) - 2,
		"removed":     testutil.ToFloat64(m.removed.WithLabelValues("fast", "Deleted")) - 1,
	} {
		if got != 0 {
			t.Errorf("%s is off by %v", name, got)
		}
	}
}

func TestServe(t *testing.T) {
	m := New("v1", Sources{noVolumes, noHealth, noRooms, noStates, noWork})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var failure error
	ended := make(chan error, 1)
	go func() {
		ended <- m.Serve(ctx, l, "", func() error { return failure }, func() error { return errors.New("no API") })
	}()
	get := func(path string) (int, string) {
		t.Helper()
		r, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		return r.StatusCode, string(body)
	}
	if code, body := get("/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("healthz: %d %q", code, body)
	}
	failure = errors.New("pool fast: its loop has not turned for 1m0s")
	if code, body := get("/healthz"); code != 503 || body != failure.Error()+"\n" {
		t.Errorf("healthz with a failure: %d %q", code, body)
	}
	if code, body := get("/readyz"); code != 503 || body != "no API\n" {
		t.Errorf("readyz: %d %q", code, body)
	}
	if code, body := get("/metrics"); code != 200 || !strings.Contains(body, `build_info{goversion="go`) {
		t.Errorf("metrics: %d", code)
	}
	if code, _ := get("/"); code != 404 {
		t.Errorf("another path: %d", code)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Serve ended with %v", err)
	}
}

// A reload ends the server of the old configuration: a scrape that is in flight gets its response.
// It got an EOF when the server was closed.
func TestServeEndsAfterRequestsInFlight(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	asked, refused := make(chan struct{}), make(chan struct{})
	ended, responded := make(chan error, 1), make(chan error, 1)
	go func() {
		ended <- New("v1", Sources{noVolumes, noHealth, noRooms, noStates, noWork}).Serve(ctx, l, "", func() error { close(asked); <-refused; return nil }, nil)
	}()
	go func() {
		r, err := http.Get("http://" + l.Addr().String() + "/healthz")
		if err == nil && r.StatusCode != 200 {
			err = errors.New(r.Status)
		}
		responded <- err
	}()
	<-asked
	cancel()
	for err == nil { // the server accepts no connection any more
		var c net.Conn
		if c, err = net.Dial("tcp", l.Addr().String()); err == nil {
			c.Close()
		}
	}
	close(refused)
	if err := <-responded; err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Serve ended with %v", err)
	}
}

// Each metric of an alert exists before anything has happened: an alert on a name that is misspelt,
// or on a series that is born at its first failure, never fires.
func TestAlertsHaveTheirMetrics(t *testing.T) {
	m := New("v1", Sources{noVolumes, noHealth, noRooms, noStates, noWork})
	m.Expect([]string{"fast"})
	_, s := gate.New("fast").Set(hostcheck.Report{Pool: "fast"}, time.Now())
	m.Pool(s)
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, family := range families {
		there[family.GetName()] = true
	}
	described := make(chan *prometheus.Desc, 1000)
	m.Registry.Describe(described)
	close(described)
	known := ""
	for d := range described {
		known += d.String()
	}
	rules, err := os.ReadFile("../../packaging/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(increase\()?(hostpath_provisioner_[a-z_]+)`).FindAllSubmatch(rules, -1)
	if len(names) < 25 {
		t.Fatalf("%d metrics", len(names))
	}
	for _, name := range names {
		if !strings.Contains(known, `"`+string(name[2])+`"`) {
			t.Errorf("%s is no metric", name[2])
		}
		if len(name[1]) > 0 && !there[string(name[2])] {
			t.Errorf("%s has no series at the start", name[2])
		}
	}
	for _, reason := range plan.VolumeReasons {
		if testutil.ToFloat64(m.removed.WithLabelValues("fast", reason)) != 0 {
			t.Errorf("%s does not begin at 0", reason)
		}
	}
	if n, want := testutil.CollectAndCount(m.removed), len(plan.VolumeReasons); n != want {
		t.Errorf("%d series of volumes removed, want %d from the start", n, want)
	}
}

// Dropped events are counted in a metric.
func TestDroppedEvents(t *testing.T) {
	m := New("v1", Sources{noVolumes, func() Health { return Health{DroppedNormal: 7, DroppedWarning: 2} }, noRooms, noStates, noWork})
	want := `
# HELP hostpath_provisioner_events_dropped_total Events on claims, volumes and pods that were not written, because too many waited for the API.
# TYPE hostpath_provisioner_events_dropped_total counter
hostpath_provisioner_events_dropped_total{type="Normal"} 7
hostpath_provisioner_events_dropped_total{type="Warning"} 2
`
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(want), "hostpath_provisioner_events_dropped_total"); err != nil {
		t.Error(err)
	}
}
