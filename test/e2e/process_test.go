package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// A bad file leaves the old configuration in force and says so; a good one takes effect, and a
// claim that waited for the new pool goes through.
func TestReload(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a").run()
	good := h.config()
	w.Must(h.Configure(good + "modee = \"0700\"\n"))
	w.Must(h.Signal(syscall.SIGHUP))
	w.Must(h.WaitReady(w.Soon(), 2))
	if status := h.Status(); !strings.Contains(status, "an older one is in force") {
		t.Errorf("STATUS=%s", status)
	}
	if log := h.Log(); !strings.Contains(log, "pool.fast.modee") {
		t.Errorf("the log does not name the bad key:\n%s", log)
	}
	h.made("old", w.Class("c", immediate, fixture.Parameters("pool", "fast")))

	class := w.Class("d", immediate, fixture.Parameters("pool", "slow"))
	claim := w.claim("new", class, "1Mi", annotate(provisionOnNode, h.node))
	w.refused(claim, "UnknownPool")
	slow := filepath.Join(filepath.Dir(h.mount), "slow") // beside the other one: the daemon is confined to there
	w.Must(h.Configure(fmt.Sprintf("%s\n[pool.slow]\npath = %q\nrequire_mount = false\n", good, slow)))
	w.Must(os.Mkdir(slow, 0o700))
	h.call("prepare", "slow").ends(0)
	w.Must(h.Signal(syscall.SIGHUP))
	w.Bound("new")
	need(os.Stat(filepath.Join(slow, "pvc-"+string(claim.UID))))(w)
	h.refusesFarPool(good)
}

// refusesFarPool reloads with a pool outside of what the daemon confined itself to: it goes on with
// what it has, and says what helps.
func (h *host) refusesFarPool(good string) {
	far := hosttestDir(h.w.T, "far")
	h.w.Must(h.Configure(fmt.Sprintf("%s\n[pool.far]\npath = %q\nrequire_mount = false\n", good, far)))
	h.w.Must(h.Signal(syscall.SIGHUP))
	h.w.Must(h.WaitStatus(h.w.Soon(), "it has to be restarted; "))
	if want := filepath.Dir(far) + " is outside of what the daemon confined itself to when it started: it has to be restarted"; !strings.Contains(h.Log(), want) {
		h.w.T.Errorf("no %q in the log:\n%s", want, h.Log())
	}
}

// Killed again and again while claims come and go: in the end each claim that is left has one
// volume and one directory, and nothing else is there.
func TestKilledUnderLoad(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a").run()
	class := w.Class("c", immediate)
	const claims = 40
	for i := range claims {
		w.claim(fmt.Sprintf("c%02d", i), class, "1Mi", annotate(provisionOnNode, h.node))
		if i%8 == 7 {
			h.Kill()
			w.Must(h.Start())
		}
		if i%2 == 1 && i > 8 {
			w.DeleteClaim(fmt.Sprintf("c%02d", i-8))
		}
	}
	w.Must(h.WaitReady(w.Soon(), 1))
	var want []string
	list := need(w.claims())(w)
	for _, name := range list {
		want = append(want, pool.Of(w.Bound(name).Name)...)
	}
	h.wantTree(want...)
}

// A second daemon on the same state directory is refused, and says who has it.
func TestSecondDaemonIsRefused(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a").run()
	h.call("run").fails(fmt.Sprint(h.PID()))
	h.made("data", w.Class("c", immediate))
}

// What the daemon says of itself while it runs, in its three mouths. The manifests of an earlier
// version did not give it the right to its CSIDriver: that is logged once, and is no reason for an
// alert.
func TestStatusAndMetrics(t *testing.T) {
	w := newEnvironment(t)
	h, address := w.served("a")
	h.made("data", w.Class("c", immediate))
	mend := "mends it with: hostpath-provisioner manifests --no-classes --provisioner " + w.Provisioner + " --namespace hostpath-provisioner | kubectl apply -f -"
	w.Eventually("the missing right is logged", func() bool { return strings.Count(h.Log(), mend) == 1 })
	if got := page(w, "http://"+address+"/healthz"); got != "ok\n" {
		t.Errorf("healthz: %q", got)
	}
	shows := func(want string) { // the object is there before it is counted, and the pool's state is told before
		t.Helper()
		w.Eventually("the metrics have "+want, func() bool { return strings.Contains(page(w, "http://"+address+"/metrics"), want) })
	}
	for _, want := range []string{
		`hostpath_provisioner_claims_provisioned_total{pool="fast"} 1`,
		`hostpath_provisioner_pool_open{pool="fast"} 1`,
		`hostpath_provisioner_pool_volumes{pool="fast"} 1`,
		`hostpath_provisioner_provision_duration_seconds_count{pool="fast"} 1`,
		`hostpath_provisioner_build_info{goversion="go`,
		`hostpath_provisioner_claims_refused_total{pool="fast",reason="PoolClosed"} 0`, // before there is one
		`hostpath_provisioner_volumes_removed_total{pool="fast",reason="VolumeLost"} 0`,
		`hostpath_provisioner_api_refused_total{reason="Forbidden"} 0`,
		"\nhostpath_provisioner_ready 1\n",
		"\nhostpath_provisioner_config_last_reload_successful 1\n",
	} {
		shows(want)
	}
	closed := w.records("PoolClosed", address)
	hosttest.Unmount(t, h.mount)
	w.Must(h.WaitStatus(w.Soon(), "0 of 1 pool open"))
	shows(`hostpath_provisioner_pool_finding{pool="fast",reason="NotMounted",severity="close"} 1`)
	closed.Fires()
	out, code := h.Call("status", "--json")
	var status struct{ Pools []struct{ Reason string } }
	if err := json.Unmarshal([]byte(out), &status); err != nil || code > 1 || len(status.Pools) != 1 || status.Pools[0].Reason != "NotMounted" {
		t.Errorf("status --json: exit code %d, %v\n%s", code, err, out)
	}
	h.image.Mount(t, h.mount)
	closed.Resolves()
}

