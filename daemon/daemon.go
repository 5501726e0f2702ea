package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/ownership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/metrics"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/confine"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
)

// Options are what the command line and the service manager decide.
type Options struct {
	Config     string           // path of config.toml
	Kubeconfig string           // in place of the configured one, if not empty
	StateDir   string           // what is remembered across restarts; made if it is missing
	RuntimeDir string           // for status.json; made if it is missing
	Version    string           // for status and metrics
	Log        *slog.Logger     // must not be nil
	Reload     <-chan os.Signal // read the configuration again; may be nil
	// MetricsSocket listens already, for the metrics, in place of the configured address; may be
	// nil.
	MetricsSocket *os.File
	// Responds reports whether a path's filesystem responds, without letting this process wait for
	// it; nil: all do.
	Responds func(path string) bool
}

// Run provisions until ctx ends, which is no error. Its errors are those of the start: a bad
// configuration (config.Errors), a kubeconfig that cannot be used, a state directory that another
// daemon holds (*state.HeldError).
func Run(ctx context.Context, o Options) error {
	cfg, err := o.load()
	if err != nil {
		o.refuseScrapes(ctx, err)
		return err
	}
	o.Log.Info("starting", "reason", plan.ReasonStarting, "version", o.Version, "node", cfg.Node, "file", o.Config, "pools", NamesOf(cfg.Pools))
	for _, dir := range []string{o.StateDir, o.RuntimeDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	release, err := state.Lock(o.StateDir)
	if err != nil {
		return err
	}
	defer release()
	defer os.Remove(filepath.Join(o.RuntimeDir, StatusFile))
	_ = os.Remove(filepath.Join(o.RuntimeDir, UsageFile)) // of one that was killed
	defer os.Remove(filepath.Join(o.RuntimeDir, UsageFile))
	d := &daemon{Options: o, store: map[storeKey]*volume.Pool{}, promises: capacity.NewBook(), changed: make(chan struct{}, 1), moved: make(chan struct{}, 1), locks: ownership.NewLocks(state.PoolLocks, o.StateDir)}
	defer d.locks.Keep(nil)
	d.metrics = metrics.New(o.Version, metrics.Sources{
		Volumes: d.countVolumes, States: d.countStates, Health: d.health, Rooms: d.rooms,
		Work: d.working,
	})
	d.metrics.Reloaded(true, time.Now())
	d.warn(hostcheck.CheckHost(os.DirFS("/")))
	if err := capable(cfg); err != nil {
		return err
	}
	ctx, d.end = context.WithCancelCause(ctx)
	defer d.end(nil)
	d.unit, d.host = OwnUnit("/"), ownership.ReadHost(os.DirFS("/"))
	d.confine(cfg)
	// Not before, or no label could be set for new files: see selinux.Mounted.
	d.warn(hostcheck.CheckSELinux(selinux.Mode(), !selinux.Lacks(selinux.PoolType)))
	if err := d.run(ctx, cfg); err != nil {
		return err
	}
	if why := new(RestartError); errors.As(context.Cause(ctx), &why) {
		return why
	}
	return nil
}

func (d *daemon) warn(findings []hostcheck.Finding) {
	for _, f := range findings {
		d.Log.Warn(f.Message, "reason", f.Reason)
	}
}

// daemon is what lives across reloads.
type daemon struct {
	Options
	systemd systemd.Notifier
	metrics *metrics.Metrics
	changed chan struct{}              // something that the status tells has changed
	moved   chan struct{}              // the kubeconfig names another API server
	now     atomic.Pointer[generation] // in force
	keeping sync.Mutex                 // one tells the status at a time
	// store is kept across reloads: an operation that hangs in the kernel ends some day, and must
	// find the same locks as those that began later.
	store map[storeKey]*volume.Pool
	// figures are kept likewise, so that a reload has nothing measured again.
	figures map[storeKey]*usage.Figures
	usage   map[string]map[string]usage.Measured // as it was written last
	begun   volume.BegunProjects
	// promises is kept likewise.
	promises *capacity.Book
	locks    *ownership.Locks

	host      ownership.Host    // read before the process is confined
	unit      Unit              // as it was when this process was started
	confined  *confine.Confined // nil: nothing is
	end       context.CancelCauseFunc
	remounted atomic.Bool // mounts changed since the start
	told      sync.Map    // why a restart is needed, as it was logged
}

type storeKey struct{ name, path, mountPoint, scope string }

func (o Options) load() (config.Config, error) {
	cfg, err := config.Load(o.Config, o.StateDir, o.RuntimeDir)
	if err != nil {
		return cfg, err
	}
	if o.Kubeconfig != "" {
		cfg.Kubeconfig = o.Kubeconfig
	}
	for _, w := range slices.Concat(cfg.Warnings, kube.KubeconfigRisks(cfg.Kubeconfig)) {
		o.Log.Warn(w)
	}
	return cfg, nil
}

// refuseScrapes tells what waits on the socket that systemd listens on why there is no daemon. What
// was left there would have systemd start the service again at once, without end.
func (o Options) refuseScrapes(ctx context.Context, why error) {
	if o.MetricsSocket == nil {
		return
	}
	listener, err := net.FileListener(o.MetricsSocket)
	if err == nil {
		err = metrics.Refuse(ctx, listener, fmt.Errorf("the configuration has errors:\n%w", why))
	}
	if err != nil {
		o.Log.Error("cannot refuse scrapes: " + err.Error())
	}
}

// run works through one configuration after the other.
func (d *daemon) run(ctx context.Context, cfg config.Config) error {
	g, err := d.newGeneration(cfg)
	if err != nil {
		return err
	}
	life, done := context.WithCancel(ctx)
	defer done()
	go d.feedWatchdog(life)
	go d.tell(life)
	go d.followFiles(life)
	for g != nil {
		d.locks.Keep(g.places())
		d.keepAccounts(g.cfg)
		d.now.Store(g)
		g = d.runOne(ctx, g)
	}
	return nil
}

// runOne runs a generation until ctx ends (nil) or a reload brings the next one. A configuration
// that is bad leaves the present one in force.
func (d *daemon) runOne(ctx context.Context, g *generation) *generation {
	life, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan struct{})
	go func() { g.run(life); close(ended) }()
	stop := d.serveMetrics(life, g.cfg)
	defer stop()
	var next *generation
	for next == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
			d.Log.Info("stopping: letting work under way end", "reason", plan.ReasonStopping)
			d.systemd.Stopping("stopping: letting work under way end")
		case <-d.Reload:
			next = d.reload(g)
		case <-d.moved:
			next = d.reload(g)
		}
	}
	end()
	<-ended
	return next
}

