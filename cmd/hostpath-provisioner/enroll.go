package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/state"
)

// enrolling is what the command line of enroll says.
type enrolling struct {
	admin, offline, directory, namespace string
	all                                  bool
	life                                 time.Duration
}

func (p *program) enrollCommand() *cobra.Command {
	var o enrolling
	c := &cobra.Command{
		Use:   "enroll",
		Short: "Give this node's daemon its identity in the cluster, or print that of another node",
		Long: "Enroll obtains a token that is bound to this node's Node object, with an administrator's kubeconfig, and\n" +
			"writes the daemon's kubeconfig and the token. Then it asks the API server whether every right is there.\n" +
			"On a node that is enrolled it changes nothing, and needs no administrator.\n\n" +
			"--offline NODE is for an administrator's machine: it prints a kubeconfig for that node, so that no\n" +
			"administrator's credential reaches the node. --all writes one for each node of the cluster, with -o.",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case o.life < 10*time.Minute:
				return usageError{fmt.Errorf("--duration: %s is less than ten minutes", o.life)}
			case o.all && o.directory == "":
				return usageError{errors.New("--all: -o names no directory")}
			case o.all || o.offline != "":
				return p.enrollOffline(c.Context(), o, c.InOrStdin())
			}
			return p.enroll(c.Context(), o, c.InOrStdin())
		},
	}
	f := c.Flags()
	f.StringVar(&o.admin, "admin-kubeconfig", "", "an administrator's kubeconfig `file`, - for standard input; with --offline default $KUBECONFIG or ~/.kube/config")
	f.StringVar(&o.offline, "offline", "", "print the kubeconfig of this `node`, and change nothing here")
	f.BoolVar(&o.all, "all", false, "write a kubeconfig for each node of the cluster, to the directory of -o")
	f.StringVarP(&o.directory, "output", "o", "", "write kubeconfig-NODE in this `directory`, in place of standard output")
	f.StringVar(&o.namespace, "namespace", "", "of the ServiceAccount; default as configured on this host")
	f.DurationVar(&o.life, "duration", 365*24*time.Hour, "how long the token lasts; the API server may shorten it")
	return c
}

// enroll makes this node's identity, unless it has one that lasts.
func (p *program) enroll(ctx context.Context, o enrolling, stdin io.Reader) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	cfg.Namespace = cmp.Or(o.namespace, cfg.Namespace, kube.DefaultNamespace)
	if ends, lasts := p.lasting(cfg); lasts {
		fmt.Fprintf(p.stdout, "node %s is enrolled until %s; nothing was changed\n", cfg.Node, ends.UTC().Format(time.RFC3339))
		return p.prove(ctx, cfg)
	}
	if o.admin == "" {
		return usageError{errors.New("--admin-kubeconfig: none is named, and this node has no identity that lasts")}
	}
	e, err := p.enrolled(ctx, o, cfg.Namespace, cfg.Node, stdin)
	if err != nil {
		return err
	}
	if err := p.keepIdentity(cfg, e); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "node %s is enrolled until %s: %s, with the token in %s\n", cfg.Node, e.Expires.UTC().Format(time.RFC3339), cfg.Kubeconfig, p.tokenFile())
	if err := p.prove(ctx, cfg); err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.stdout, "next: systemctl enable --now hostpath-provisioner; a daemon that runs takes it into use by itself")
	return err
}

// lasting reports whether this node has an identity of which more than a quarter of its life is left.
func (p *program) lasting(cfg config.Config) (ends time.Time, lasts bool) {
	client, err := p.asNode(cfg)
	if err != nil {
		return ends, false
	}
	is := client.Credential()
	return is.Expires, is.Node == cfg.Node && time.Until(is.Expires) > is.Expires.Sub(is.Issued)/4
}

// asNode is a client with this node's own identity.
func (p *program) asNode(cfg config.Config) (*kube.Client, error) {
	return kube.New(kube.Options{Kubeconfig: cfg.Kubeconfig, TokenFile: p.tokenFile(), Self: daemon.Self(cfg), Namespace: cfg.Namespace, UserAgent: name + "/" + p.version()})
}

