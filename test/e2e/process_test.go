package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
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
	w, h := running(t)
	good := h.config()
	h.reload(good + "modee = \"0700\"\n")
	w.Must(h.WaitReady(w.Soon(), 2))
	if status := h.Status(); !strings.Contains(status, "an older one is in force") {
		t.Errorf("STATUS=%s", status)
	}
	h.said("pool.fast.modee", 1)
	h.made("old", w.Class("c", immediate, fixture.Parameters("pool", "fast")))

	class := w.Class("d", immediate, fixture.Parameters("pool", "slow"))
	claim := w.claim("new", class, "1Mi", annotate(provisionOnNode, h.node))
	w.refused(claim, "UnknownPool")
	slow := filepath.Join(filepath.Dir(h.mount), "slow") // beside the other one: the daemon is confined to there
	w.Must(h.Configure(fmt.Sprintf("%s\n[pool.slow]\npath = %q\nrequire_mount = false\n", good, slow)))
	w.Must(os.Mkdir(slow, 0o700))
	h.call("prepare", "slow").Ends(0)
	w.Must(h.Signal(syscall.SIGHUP))
	w.Bound("new")
	need(os.Stat(filepath.Join(slow, "pvc-"+string(claim.UID))))(w)
	h.refusesFarPool(good)
}

// refusesFarPool reloads with a pool outside of what the daemon confined itself to: it goes on with
// what it has, and says what helps.
func (h *host) refusesFarPool(good string) {
	far := hosttestDir(h.w.T, "far")
	h.reload(fmt.Sprintf("%s\n[pool.far]\npath = %q\nrequire_mount = false\n", good, far))
	h.w.Must(h.WaitStatus(h.w.Soon(), "it has to be restarted; "))
	h.said(filepath.Dir(far)+" is outside of what the daemon confined itself to when it started: "+
		"it has to be restarted", 1)
}

// Killed again and again while claims come and go: in the end each claim that is left has one
// volume and one directory, and nothing else is there.
func TestKilledUnderLoad(t *testing.T) {
	w, h, class := oneHost(t)
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
	for _, c := range listIn(w, w.pvcs()).Items {
		if c.DeletionTimestamp == nil {
			want = append(want, pool.Of(w.Bound(c.Name).Name)...)
		}
	}
	h.wantTree(want...)
}

// A second daemon on the same state directory is refused, and says who has it.
func TestSecondDaemonIsRefused(t *testing.T) {
	_, h, class := oneHost(t)
	h.call("run").Fails(fmt.Sprint(h.PID()))
	h.made("data", class)
}

// What the daemon says of itself while it runs, in its three mouths. The manifests of an earlier
// version did not give it the right to its CSIDriver: that is logged once, and is no reason for an
// alert.
func TestStatusAndMetrics(t *testing.T) {
	w, h, class := servingHost(t)
	h.made("data", class)
	mend := "mends it with: hostpath-provisioner manifests --no-classes --provisioner " + w.Provisioner + " --namespace hostpath-provisioner | kubectl apply -f -"
	h.said(mend, 1)
	h.logged().Counts(mend, 1)
	h.serves("/healthz", "^ok\n$")
	h.tells( // the object is there before it is counted, and the pool's state is told before
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
	)
	closed := h.records("PoolClosed")
	hosttest.Unmount(t, h.mount)
	w.Must(h.WaitStatus(w.Soon(), "0 of 1 pool open"))
	h.tells(`hostpath_provisioner_pool_finding{pool="fast",reason="NotMounted",severity="close"} 1`)
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
	h := w.newHost("a").serving()
	up := func(want string) { t.Helper(); h.tells("\nhostpath_provisioner_api_up " + want + "\n") }
	w.Must(w.Kill())
	w.Must(h.Start())
	defer h.Kill()
	w.Must(h.WaitStarted(w.Soon(), 1))
	w.Must(h.WaitStatus(w.Soon(), "waiting for the API"))
	up("0")
	h.serves("/healthz", "^ok\n$")
	h.serves("/readyz", "waiting for the API")
	w.Must(w.Restart(w.Ctx))
	w.Must(h.WaitReady(w.Soon(), 1))
	up("1")
	class := w.Class("c", immediate)
	first := h.made("first", class)
	away := h.records("APIAway")
	w.Must(w.Kill())
	w.Must(h.WaitStatus(w.Soon(), "waiting for the API"))
	up("0")
	away.Fires()
	w.Must(w.Restart(w.Ctx))
	second := h.made("second", class)
	away.Resolves()
	h.serves("/readyz", "^ok\n$")
	h.wantTree(pool.Of(first.Name, second.Name)...)
}

