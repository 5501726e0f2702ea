package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	kcmoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/controlplane/internal/state"
)

// stopTimeout is how long each stage of the shutdown may take. An API server
// waits for its clients' watches to end, and a client may hold one for hours.
// Nothing is lost by leaving it behind: etcd is closed in any case.
const stopTimeout = 2 * time.Second

const usableTimeout = time.Minute

// plane is what runs, in the order in which it was started.
type plane struct {
	etcd      *embed.Etcd
	apiserver *component
	clients   []*component // of the API server: kube-controller-manager, kube-scheduler
	failed    chan error
}

// runPlane starts everything, says so, and stops everything when the context
// ends. It returns an error if a component ended by itself.
func runPlane(ctx context.Context, dir *state.Dir, s settings, out io.Writer) error {
	defer klog.Flush()
	started := time.Now()
	p := &plane{failed: make(chan error, 3)}
	defer p.stop()

	port, err := dir.Port(address)
	if err != nil {
		return err
	}
	creds, err := makeCredentials(dir, "https://"+net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	options, err := parseOptions(dir, s, creds, port)
	if err != nil {
		return err
	}
	err = p.start(ctx, dir, options, creds, func(format string, a ...any) {
		fmt.Fprintf(out, format+" after %.1fs\n", append(a, time.Since(started).Seconds())...)
	})
	if err != nil {
		return stoppedEarly(ctx, err)
	}
	path, err := dir.WriteKubeconfig("admin", creds.admin)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "kubeconfig: %s\nready\n", path)
	select {
	case err := <-p.failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// stoppedEarly drops the error of a start that was interrupted on purpose.
func stoppedEarly(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// options of the three components, all parsed before any of them starts.
type options struct {
	apiserver         *apiserveroptions.ServerRunOptions
	controllerManager *kcmoptions.KubeControllerManagerOptions
	scheduler         *scheduleroptions.Options
	etcd              bool // is there already
}

// parseOptions also applies what is global to the process: the three share
// one registry of feature gates and one logging configuration, each of which
// may be set once. (This is why the components' commands are of no use here,
// besides their signal handler, which panics when it is installed twice.)
//
// kube-controller-manager is first: up to 1.35 it sets the default of a gate
// when it names its flags, which the registry refuses after others did.
func parseOptions(dir *state.Dir, s settings, creds credentials, port int) (options, error) {
	kcm, err := parseControllerManager(append(controllerManagerFlags(dir, s, creds.controllerManager), s.kcmExtra...))
	if err != nil {
		return options{}, err
	}
	apiserver, err := parseAPIServer(append(apiserverFlags(dir, s, port), s.apiserverExtra...))
	if err != nil {
		return options{}, err
	}
	scheduler, err := parseScheduler(append(schedulerFlags(s, creds.scheduler), s.schedulerExtra...))
	if err != nil {
		return options{}, err
	}
	if err := apiserver.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return options{}, err
	}
	if err := logsapi.ValidateAndApply(apiserver.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return options{}, err
	}
	// The components warn themselves about what they read.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	return options{
		apiserver: apiserver, controllerManager: kcm, scheduler: scheduler, etcd: s.etcd != "",
	}, nil
}

// parse gives a component's flags, which it has in sets, their values.
func parse(component string, sets map[string]*pflag.FlagSet, args []string) error {
	flags := pflag.NewFlagSet(component, pflag.ContinueOnError)
	for _, set := range sets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%s: %w", component, err)
	}
	return nil
}

func (p *plane) start(ctx context.Context, dir *state.Dir, o options, creds credentials, say func(string, ...any)) error {
	var err error
	if !o.etcd {
		if p.etcd, err = startEtcd(ctx, dir.Path("etcd")); err != nil {
			return err
		}
		say("etcd is up")
	}

	admin, err := clientcmd.RESTConfigFromKubeConfig(creds.admin)
	if err != nil {
		return err
	}
	p.apiserver = p.launch("kube-apiserver", func(ctx context.Context) error {
		return runAPIServer(ctx, o.apiserver)
	})
	if err := p.await(ctx, func(ctx context.Context) error { return waitReady(ctx, admin) }); err != nil {
		return err
	}
	say("kube-apiserver is ready at %s", admin.Host)

	p.clients = append(p.clients,
		p.launch("kube-controller-manager", func(ctx context.Context) error {
			return runControllerManager(ctx, o.controllerManager)
		}),
		p.launch("kube-scheduler", func(ctx context.Context) error {
			return runScheduler(ctx, o.scheduler)
		}))
	if err := p.await(ctx, func(ctx context.Context) error { return waitUsable(ctx, admin) }); err != nil {
		return err
	}
	say("the default ServiceAccount exists")
	return nil
}

// await runs f, and gives up when a component ends in the meantime.
func (p *plane) await(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-p.failed:
		return err
	case err := <-done:
		return err
	}
}

// waitUsable waits for the default ServiceAccount. Until kube-controller-manager
// has made it no pod can be created in the default namespace.
func waitUsable(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, usableTimeout)
	defer cancel()
	accounts := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "serviceaccounts",
		metav1.NamespaceDefault, fields.OneTermEqualSelector("metadata.name", "default"))
	_, err = watchtools.UntilWithSync(ctx, accounts, &corev1.ServiceAccount{}, nil, func(event watch.Event) (bool, error) {
		return event.Type == watch.Added || event.Type == watch.Modified, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the default ServiceAccount: %w", err)
	}
	return nil
}

// stop ends what was started, last first.
func (p *plane) stop() {
	for _, c := range p.clients {
		c.cancel()
	}
	for _, c := range p.clients {
		c.wait(stopTimeout)
	}
	if p.apiserver != nil {
		p.apiserver.cancel()
		p.apiserver.wait(stopTimeout)
	}
	if p.etcd != nil {
		stopEtcd(p.etcd)
	}
}

// component is a part that runs in a goroutine of its own.
type component struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
}

// launch runs a component under a context of its own, not the caller's: what
// stops when is decided by plane.stop.
func (p *plane) launch(name string, run func(context.Context) error) *component {
	ctx, cancel := context.WithCancel(context.Background())
	c := &component{name: name, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		err := run(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			p.failed <- fmt.Errorf("%s: %w", name, err)
		default:
			p.failed <- fmt.Errorf("%s ended by itself", name)
		}
	}()
	return c
}

func (c *component) wait(timeout time.Duration) {
	select {
	case <-c.done:
	case <-time.After(timeout):
		klog.InfoS("Left behind at the end", "component", c.name, "after", timeout)
	}
}