// enrolled obtains a node's identity with an administrator's kubeconfig.
func (p *program) enrolled(ctx context.Context, o enrolling, namespace, node string, stdin io.Reader) (kube.Enrolled, error) {
	admin, err := p.administrator(o, namespace, stdin)
	if err != nil {
		return kube.Enrolled{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	return admin.Enroll(ctx, node, o.life)
}

// administrator is a client with an administrator's kubeconfig. One from standard input is kept in memory.
func (p *program) administrator(o enrolling, namespace string, stdin io.Reader) (*kube.Client, error) {
	file := o.admin
	if file == "-" {
		text, err := io.ReadAll(io.LimitReader(stdin, 4<<20))
		if err != nil {
			return nil, err
		}
		fd, err := unix.MemfdCreate("kubeconfig", unix.MFD_CLOEXEC)
		if err != nil {
			return nil, os.NewSyscallError("memfd_create", err)
		}
		memory := os.NewFile(uintptr(fd), "kubeconfig")
		defer memory.Close()
		if _, err := memory.Write(text); err != nil {
			return nil, err
		}
		file = fmt.Sprintf("/proc/self/fd/%d", fd)
	}
	return kube.New(kube.Options{Kubeconfig: file, Self: plan.Self{}, Namespace: namespace, UserAgent: name + "/" + p.version()})
}

// keepIdentity writes the token, and then the kubeconfig that names it. A crash in between leaves the kubeconfig that was there, and a
// token that is used if it is of the same identity.
func (p *program) keepIdentity(cfg config.Config, e kube.Enrolled) error {
	token, err := filepath.Abs(p.tokenFile())
	if err != nil {
		return err
	}
	text, err := e.Kubeconfig(token)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.stateDir, 0o700); err != nil {
		return err
	}
	if err := state.WriteFileDurable(p.stateDir, daemon.TokenFile, []byte(e.Token), 0o600); err != nil {
		return err
	}
	return state.WriteFileDurable(filepath.Dir(cfg.Kubeconfig), filepath.Base(cfg.Kubeconfig), text, 0o600)
}

// prove asks the API server, in this node's name, whether every right is there, and whether the node is confined.
func (p *program) prove(ctx context.Context, cfg config.Config) error {
	client, err := p.asNode(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	needs, _ := needed(expected(cfg))
	lacks, err := client.Lacks(ctx, needs)
	if err != nil {
		return err
	}
	for _, a := range lacks {
		fmt.Fprintf(p.stdout, "lacks the right to %s %s\n", a.Verb, a.Resource)
	}
	if len(lacks) > 0 {
		fmt.Fprintf(p.stdout, "hint: an administrator runs: hostpath-provisioner manifests --no-classes --provisioner %s --namespace %s | kubectl apply -f -\n", cfg.Provisioner, cfg.Namespace)
		return errNot
	}
	confined, err := client.Confined(ctx)
	if err != nil {
		return err
	}
	protects := "no policies confine it: see manifests --pool-path"
	if confined {
		protects = "the cluster's policies confine it to this node"
	}
	_, err = fmt.Fprintf(p.stdout, "it has every right that it needs; %s\n", protects)
	return err
}

// enrollOffline prints or writes kubeconfigs for other nodes.
func (p *program) enrollOffline(ctx context.Context, o enrolling, stdin io.Reader) error {
	home, _ := os.UserHomeDir()
	o.admin = cmp.Or(o.admin, os.Getenv("KUBECONFIG"), filepath.Join(home, ".kube", "config"))
	admin, err := p.administrator(o, cmp.Or(o.namespace, kube.DefaultNamespace), stdin)
	if err != nil {
		return err
	}
	nodes := []string{o.offline}
	if o.all {
		labels, err := admin.Hostnames(ctx)
		if err != nil {
			return err
		}
		nodes = slices.Sorted(maps.Keys(labels))
	}
	for _, node := range nodes {
		if err := p.enrollOne(ctx, o, admin, node); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) enrollOne(ctx context.Context, o enrolling, admin *kube.Client, node string) error {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	e, err := admin.Enroll(ctx, node, o.life)
	if err != nil {
		return err
	}
	text, err := e.Kubeconfig("")
	if err != nil {
		return err
	}
	if o.directory == "" {
		_, err = p.stdout.Write(text)
		return err
	}
	if err := state.WriteFileDurable(o.directory, "kubeconfig-"+node, text, 0o600); err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.stdout, "%s until %s\n", filepath.Join(o.directory, "kubeconfig-"+node), e.Expires.UTC().Format(time.RFC3339))
	return err
}