func (d *daemon) reload(g *generation) *generation {
	d.systemd.Reloading()
	cfg, err := d.load()
	var next *generation
	if err == nil {
		err = cfg.WebError
	}
	if err == nil {
		err = Fits(d.Options, d.confined, cfg)
	}
	if err == nil {
		err = capable(cfg)
	}
	if err == nil {
		next, err = d.newGeneration(cfg)
	}
	d.metrics.Reloaded(err == nil, time.Now())
	if err != nil {
		d.Log.Error("the configuration was not reloaded, the old one stays in force: "+err.Error(), "reason", plan.ReasonReloadFailed, "file", d.Config)
		refused := differenceOf(err)
		refused.refused = true
		g.differs.Store(refused)
		d.keep(g, func(s Status) {
			if g.started.Load() { // a signal during the start does not end the start
				d.systemd.Ready(s.Sentence)
			}
		})
		return nil
	}
	d.Log.Info("configuration reloaded", "reason", plan.ReasonReloaded, "file", d.Config, "node", cfg.Node, "pools", NamesOf(cfg.Pools))
	return next
}

// serveMetrics listens for one generation. An address that cannot be had is no reason to leave
// claims waiting: it is said, and metrics are missing.
func (d *daemon) serveMetrics(ctx context.Context, cfg config.Config) (stop func()) {
	address := cfg.Metrics
	if address == "" && d.MetricsSocket == nil {
		return func() {}
	}
	listener, err := d.listen(address)
	if err != nil {
		d.Log.Error("metrics are not served: " + err.Error())
		return func() {}
	}
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		if err := d.metrics.Serve(ctx, listener, cfg.MetricsWebConfig, d.healthy, d.usable, hostNames(cfg)...); err != nil {
			d.Log.Error("metrics are not served: " + err.Error())
		}
	}()
	return func() { cancel(); <-ended }
}

// hostNames are the names of this host, in lower case, as far as they are known here.
func hostNames(cfg config.Config) []string {
	host, _, _ := net.SplitHostPort(cfg.Metrics) // an address of another form was refused
	own, _ := os.Hostname()
	return []string{strings.ToLower(host), strings.ToLower(own), cfg.Node}
}

// listen takes a copy of the socket that was passed, which goes on listening between generations. A
// socket of its own has no MPTCP, which Go would have it offer: before Linux 6.4 what such a socket
// accepts has the kernel's label (kernel_t), and SELinux refuses to read it.
func (d *daemon) listen(address string) (net.Listener, error) {
	if d.MetricsSocket != nil {
		return net.FileListener(d.MetricsSocket)
	}
	var c net.ListenConfig
	c.SetMultipathTCP(false)
	return c.Listen(context.Background(), "tcp", address)
}

