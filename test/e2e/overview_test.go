package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// shows waits until a list has each of these texts.
func (h *host) shows(kubeconfig, what string, want ...string) {
	h.w.Helper()
	h.call(what, "--kubeconfig", kubeconfig).Becomes(want...)
}

// An administrator sees from anywhere what is wrong with three of twelve nodes, each in its way, and
// what helps; and which node is gone.
func TestOverview(t *testing.T) {
	w := newEnvironment(t)
	admin := w.killer().kubeconfig()
	var hosts []*host
	for _, name := range []string{"well", "unmounted", "cordoned", "stopped"} {
		hosts = append(hosts, w.newHost(name).run())
	}
	for i := range 8 {
		hosts = append(hosts, w.newHost(fmt.Sprint("well-", i)).run())
	}
	well, unmounted, cordoned, stopped := hosts[0], hosts[1], hosts[2], hosts[3]
	var all []string
	for _, h := range hosts {
		all = append(all, h.node+" ")
	}
	well.shows(admin, "nodes", all...)
	hosttest.Unmount(w, unmounted.mount)
	cordoned.cordons("cordon", "cordoned")
	w.Must(stopped.Signal(syscall.SIGSTOP))
	w.longAgo(stopped.node)
	well.shows(admin, "pools", unmounted.node+"  fast  closed: ",
		"pool fast of node "+unmounted.node+": ",
		cordoned.node+"   fast  cordoned", "hostpath-provisioner pool uncordon fast",
		well.node+"       fast  open", stopped.node+"    fast  silent; was open")
	well.shows(admin, "nodes", well.node+"       ready", stopped.node+"    silent",
		"node "+stopped.node+": its daemon has been silent for ",
		"on node "+stopped.node+": systemctl status hostpath-provisioner")
	w.Must(stopped.Signal(syscall.SIGCONT))

	// Neither its Node is left nor what its daemon told: its volumes are.
	gone := hosts[len(hosts)-1]
	gone.made("data", w.Class("c", immediate))
	gone.loses()
	well.shows(admin, "nodes", "node "+gone.node+": the cluster has no Node of this name\n",
		"kubectl hostpath forget-node "+gone.node+" --dry-run")

	well.call("nodes", "--kubeconfig", w.reader()).Ends(1, "not seen: leases of the daemons: this user may not")
}

// longAgo has a node's daemon, which stands still, tell of itself an hour earlier.
func (w *environment) longAgo(node string) {
	w.Helper()
	leases := w.leases()
	name := "hostpath-provisioner-node." + node
	l := getIn(w, leases, name)
	key := "state.hostpath-provisioner/" + w.Provisioner
	text := l.Annotations[key]
	_, rest, found := strings.Cut(text, `{"time":"`)
	at, rest, whole := strings.Cut(rest, `"`)
	if !found || !whole {
		w.Fatalf("no time in %q", text)
	}
	was := need(time.Parse(time.RFC3339, at))(w)
	text = `{"time":"` + was.Add(-time.Hour).Format(time.RFC3339) + `"` + rest
	w.annotateLease(name, text)
}

// annotateLease has the daemon of a lease tell a state.
func (w *environment) annotateLease(name, state string) {
	w.Helper()
	leases := w.leases()
	patch := `{"metadata":{"annotations":{"state.hostpath-provisioner/` + w.Provisioner + `":` +
		strconv.Quote(state) + `}}}`
	patchIn(w, leases, name, patch)
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// A pool that is cordoned takes no new volume, also after a restart; what it has goes on, grows and
// is removed.
func TestCordon(t *testing.T) {
	w, h, class := oneHost(t)
	before := h.made("before", class)
	h.cordons("cordon", "cordoned")
	h.cordons("cordon", "already cordoned")
	w.refused(w.claim("data", class, "8Mi"), "PoolCordoned")
	for _, command := range []string{"status", "check"} {
		h.call(command).Ends(3, "cordoned", "hint: to have new volumes again")
	}
	w.Removes("before", before.Name)
	h.stop()
	h.run()
	w.refused(w.claim("later", class, "8Mi"), "PoolCordoned")
	h.cordons("uncordon", "uncordoned")
	w.Bound("data")
	w.Bound("later")
}

// cordons calls "pool cordon" or "pool uncordon", which says that alone.
func (h *host) cordons(verb, want string) {
	h.w.Helper()
	if out := h.call("pool", verb, "fast").Ends(0).Out; out != "pool fast "+want+"\n" {
		h.w.Errorf("%s: %q", verb, out)
	}
}
