package main

import (
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
		Short: "Print what a cluster administrator applies, and how to make a node's kubeconfig",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if len(validation.IsDNS1123Label(o.Namespace)) > 0 {
				return usageError{fmt.Errorf("%q cannot be a namespace", o.Namespace)}
			}
			if o.Provisioner == "" {
				provisioner, err := p.provisioner()
				if err != nil {
					return err
				}
				o.Provisioner = provisioner
			}
			_, err := io.WriteString(p.stdout, packaging.Manifests(o))
			return err
		},
	}
	c.Flags().StringVar(&o.Namespace, "namespace", name, "of the ServiceAccount")
	c.Flags().StringVar(&o.Provisioner, "provisioner", "", "of the StorageClasses; default as configured on this host")
	c.Flags().BoolVar(&o.TokenSecret, "token-secret", false, "ask for a token that does not expire, in a Secret")
	return c
}

// provisioner is the configured one; a machine that has no configuration is not a node, and prints
// what fits the default.
func (p *program) provisioner() (string, error) {
	if _, err := os.Stat(p.config); errors.Is(err, fs.ErrNotExist) {
		return config.Default().Provisioner, nil
	}
	c, err := config.Load(p.config)
	return c.Provisioner, err
}
