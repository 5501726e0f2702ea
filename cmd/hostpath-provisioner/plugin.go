package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// pluginName is the name by which kubectl finds this program as its plugin: kubectl hostpath.
const pluginName = "kubectl-hostpath"

// volumesName is of two commands: of this host's pools, and under kubectl's name of the cluster.
const volumesName = "volumes"

// asPlugin has a call under kubectl's name alone print the help, and list the cluster's volumes.
func (p *program) asPlugin(root *cobra.Command) {
	if filepath.Base(p.called) != pluginName {
		return
	}
	for _, c := range root.Commands() {
		if c.Name() == volumesName {
			root.RemoveCommand(c)
		}
	}
	for _, c := range p.overviewCommands() {
		if c.Name() == volumesName {
			root.AddCommand(c)
		}
	}
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl hostpath"}
	root.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
}

// installation is which daemons a command is about, as flags that go before this host's
// configuration. An administrator's machine has none.
type installation struct {
	provisioner, namespace string
	aliases                []string
	overrides              clientcmd.ConfigOverrides // what was said beside the kubeconfig
}

// seldom are flags of kubectl that are taken and not listed in the help: those of a cluster and a
// user without a kubeconfig.
func seldom(flag string) bool {
	return !slices.Contains([]string{"context", "as", "as-group"}, flag)
}

func (i *installation) flags(c *cobra.Command, namespace string) {
	flags := c.Flags()
	flags.StringVar(&i.provisioner, "provisioner", "",
		"of the daemons; default as configured on this host")
	flags.StringArrayVar(&i.aliases, "alias", nil,
		"they serve this `provisioner`, too; repeatable, default as configured on this host")
	flags.StringVar(&i.namespace, namespace, "",
		"of the daemons' ServiceAccount; default as configured on this host")
	of := clientcmd.RecommendedConfigOverrideFlags("")
	of.ContextOverrideFlags.Namespace = clientcmd.FlagInfo{}
	kubectls := pflag.NewFlagSet("", pflag.ContinueOnError)
	clientcmd.BindOverrideFlags(&i.overrides, kubectls, of)
	kubectls.VisitAll(func(f *pflag.Flag) { f.Hidden = seldom(f.Name) })
	flags.AddFlagSet(kubectls)
}

// installed is the installation that is meant. A provisioner that is named has the aliases that are
// named, and no others.
func (p *program) installed(i installation) (self plan.Self, namespace string, err error) {
	cfg := config.Default()
	if _, missing := os.Stat(p.config); !errors.Is(missing, fs.ErrNotExist) {
		if cfg, err = config.Load(p.config); err != nil {
			return self, "", err
		}
	}
	if i.provisioner == "" && len(i.aliases) == 0 {
		i.aliases = cfg.Aliases
	}
	cfg.Provisioner, cfg.Aliases = cmp.Or(i.provisioner, cfg.Provisioner), i.aliases
	if slices.Contains(i.aliases, plan.KubevirtCSI) {
		cfg.CSIDrivers = []string{plan.KubevirtCSI}
	}
	for _, one := range append([]string{cfg.Provisioner}, cfg.Aliases...) {
		if err := config.CheckProvisioner(one); err != nil {
			return self, "", usageError{fmt.Errorf("--provisioner, --alias: %w", err)}
		}
	}
	return daemon.Self(cfg), cmp.Or(i.namespace, cfg.Namespace), nil
}

// adminKubeconfig is kubectl's default.
func adminKubeconfig() string {
	home, _ := os.UserHomeDir()
	return cmp.Or(os.Getenv("KUBECONFIG"), filepath.Join(home, ".kube", "config"))
}
