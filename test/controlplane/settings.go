package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
)

// settings is what the command line says.
type settings struct {
	dir       string
	etcd      string
	nodeGrace time.Duration

	kcmQPS       float64
	kcmBurst     int
	schedulerQPS float64

	apiserverExtra []string
	kcmExtra       []string
	schedulerExtra []string
}

// Where the API server listens, and the addresses of services.
const (
	address        = "127.0.0.1"
	serviceCIDR    = "10.96.0.0/16"
	firstServiceIP = "10.96.0.1" // of the service "kubernetes"
)

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
	flags.StringVar(&s.etcd, "etcd", "", "URL of an etcd that others use too; empty: one of its own")
	flags.DurationVar(&s.nodeGrace, "node-monitor-grace-period", 8760*time.Hour, "how long a Node may go without a kubelet's report and still be Ready")
	flags.Float64Var(&s.kcmQPS, "kcm-qps", 0, "requests a second of each client in kube-controller-manager; 0 is upstream's 20, which binds about 4 claims a second")
	flags.IntVar(&s.kcmBurst, "kcm-burst", 0, "burst of the same; 0 is upstream's 30")
	flags.Float64Var(&s.schedulerQPS, "scheduler-qps", 0, "requests a second of kube-scheduler; 0 is upstream's 50")
	flags.StringArrayVar(&s.apiserverExtra, "apiserver-flag", nil, "one more flag for kube-apiserver, such as --max-requests-inflight=2000; repeatable, wins over ours")
	flags.StringArrayVar(&s.kcmExtra, "kcm-flag", nil, "the same for kube-controller-manager")
	flags.StringArrayVar(&s.schedulerExtra, "scheduler-flag", nil, "the same for kube-scheduler")

	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if s.dir == "" {
		return s, errors.New("--dir is required")
	}
	return s, nil
}