// The API server is away when the daemon starts, and again later: it is ready for systemd, waits,
// says so in its status and its metrics, and goes on. This test has a control plane of its own to
// kill.
func TestAPIServerAway(t *testing.T) {
	w := ownEnvironment(t)
	h := w.newHost("a")
	address := h.metrics()
	up := func(want string) {
		t.Helper()
		w.Eventually("api_up "+want, func() bool {
			return strings.Contains(page(w, "http://"+address+"/metrics"), "\nhostpath_provisioner_api_up "+want+"\n")
		})
	}
	w.Must(w.Kill())
	w.Must(h.Start())
	defer h.Kill()
	w.Must(h.WaitStarted(w.Soon(), 1))
	w.Must(h.WaitStatus(w.Soon(), "waiting for the API"))
	up("0")
	if got := page(w, "http://"+address+"/healthz"); got != "ok\n" {
		t.Errorf("healthz without the API: %q", got)
	}
	if got := page(w, "http://"+address+"/readyz"); !strings.Contains(got, "waiting for the API") {
		t.Errorf("readyz without the API: %q", got)
	}
	w.Must(w.Restart(w.Ctx))
	w.Must(h.WaitReady(w.Soon(), 1))
	up("1")
	class := w.Class("c", immediate)
	first := h.made("first", class)
	away := w.records("APIAway", address)
	w.Must(w.Kill())
	w.Must(h.WaitStatus(w.Soon(), "waiting for the API"))
	up("0")
	away.Fires()
	w.Must(w.Restart(w.Ctx))
	second := h.made("second", class)
	away.Resolves()
	if got := page(w, "http://"+address+"/readyz"); got != "ok\n" {
		t.Errorf("readyz: %q", got)
	}
	h.wantTree(pool.Of(first.Name, second.Name)...)
}

// Mistakes at start are named, and nothing runs.
func TestBadStarts(t *testing.T) {
	dir := hosttest.Dir(t)
	config := func(kubeconfig string) string {
		return fmt.Sprintf("kubeconfig = %q\nnode = \"n\"\nmetrics = \"\"\n[pool.p]\npath = %q\nrequire_mount = false\n", kubeconfig, filepath.Join(dir, "pool"))
	}
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ config, want string }{
		"no kubeconfig":      {config("/nowhere/kubeconfig"), "/nowhere/kubeconfig"},
		"garbage kubeconfig": {config(garbage), garbage},
		"no pool":            {"node = \"n\"\n", "pool"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := rig.New(rig.Options{Dir: filepath.Join(dir, strings.ReplaceAll(name, " ", "-")), Config: c.config})
			if err != nil {
				t.Fatal(err)
			}
			out, code := d.Call("run")
			if code == 0 || !strings.Contains(out, c.want) || !strings.Contains(out, "\nhint: ") {
				t.Errorf("exit code %d\n%s", code, out)
			}
		})
	}
}

// metrics has the daemon serve its metrics, and returns where.
func (h *host) metrics() (address string) {
	h.w.Helper()
	address = need(rig.FreeAddress())(h.w)
	h.edit(`metrics = ""`, fmt.Sprintf("metrics = %q", address))
	return address
}

func page(w *environment, url string) string {
	w.Helper()
	response := need(http.Get(url))(w)
	defer response.Body.Close()
	return string(need(io.ReadAll(response.Body))(w))
}

// A typo in the configuration makes `systemctl reload` fail before the daemon is sent a signal, and
// the next start end with 78. The running daemon says so by itself, and takes it back.
func TestTypoIsToldWithoutASignal(t *testing.T) {
	w := newEnvironment(t)
	h, address := w.served("a")
	good := h.config()
	inForce := func(n int) {
		t.Helper()
		want := fmt.Sprintf("\nhostpath_provisioner_config_in_force %d\n", n)
		w.Eventually(want, func() bool { return strings.Contains(scraped(address), want) })
	}
	inForce(1)
	recorded := w.records("ConfigNotInForce", address)
	w.Must(h.Configure(good + "moed = \"0700\"\n"))
	h.call("check", "--config-only").ends(2)
	inForce(0)
	recorded.Fires()
	w.Must(h.WaitStatus(w.Soon(), "the configuration file has errors and an older one is in force"))
	h.call("status").ends(1, "moed: unknown key", "hint: run: hostpath-provisioner check --config-only")
	w.Must(h.Configure(good + "mode = \"0711\"\n"))
	w.Must(h.WaitStatus(w.Soon(), "an older one is in force: it was not reloaded"))
	h.call("check").says("host: warning ConfigurationNotInForce: ")
	w.Must(h.Configure(good))
	recorded.Resolves()
	h.call("status").ends(0)
	if n := strings.Count(h.Log(), "reason=ConfigurationNotInForce"); n != 2 {
		t.Errorf("logged %d times:\n%s", n, h.Log())
	}
}

// scraped are the metrics, "" while a reload has none served.
func scraped(address string) string {
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}
