package weather

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// upgradeOptions are the flags of Upgrade.
type upgradeOptions struct {
	planes []string // control planes, the oldest first
	time   time.Duration
	quiet  time.Duration
	rate   int
	live   int
}

// Upgrade has one etcd served by one version of Kubernetes after the other, then by the one before
// the last again, and then by both behind one address, under one daemon and a load of claims. The
// clients' address is that of a balancer, and stays.
//
// etcd is a process of its own: each version brings another one, of which none opens the data of a
// later one. The versions are upgraded as on a cluster with one server, which is away meanwhile.
func Upgrade() harness.Trial {
	o := upgradeOptions{}
	var planes string
	return harness.Trial{
		Name: "upgrade", Short: "time=4s quiet=5s", Timeout: 3 * time.Minute,
		Does: `Upgrades Kubernetes under a running daemon while claims come and go, takes one step back, and
has two versions behind one address. After each step the API is compared with the disk, and nothing
may go on failing.`,
		Flags: func(flags *flag.FlagSet) {
			flags.StringVar(&planes, "planes", "", "control planes, two at least, the oldest first, with commas")
			flags.DurationVar(&o.time, "time", 10*time.Second, "how long claims come and go after each restart")
			flags.DurationVar(&o.quiet, "quiet", 35*time.Second,
				"how long nothing may fail after that; a daemon tries again after 30s at most")
			flags.IntVar(&o.rate, "rate", 10, "how many claims are made a second")
			flags.IntVar(&o.live, "live", 40, "how many claims exist at once")
		},
		Check: func() error {
			o.planes = strings.Split(planes, ",")
			if len(o.planes) < 2 {
				return errors.New("-planes names fewer than two control planes")
			}
			if o.live < 1 || o.rate < 1 || o.time <= 0 || o.quiet <= 0 {
				return errors.New("-live, -rate, -time and -quiet must be positive")
			}
			return nil
		},
		Play: func(ctx context.Context, p *harness.Program) { buildUpgrade(ctx, p, o).play(ctx) },
	}
}

// upgrade is what is served by one version after the other.
type upgrade struct {
	*harness.Environment
	upgradeOptions
	args     []string // of each control plane
	balancer *balancer
	first    *cluster.Cluster         // whose authorities the others get
	serving  map[int]*cluster.Cluster // by the index of the version
	audit    *harness.AuditLog
	load     *harness.Load
	checker  *checker
	pid      int // the daemon's
	logged   int // bytes of the daemon's log that were looked at
}

// elections lets kube-controller-manager and kube-scheduler of two control planes know of each
// other. One that cannot renew its lease in time ends its whole process, which a busy machine may
// bring about.
func elections() (args []string) {
	for _, flag := range []string{
		"--leader-elect=true",
		"--leader-elect-lease-duration=90s", "--leader-elect-renew-deadline=60s",
	} {
		args = append(args, "--kcm-flag="+flag, "--scheduler-flag="+flag)
	}
	return args
}

func buildUpgrade(ctx context.Context, p *harness.Program, o upgradeOptions) *upgrade {
	e := &upgrade{upgradeOptions: o, serving: map[int]*cluster.Cluster{}}
	var args []string
	var err error
	e.audit, args, err = harness.NewAuditLog(hosttest.Dir(p), harness.AuditOfDaemons)
	p.Must(err, "writing an audit policy")
	e.args = append(args, "--etcd="+startEtcd(p), "--kcm-flag=--pvclaimbinder-sync-period=2s")
	e.balancer = newBalancer(p)
	p.Cleanup(e.balancer.Close)
	e.begin(ctx, p, 0)
	plane := e.plane(ctx, p)
	e.Environment = harness.StartOn(ctx, plane, harness.Options{})
	pool := harness.Pool{Name: e.Name(), Path: filepath.Join(hosttest.Dir(p), "pool")}
	pool.Mount = func() { harness.Mkfs(p, 1024).Mount(p, pool.Path) }
	e.AddPool(pool)
	e.AddClass(ctx, e.Name(), e.Node, func(c *storagev1.StorageClass) {
		c.AllowVolumeExpansion = new(true)
	})
	p.Must(e.Run(ctx), "starting the daemon")
	e.pid = e.Daemon.PID()
	claim := func(name string) *corev1.PersistentVolumeClaim { return e.NewClaim(e.Name(), name) }
	e.load = harness.NewLoad(e.Client, e.Namespace, o.live, p.Seed, claim)
	e.load.Growing()
	e.checker = newChecker(e.Environment, "", pool.Path, e.Storages(pool), e.load)
	go e.checker.run(ctx)
	return e
}

