package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/clustercheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
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
			"On a node whose token the API server accepts it changes nothing, and without an administrator it reports whether\n" +
			"that is so. With one it also writes another address or authority of the API server.\n\n" +
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

// enroll makes this node's identity, unless it has one that lasts, and that the API server accepts.
func (p *program) enroll(ctx context.Context, o enrolling, stdin io.Reader) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	cfg.Namespace = cmp.Or(o.namespace, cfg.Namespace, kube.DefaultNamespace)
	var admin *kube.Client
	if o.admin != "" {
		if admin, err = p.administrator(o, cfg.Namespace, stdin); err != nil {
			return err
		}
	}
	ends, unfit, err := p.judged(ctx, cfg, admin)
	switch {
	case err != nil:
		return err
	case unfit == "":
		fmt.Fprintf(p.stdout, "node %s is enrolled until %s; nothing was changed\n", cfg.Node, moment(ends))
		return p.prove(ctx, cfg)
	case admin == nil:
		return usageError{fmt.Errorf("--admin-kubeconfig: none is named, and this node has no identity that lasts: %s", unfit)}
	}
	e, err := enrolled(ctx, admin, cfg.Node, o.life)
	if err != nil {
		return err
	}
	if err := p.keepIdentity(cfg, e); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "node %s is enrolled until %s: %s, with the token in %s\n", cfg.Node, moment(e.Expires), cfg.Kubeconfig, p.tokenFile())
	if err := p.prove(ctx, cfg); err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.stdout, "next: systemctl enable --now hostpath-provisioner; a daemon that runs takes it into use by itself")
	return err
}

// judged returns when this node's identity ends, and why it needs another one: "" if it does not.
// The administrator's API server decides, without an administrator that of the node's kubeconfig.
func (p *program) judged(ctx context.Context, cfg config.Config, admin *kube.Client) (ends time.Time, unfit string, err error) {
	own, err := p.asNode(cfg)
	if err != nil {
		return ends, words.Line(err.Error(), words.MessageMax), nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	unfit, err = cmp.Or(admin, own).Judge(ctx, own, time.Now())
	if admin != nil {
		err = ofAdministrator(err)
	}
	return own.Credential().Expires, unfit, err
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// adminError is an error of a request with the administrator's kubeconfig, or of that file.
type adminError struct{ error }

func (e adminError) Unwrap() error { return e.error }

func ofAdministrator(err error) error {
	if err == nil {
		return nil
	}
	return adminError{fmt.Errorf("with the administrator's kubeconfig: %w", err)}
}

// asNode is a client with this node's own identity.
func (p *program) asNode(cfg config.Config) (*kube.Client, error) {
	return kube.New(p.asNodeOptions(cfg))
}

func (p *program) asNodeOptions(cfg config.Config) kube.Options {
	return kube.Options{Kubeconfig: cfg.Kubeconfig, TokenFile: p.tokenFile(), Self: daemon.Self(cfg),
		Namespace: cfg.Namespace, UserAgent: name + "/" + p.version()}
}

// enrolled obtains a node's identity with an administrator's kubeconfig.
func enrolled(ctx context.Context, admin *kube.Client, node string, life time.Duration) (kube.Enrolled, error) {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	e, err := admin.Enroll(ctx, node, life)
	return e, ofAdministrator(err)
}

// administrator is a client with an administrator's kubeconfig. One from standard input is kept in
// memory.
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
	client, err := kube.New(kube.Options{Kubeconfig: file, Self: plan.Self{}, Namespace: namespace, UserAgent: name + "/" + p.version()})
	return client, ofAdministrator(err)
}

// keepIdentity writes the token, and then the kubeconfig that names it. A crash in between leaves
// the kubeconfig that was there, and a token that is used if it is of the same identity.
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

// prove asks the API server, in this node's name, whether every right is there, and whether the
// node is confined.
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
	lacks, pods := withoutPods(lacks)
	for _, a := range lacks {
		fmt.Fprintf(p.stdout, "has no right to %s %s\n", a.Verb, a.Resource)
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
	if len(pods) > 0 {
		fmt.Fprintf(p.stdout, "note: it may not read pods (manifests --no-pods): see %s\n",
			clustercheck.ReasonPodsUnread)
	}
	_, err = fmt.Fprintf(p.stdout, "it has every right that it needs; %s\n", protects)
	return err
}

// enrollOffline prints or writes kubeconfigs for other nodes. One that gets none
// does not stop the next.
func (p *program) enrollOffline(ctx context.Context, o enrolling, stdin io.Reader) error {
	o.admin = cmp.Or(o.admin, adminKubeconfig())
	admin, err := p.administrator(o, cmp.Or(o.namespace, kube.DefaultNamespace), stdin)
	if err != nil {
		return err
	}
	nodes := []string{o.offline}
	if o.all {
		nodes = nil
		note := func(node *corev1.Node) { nodes = append(nodes, node.Name) }
		if err := admin.EachNode(ctx, note); err != nil {
			return ofAdministrator(err)
		}
	}
	var errs []error
	for _, node := range nodes {
		e, err := enrolled(ctx, admin, node, o.life)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := p.passOn(o, e, node); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

// passOn prints or writes the kubeconfig of another node.
func (p *program) passOn(o enrolling, e kube.Enrolled, node string) error {
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
	_, err = fmt.Fprintf(p.stdout, "%s until %s\n", filepath.Join(o.directory, "kubeconfig-"+node), moment(e.Expires))
	return err
}
