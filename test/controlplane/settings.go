package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/spf13/pflag"
)

// settings is what the command line says.
type settings struct {
	dir         string
	address     string
	port        int
	serviceCIDR string
	etcd        string
	nodeGrace   time.Duration

	kcmQPS       float64
	kcmBurst     int
	schedulerQPS float64

	apiserverExtra []string
	kcmExtra       []string
	schedulerExtra []string

	verbosity     int
	quiet         bool
	dieWithParent bool
}

const usage = `Usage: controlplane --dir DIR [flags]

Runs etcd, kube-apiserver, kube-controller-manager and kube-scheduler in this
one process, for tests. When it has printed "ready", DIR/admin.kubeconfig works.
Started again on the same DIR it has the same objects, the same port and the
same authorities. SIGTERM or SIGINT ends it. The log is DIR/controlplane.log.

Flags:
`

// parseSettings reads the command line. Asked for help it prints it to out and
// returns pflag.ErrHelp.
func parseSettings(args []string, out io.Writer) (settings, error) {
	var s settings
	flags := pflag.NewFlagSet("controlplane", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(out)
	flags.Usage = func() { fmt.Fprint(out, usage, flags.FlagUsages()) }

	flags.StringVar(&s.dir, "dir", "", "state directory: etcd's data, certificates, kubeconfigs, the log (required)")
	flags.StringVar(&s.address, "address", "127.0.0.1", "IP address to listen on")
	flags.IntVar(&s.port, "port", 0, "port of the API server; 0 is the one of the earlier run in DIR, else a free one")
	flags.StringVar(&s.serviceCIDR, "service-cidr", "10.96.0.0/16", "addresses of services")
	flags.StringVar(&s.etcd, "etcd", "", "URL of an etcd that others use too; empty: one of its own")
	flags.DurationVar(&s.nodeGrace, "node-monitor-grace-period", 8760*time.Hour, "how long a Node may go without a kubelet's report and still be Ready")
	flags.Float64Var(&s.kcmQPS, "kcm-qps", 0, "requests a second of each client in kube-controller-manager; 0 is upstream's 20, which binds about 4 claims a second")
	flags.IntVar(&s.kcmBurst, "kcm-burst", 0, "burst of the same; 0 is upstream's 30")
	flags.Float64Var(&s.schedulerQPS, "scheduler-qps", 0, "requests a second of kube-scheduler; 0 is upstream's 50")
	flags.StringArrayVar(&s.apiserverExtra, "apiserver-flag", nil, "one more flag for kube-apiserver, such as --max-requests-inflight=2000; repeatable, wins over ours")
	flags.StringArrayVar(&s.kcmExtra, "kcm-flag", nil, "the same for kube-controller-manager")
	flags.StringArrayVar(&s.schedulerExtra, "scheduler-flag", nil, "the same for kube-scheduler")
	flags.IntVar(&s.verbosity, "v", 0, "verbosity of the components' log")
	flags.BoolVar(&s.quiet, "quiet", false, "print nothing but errors")
	flags.BoolVar(&s.dieWithParent, "die-with-parent", false, "end when the process that started this one ends")

	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return s, s.validate()
}

func (s settings) validate() error {
	var errs []error
	if s.dir == "" {
		errs = append(errs, errors.New("--dir is required"))
	}
	if net.ParseIP(s.address) == nil {
		errs = append(errs, fmt.Errorf("--address %q is not an IP address", s.address))
	}
	if s.port < 0 || s.port > 65535 {
		errs = append(errs, fmt.Errorf("--port %d is not a port", s.port))
	}
	if _, _, err := net.ParseCIDR(s.serviceCIDR); err != nil {
		errs = append(errs, fmt.Errorf("--service-cidr %q is not a CIDR", s.serviceCIDR))
	}
	return errors.Join(errs...)
}