// startEtcd starts an etcd that ends with the program, and returns its URL. It does not fsync.
func startEtcd(p *harness.Program) string {
	client := harness.Need(rig.FreeAddress())(p, "looking for a port")
	peer := harness.Need(rig.FreeAddress())(p, "looking for a port")
	at, among := "http://"+client, "http://"+peer
	child, err := process.Start(exec.Command(filepath.Join(rig.Root(), ".build", "etcd"),
		"--data-dir", filepath.Join(hosttest.Dir(p), "etcd"), "--unsafe-no-fsync",
		"--log-level", "error", "--listen-client-urls", at, "--advertise-client-urls", at,
		"--listen-peer-urls", among,
		"--initial-advertise-peer-urls", among, "--initial-cluster", "default="+among))
	p.Must(err, "starting etcd (make .build/etcd)")
	p.Cleanup(child.Kill)
	return at
}

// plane is the control planes as their clients know them: behind the balancer.
func (e *upgrade) plane(ctx context.Context, p *harness.Program) *harness.Plane {
	config := e.first.Config()
	config.Host = "https://" + e.balancer.Addr().String()
	front := harness.Need(cluster.Attach(config))(p, "making a client")
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client := harness.Need(kubernetes.NewForConfig(config))(p, "making a client")
	plane := &harness.Plane{Program: p, Cluster: front, Client: client}
	plane.Namespace = harness.Need(front.NewNamespace(ctx, p.Name()))(p, "making a namespace")
	return plane
}

// begin starts the control plane of a version, and has the balancer know it. Each has a directory
// of its own, with the authorities of the first.
func (e *upgrade) begin(ctx context.Context, p *harness.Program, i int) {
	dir := hosttest.Dir(p)
	if e.first != nil {
		p.Must(copyTree(filepath.Join(e.first.Dir(), "pki"), dir), "copying the authorities")
	}
	c, err := cluster.Start(ctx, cluster.Options{Binary: e.planes[i], Dir: dir, ExtraArgs: e.args})
	p.Must(err, "starting "+e.planes[i])
	p.Cleanup(c.Kill)
	if e.first == nil {
		e.first = c
	}
	e.serving[i] = c
	e.balance(p)
}

// end stops a version as its service manager does.
func (e *upgrade) end(i int) {
	c := e.serving[i]
	delete(e.serving, i)
	e.Must(c.Stop(), "stopping "+e.planes[i])
	e.balance(e.Program)
}

func (e *upgrade) balance(p *harness.Program) {
	var all []string
	for _, c := range e.serving {
		server := harness.Need(url.Parse(c.Config().Host))(p, "reading an address")
		all = append(all, server.Host)
	}
	e.balancer.to(all...)
}

// play goes through the versions, each with its row.
func (e *upgrade) play(ctx context.Context) {
	fmt.Printf("  %-24s %8s %8s %8s %9s %9s  %s\n", "served by", "change", "made", "deleted",
		"settled", "warnings", "requests while nothing was done")
	last := len(e.planes) - 1
	e.step(ctx, func() {})
	for i := 1; i <= last; i++ {
		e.step(ctx, func() { e.end(i - 1); e.begin(ctx, e.Program, i) })
	}
	e.step(ctx, func() { e.end(last); e.begin(ctx, e.Program, last-1) })
	e.step(ctx, func() { e.beside(ctx, last) })
	e.Report(kinds...)
}

// beside has a version and the one before it serve together.
func (e *upgrade) beside(ctx context.Context, i int) {
	e.end(i - 1)
	e.args = append(e.args, elections()...)
	e.begin(ctx, e.Program, i-1)
	e.begin(ctx, e.Program, i)
	e.alternate(ctx)
}