// Mistakes at start are named, and nothing runs.
func TestBadStarts(t *testing.T) {
	t.Parallel()
	dir := hosttest.Dir(t)
	config := func(kubeconfig string) string {
		return fmt.Sprintf("kubeconfig = %q\nnode = \"n\"\nmetrics = \"\"\n[pool.p]\npath = %q\nrequire_mount = false\n", kubeconfig, filepath.Join(dir, "pool"))
	}
	garbage := filepath.Join(dir, "garbage")
	hosttest.Check(t, os.WriteFile(garbage, []byte("{"), 0o600))
	for name, c := range map[string]struct{ config, want string }{
		"no kubeconfig":      {config("/nowhere/kubeconfig"), "/nowhere/kubeconfig"},
		"garbage kubeconfig": {config(garbage), garbage},
		"no pool":            {"node = \"n\"\n", "pool"},
	} {
		t.Run(name, func(t *testing.T) {
			d := need(rig.New(rig.Options{Dir: filepath.Join(dir, plain(name)), Config: c.config}))(t)
			fixture.Call(t, d, "run").Fails(c.want, "\nhint: ")
		})
	}
}

// serving has the daemon serve its metrics.
func (h *host) serving() *host {
	h.w.Helper()
	h.address = need(rig.FreeAddress())(h.w)
	h.edit(`metrics = ""`, fmt.Sprintf("metrics = %q", h.address))
	return h
}

// page is what the daemon serves at a path.
func (h *host) page(path string) (string, error) {
	response, err := http.Get("http://" + h.address + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// serves wants a page to match a pattern.
func (h *host) serves(path, want string) {
	h.w.Helper()
	if got := need(h.page(path))(h.w); !regexp.MustCompile(want).MatchString(got) {
		h.w.Errorf("%s: %q, want %q", path, got, want)
	}
}

// scraped are the metrics, "" while a reload has none served.
func (h *host) scraped() string {
	all, _ := h.page("/metrics")
	return all
}

// tells waits until the metrics have each of these texts.
func (h *host) tells(want ...string) {
	h.w.Helper()
	for _, text := range want {
		h.w.Eventually("the metrics have "+text, func() bool {
			return strings.Contains(h.scraped(), text)
		})
	}
}

// A typo in the configuration makes `systemctl reload` fail before the daemon is sent a signal, and
// the next start end with 78. The running daemon says so by itself, and takes it back.
func TestTypoIsToldWithoutASignal(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a").serving().run()
	good := h.config()
	inForce := func(n int) {
		t.Helper()
		h.tells(fmt.Sprintf("\nhostpath_provisioner_config_in_force %d\n", n))
	}
	inForce(1)
	recorded := h.records("ConfigNotInForce")
	w.Must(h.Configure(good + "moed = \"0700\"\n"))
	h.call("check", "--config-only").Ends(2)
	inForce(0)
	recorded.Fires()
	w.Must(h.WaitStatus(w.Soon(), "the configuration file has errors and an older one is in force"))
	h.call("status").Ends(1, "moed: unknown key", "hint: run: hostpath-provisioner check --config-only")
	w.Must(h.Configure(good + "mode = \"0711\"\n"))
	w.Must(h.WaitStatus(w.Soon(), "an older one is in force: it was not reloaded"))
	h.call("check").Says("host: warning ConfigurationNotInForce: ")
	w.Must(h.Configure(good))
	recorded.Resolves()
	h.call("status").Ends(0)
	h.logged().Counts("reason=ConfigurationNotInForce", 2)
}
