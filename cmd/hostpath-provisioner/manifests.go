package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/packaging"
)

func (p *program) manifestsCommand() *cobra.Command {
	var o packaging.Options
	c := &cobra.Command{
		Use:   "manifests",
		Short: "Print what a cluster administrator applies, or removes, and how to make a node's kubeconfig",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if o.Provisioner == "" {
				provisioner, err := p.provisioner()
				if err != nil {
					return err
				}
				o.Provisioner = provisioner
			}
			if err := checkManifests(o); err != nil {
				return usageError{err}
			}
			_, err := io.WriteString(p.stdout, packaging.Manifests(o))
			return err
		},
	}
	c.Flags().StringVar(&o.Namespace, "namespace", name, "of the ServiceAccount")
	c.Flags().StringVar(&o.Provisioner, "provisioner", "", "of the StorageClasses; default as configured on this host")
	c.Flags().StringVar(&o.ClassPrefix, "class-prefix", "", "of the StorageClasses' names; default the provisioner's name")
	c.Flags().BoolVar(&o.NoClasses, "no-classes", false, "print no StorageClasses")
	c.Flags().BoolVar(&o.Delete, "delete", false, "print what is to be removed when no node runs the daemon any more")
	c.Flags().BoolVar(&o.TokenSecret, "token-secret", false, "ask for a token that does not expire, in a Secret")
	return c
}

// checkManifests refuses what the API server would refuse, after it had taken the objects before it.
func checkManifests(o packaging.Options) error {
	if len(validation.IsDNS1123Label(o.Namespace)) > 0 {
		return fmt.Errorf("--namespace: %q cannot be a namespace", o.Namespace)
	}
	if err := config.CheckProvisioner(o.Provisioner); err != nil {
		return fmt.Errorf("--provisioner: %w", err)
	}
	prefix := cmp.Or(o.ClassPrefix, packaging.ClassPrefix(o.Provisioner))
	if len(validation.IsDNS1123Subdomain(prefix+"-retain")) > 0 && !o.NoClasses {
		return fmt.Errorf("--class-prefix: %q cannot begin the name of a StorageClass", prefix)
	}
	return nil
}

// provisioner is the configured one; a machine that has no configuration is not a node, and prints
// what fits the default.
func (p *program) provisioner() (string, error) {
	if _, err := os.Stat(p.config); errors.Is(err, fs.ErrNotExist) {
		return config.Default().Provisioner, nil
	}
	c, err := config.Load(p.config, p.stateDir, p.runtimeDir)
	return c.Provisioner, err
}