// alternate has the clients change between two servers, each several times.
func (e *upgrade) alternate(ctx context.Context) {
	const times = 10
	deadline := time.Now().Add(harness.Timeout)
	for e.balancer.fewest() < times && ctx.Err() == nil && time.Now().Before(deadline) {
		e.balancer.cut()
		time.Sleep(500 * time.Millisecond)
	}
	if n := e.balancer.fewest(); n < times {
		e.Fault(harness.NothingProven, "one of the servers had %d connections", n)
	}
}

// step does something to the servers while claims come and go, and judges what became of it.
func (e *upgrade) step(ctx context.Context, change func()) {
	var changed time.Duration
	e.load.During(ctx, e.rate, func() {
		began := time.Now()
		change()
		changed = time.Since(began)
		harness.Pass(ctx, e.time)
	})
	claims := e.checker.mustClaims(ctx)
	e.load.Adopt(claims)
	name := e.versions()
	found, settled := e.checker.settle(ctx, harness.Timeout)
	e.Merge(found, name+": ")
	made, deleted := e.load.Count()
	if made == 0 || deleted == 0 && len(claims) >= e.live {
		e.Fault(harness.NothingProven, "%s: %d claims made, %d deleted", name, made, deleted)
	}
	warnings, requests := e.settled(ctx, name)
	fmt.Printf("  %-24s %7.1fs %8d %8d %8.1fs %9d  %s\n", name, changed.Seconds(), made, deleted,
		settled.Seconds(), warnings, requests)
}

// versions are those that serve, as they say it themselves.
func (e *upgrade) versions() string {
	var all []string
	for _, c := range e.serving {
		version := harness.Need(c.Client().Discovery().ServerVersion())(e, "asking for the version")
		all = append(all, version.GitVersion)
	}
	slices.Sort(all)
	return strings.Join(all, " and ")
}

const goesOn = "errors that go on"

// failed is a request of an audit log that did (harness.AuditLog). What is looked for and is not
// there yet is made then.
var failed = regexp.MustCompile(`\((4|5)\d\d\)`)

const lookedFor = "get leases (404)"

// settled is asked when all is as it should be. It waits for a while, in which nothing may fail:
// neither in the daemon's log nor at the API server. It returns how many warnings and errors the
// daemon logged before, and what it requested meanwhile.
func (e *upgrade) settled(
	ctx context.Context, name string,
) (warnings int, requests harness.Requests) {
	doubles, _ := e.checker.doubles()
	for _, claim := range doubles {
		e.Fault(madeTwice, "%s: %s", name, claim)
	}
	for _, volume := range e.checker.lost() {
		e.Fault(noDirectory, "%s: %s", name, volume)
	}
	e.CheckRunning()
	if pid := e.Daemon.PID(); pid != e.pid {
		e.Fault(harness.DaemonEnded, "%s: its process was %d, and is %d", name, e.pid, pid)
	}
	warnings = len(e.troubles())
	byNode, err := e.audit.Settle(ctx, 2*time.Second, 10*time.Second)
	e.Must(err, "reading the audit log")
	if len(byNode) == 0 {
		e.Fault(harness.NothingProven, "%s: the API server logged no request of the daemon", name)
	}
	e.troubles() // of the last tries
	harness.Pass(ctx, e.quiet)
	byNode = harness.Need(e.audit.Settle(ctx, time.Second, time.Second))(e, "reading the audit log")
	requests = harness.SumRequests(byNode)
	for request, n := range requests {
		if failed.MatchString(request) && (request != lookedFor || n > 1) {
			e.Fault(goesOn, "%s: %d times in %s: %s", name, n, e.quiet, request)
		}
	}
	for _, line := range e.troubles() {
		e.Fault(goesOn, "%s: %s", name, line)
	}
	return warnings, requests
}

// troubles are the warnings and errors in the daemon's log since the last look.
func (e *upgrade) troubles() (all []string) {
	log := e.Log()
	for line := range strings.Lines(log[e.logged:]) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	e.logged = len(log)
	return all
}
