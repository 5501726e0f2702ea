// Package cluster gives end-to-end tests, the demonstration and the benchmarks
// a real Kubernetes cluster: it runs the control plane of test/controlplane as
// a child process, and has the few helpers that they all need.
//
// It does not build that program, and it never skips: without the program a
// test fails and says what to build. Its Nodes have no kubelet, so that Pods
// are scheduled and never run. It asserts nothing; that is the caller's part.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

const (
	startTimeout = 4 * time.Minute // more than its own limits (test/controlplane) together
	stopTimeout  = 20 * time.Second
)

// Options say how to start a control plane. The zero value is fine.
type Options struct {
	// Binary is the control plane program. Empty: $CONTROLPLANE, else
	// .build/controlplane in the root of the repository.
	Binary string
	// Dir keeps its state. Empty: a temporary directory that Stop removes.
	Dir string
	// Stdout receives the handful of lines that it prints. Nil: they are dropped.
	Stdout io.Writer
	// ExtraArgs are more flags of the program. They win over those given by
	// this package, which raise the request limits of
	// kube-controller-manager and kube-scheduler: with upstream's the first
	// binds about 4 claims a second, and a test would wait for that and not
	// for what it tests. --kcm-qps=0, --kcm-burst=0 and --scheduler-qps=0
	// bring upstream's back.
	ExtraArgs []string
	// Env is added to the program's environment.
	Env []string
}

// Cluster is a running control plane. Its methods that start and stop it are
// not for concurrent use; everything else is.
type Cluster struct {
	opt       Options
	temporary bool // Dir is ours to remove
	plane     *plane
	config    *rest.Config
	client    kubernetes.Interface
}

// Start runs the control plane and returns when it is usable: the API server
// is ready and Pods can be created in the default namespace.
//
// The context bounds the start, not the life, of the control plane. That one
// ends with Stop or Kill, or with the calling process.
func Start(ctx context.Context, opt Options) (*Cluster, error) {
	binary, err := findBinary(opt.Binary)
	if err != nil {
		return nil, err
	}
	opt.Binary = binary
	c := &Cluster{opt: opt}
	if opt.Dir == "" {
		if c.opt.Dir, err = os.MkdirTemp("", "controlplane-"); err != nil {
			return nil, err
		}
		c.temporary = true
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.removeTemporary())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	args := append([]string{
		"--dir=" + c.opt.Dir,
		"--kcm-qps=1000", "--kcm-burst=2000", "--scheduler-qps=1000",
	}, c.opt.ExtraArgs...)
	plane, err := startPlane(ctx, c.opt, args)
	if err != nil {
		return fmt.Errorf("start the control plane in %s: %w", c.opt.Dir, err)
	}
	c.plane = plane
	if c.client != nil {
		return nil // the same address and credentials as before
	}
	if err := c.connect(); err != nil {
		return errors.Join(err, plane.kill())
	}
	return nil
}

func (c *Cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return err
	}
	config.QPS = -1 // no limit
	config.UserAgent = "hostpath-provisioner-test"
	c.config = config
	c.client, err = kubernetes.NewForConfig(config)
	return err
}

// Attach is a cluster that runs already, for its waiting helpers. It is not ours to stop or
// restart.
func Attach(config *rest.Config) (*Cluster, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{config: config, client: client}, nil
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.opt.Dir, "admin.kubeconfig") }

// Dir is the state directory. The components' log in it is controlplane.log,
// the cluster's authority pki/ca.crt and pki/ca.key.
func (c *Cluster) Dir() string { return c.opt.Dir }

// Client is the administrator's client, without a limit on its requests. It
// stays good across Restart.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Config is a copy of what Client was made from.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// PID is the control plane's process id, of the last one if it has ended.
func (c *Cluster) PID() int { return c.plane.PID() }

// Stop asks the control plane to end and waits until it has. One that had
// ended by itself is an error; one that Kill ended is not. A directory that
// Start made is removed.
func (c *Cluster) Stop() error { return errors.Join(c.plane.stop(), c.removeTemporary()) }

// Kill ends the control plane without a warning, as a power cut would its
// machine, and waits until it is gone. The directory stays: see Restart.
func (c *Cluster) Kill() error { return c.plane.kill() }

// Restart starts the control plane again on the same data and the same
// address, after stopping it if it still runs, and returns when it is usable.
func (c *Cluster) Restart(ctx context.Context) error {
	if err := c.plane.stop(); err != nil {
		return err
	}
	return c.start(ctx)
}

func (c *Cluster) removeTemporary() error {
	if !c.temporary {
		return nil
	}
	return os.RemoveAll(c.opt.Dir)
}

// findBinary resolves Options.Binary to a program that exists.
func findBinary(binary string) (string, error) {
	binary = cmp.Or(binary, os.Getenv("CONTROLPLANE"), filepath.Join(rig.Root(), ".build", "controlplane"))
	if _, err := os.Stat(binary); err != nil {
		return "", fmt.Errorf("no control plane to test against: %w; run: make .build/controlplane", err)
	}
	return filepath.Abs(binary)
}