// healthy returns what a restart could mend, nil if there is nothing: an API server that is away is
// not.
func (d *daemon) healthy() error {
	g := d.now.Load()
	if !g.started.Load() {
		return errors.New("not ready: " + g.status().Sentence)
	}
	if stalled := g.stalled(); stalled != "" {
		return errors.New(stalled)
	}
	return nil
}

// stalled is what of the work makes no progress, "" if all does.
func (g *generation) stalled() string {
	if err := g.controller.Alive(time.Now(), time.Minute); err != nil {
		return err.Error()
	}
	return ""
}

// usable returns what keeps claims waiting besides their pools, nil if there is nothing.
func (d *daemon) usable() error {
	if err := d.healthy(); err != nil {
		return err
	}
	if g := d.now.Load(); !g.apiUp() {
		return errors.New("not ready: " + g.status().Sentence)
	}
	return nil
}

// health is what the metrics tell beside the pools.
func (d *daemon) health() metrics.Health {
	g := d.now.Load()
	if g == nil {
		return metrics.Health{}
	}
	normal, warning := g.client.EventsDropped()
	return metrics.Health{
		Ready: d.usable() == nil, APIUp: g.apiUp(), LastSuccess: g.client.LastSuccess(),
		CredentialExpiry: g.client.Credential().Expires, CredentialRenewedBy: g.client.Credential().RenewedBy(),
		ConfigInForce: g.differs.Load() == nil, DroppedNormal: normal, DroppedWarning: warning,
	}
}

// feedWatchdog proves to systemd, and to /healthz, that the controllers turn; it stops feeding when
// they do not.
func (d *daemon) feedWatchdog(ctx context.Context) {
	interval, err := systemd.WatchdogInterval()
	if err != nil {
		d.Log.Warn(err.Error())
	}
	watched := interval > 0
	if !watched {
		interval = 30 * time.Second // there is no watchdog, and health still needs the ping
	}
	every := time.NewTicker(interval / 3)
	defer every.Stop()
	for {
		g := d.now.Load()
		if g != nil {
			g.controller.Ping()
			if err := g.controller.Alive(time.Now(), interval); err != nil {
				d.Log.Error("the watchdog notification was not sent: " + err.Error())
			} else if watched {
				d.systemd.Alive()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// tell keeps systemd's STATUS and the status file true: whenever something changed, and now and
// then for the numbers. While a start or reload lasts it also asks for more time.
func (d *daemon) tell(ctx context.Context) {
	every := time.NewTicker(5 * time.Second)
	defer every.Stop()
	last := ""
	for {
		if g := d.now.Load(); g != nil {
			d.keep(g, func(s Status) {
				if s.Sentence != last {
					d.systemd.Status(s.Sentence)
					last = s.Sentence
				}
				if !g.started.Load() {
					d.systemd.Extend(time.Minute)
				}
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-d.changed:
		case <-every.C:
		}
	}
}

// keep writes the status file, and says what it says now. Both are done under the lock, so that
// what was asked before is never written or said after what was asked later: a request for more
// time after READY=1 would put the watchdog off.
func (d *daemon) keep(g *generation, say func(Status)) {
	d.keeping.Lock()
	defer d.keeping.Unlock()
	s := g.status()
	if err := errors.Join(s.write(d.RuntimeDir), d.keepUsage(g)); err != nil {
		d.Log.Warn(fmt.Sprintf("the status file was not written: %v", err))
	}
	say(s)
}

// rooms is what the pools have for new volumes, of those whose storage is there.
func (d *daemon) rooms() map[string]metrics.Room {
	all := map[string]metrics.Room{}
	g := d.now.Load()
	if g == nil {
		return all
	}
	for _, p := range g.cfg.Pools {
		r := g.gate.State(p.Name).Report
		if r.Size == 0 {
			continue
		}
		takes := g.used(p, r)
		one := metrics.Room{Free: r.Free, Used: takes.Used, Estimate: takes.Estimate}
		if room, own, counted := g.controller.Room(p.Name); counted {
			one.Free, one.Promised, one.Counted = room.Free, own, true
		}
		all[p.Name] = one
	}
	return all
}

// countStates is how many volumes are in each state, by pool.
func (d *daemon) countStates() map[string]map[string]int {
	all := map[string]map[string]int{}
	if g := d.now.Load(); g != nil {
		for _, p := range g.cfg.Pools {
			all[p.Name] = g.controller.States(p.Name)
		}
	}
	return all
}

func (d *daemon) countVolumes() map[string]int {
	if g := d.now.Load(); g != nil {
		return g.countVolumes()
	}
	return nil
}
