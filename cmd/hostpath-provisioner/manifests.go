package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/packaging"
	"github.com/hostpath-provisioner/hostpath-provisioner/packaging/charts"
)

func (p *program) manifestsCommand() *cobra.Command {
	var o packaging.Options
	var hostnames []string
	var chart, kustomization, version string
	c := &cobra.Command{
		Use:   "manifests",
		Short: "Print what a cluster administrator applies, or removes, and how to make a node's kubeconfig",
		Args:  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if chart != "" {
				if setBeside(c, "helm-chart") {
					return usageError{errors.New("--helm-chart: the other options are values of the chart, or of its release")}
				}
				return writeFiles(chart, charts.Helm(p.version()))
			}
			if o.Provisioner == "" {
				provisioner, err := p.provisioner()
				if err != nil {
					return err
				}
				o.Provisioner = provisioner
			}
			o.Confine.Hostnames = map[string]string{}
			for _, one := range hostnames {
				node, label, _ := strings.Cut(one, "=")
				o.Confine.Hostnames[node] = label
			}
			if err := errors.Join(p.fitVersion(&o, version), checkManifests(o)); err != nil {
				return usageError{err}
			}
			if kustomization != "" {
				return writeFiles(kustomization, charts.Kustomization(o))
			}
			_, err := io.WriteString(p.stdout, packaging.Manifests(o))
			return err
		},
	}
	c.Flags().StringVar(&o.Namespace, "namespace", name, "of the ServiceAccount")
	c.Flags().StringVar(&o.Provisioner, "provisioner", "", "of the StorageClasses; default as configured on this host")
	c.Flags().StringVar(&o.ClassPrefix, "class-prefix", "", "of the StorageClasses' names; default the provisioner's name")
	c.Flags().BoolVar(&o.NoClasses, "no-classes", false, "print no StorageClasses")
	c.Flags().BoolVar(&o.NoPods, "no-pods", false,
		"give the daemons no right to read pods; the claims of a pod get their volumes each for itself then")
	c.Flags().BoolVar(&o.ClaimIndex, "claim-index", false, "have the API server (1.36 or later) label claims, so that daemons do not read all of them")
	c.Flags().BoolVar(&o.InlineVolumes, "inline-volumes", false, "let pods have volumes that are written in them, in pools that make them")
	c.Flags().BoolVar(&o.Delete, "delete", false, "print what must be removed when no node runs the daemon any more")
	c.Flags().BoolVar(&o.TokenSecret, "token-secret", false, "ask for a token that does not expire, in a Secret")
	f, confine := c.Flags(), &o.Confine
	f.StringVar(&version, "kubernetes-version", "", "leave out what this `version` has not")
	c.Flags().StringVar(&chart, "helm-chart", "", "write them as a Helm chart, whose values are the other options, in `directory`")
	c.Flags().StringVar(&kustomization, "kustomization", "", "write them as a kustomization in `directory`")
	f.StringArrayVar(&confine.Paths, "pool-path", nil, "confine each node's identity to its own objects, and to volumes in the pool with this `path`, or in those right below one that ends with /*; repeatable, as are the following")
	f.StringArrayVar(&confine.SharedPaths, "shared-pool-path", nil, "the same for pools of scope shared: `path`")
	f.StringArrayVar(&confine.EveryNodePaths, "every-node-pool-path", nil, "the same for pools of scope every-node: `path`")
	f.StringArrayVar(&confine.Classes, "class", nil, "the confined identities make volumes of this `class`, too: beside those that are named after a provisioner; it may end with *")
	f.StringArrayVar(&confine.Aliases, "alias", nil, "the confined identities serve classes of this `provisioner`, too")
	f.StringArrayVar(&confine.Audiences, "audience", nil, "the confined identities renew their tokens for this `audience` of the API server, and for no other")
	f.StringArrayVar(&hostnames, "hostname", nil, "a `pair` NODE=LABEL, of a node whose label kubernetes.io/hostname is not its name")
	return c
}

// setBeside reports whether a flag of the command is set beside this one.
func setBeside(c *cobra.Command, flag string) (is bool) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) { is = is || f.Changed && f.Name != flag })
	return is
}

// First minor versions of Kubernetes that serve what manifests may have.
const (
	validatingPolicies = 30 // ValidatingAdmissionPolicy v1
	mutatingPolicies   = 36 // MutatingAdmissionPolicy v1
)

// kubernetesVersion is one as an API server says it, with or without what follows the minor.
var kubernetesVersion = regexp.MustCompile(`^v?1\.([0-9]{1,3})([.+-].*)?$`)

// fitVersion leaves out what an API server of a version lacks and the daemons can do without, and
// warns of that. Policies that confine are not left out: without them the rights would be those of
// every node. An empty version lacks nothing.
func (p *program) fitVersion(o *packaging.Options, version string) error {
	if version == "" {
		return nil
	}
	found := kubernetesVersion.FindStringSubmatch(version)
	if found == nil {
		return fmt.Errorf("--kubernetes-version: %q is no version of Kubernetes", version)
	}
	minor, err := strconv.Atoi(found[1])
	switch {
	case err != nil:
		return err
	case minor < validatingPolicies && o.Confine.Any():
		return fmt.Errorf("--kubernetes-version: %s has no policies that could confine", version)
	case minor < mutatingPolicies && o.ClaimIndex:
		o.ClaimIndex = false
		p.warn("--claim-index is left out: Kubernetes " + version +
			" has no MutatingAdmissionPolicy")
	}
	return nil
}

// writeFiles writes files in a directory that is made. A directory with other files is refused:
// they could be taken for these.
func writeFiles(dir string, files map[string]string) error {
	there, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(there) > 0 {
		return fmt.Errorf("%s is not empty", dir)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := writeFile(filepath.Join(dir, name), []byte(files[name])); err != nil {
			return err
		}
	}
	return nil
}

// checkManifests refuses what the API server would refuse, after it had taken the objects before
// it.
func checkManifests(o packaging.Options) error {
	if len(validation.IsDNS1123Label(o.Namespace)) > 0 {
		return fmt.Errorf("--namespace: %q cannot be a namespace", o.Namespace)
	}
	if err := config.CheckProvisioner(o.Provisioner); err != nil {
		return fmt.Errorf("--provisioner: %w", err)
	}
	if err := checkConfinement(o); err != nil {
		return err
	}
	prefix := cmp.Or(o.ClassPrefix, packaging.ClassPrefix(o.Provisioner))
	if len(validation.IsDNS1123Subdomain(prefix+"-retain")) > 0 && !o.NoClasses {
		return fmt.Errorf("--class-prefix: %q cannot begin the name of a StorageClass", prefix)
	}
	return nil
}

// checkConfinement refuses what would not confine.
func checkConfinement(o packaging.Options) error {
	c := o.Confine
	if c.Any() && o.TokenSecret {
		return errors.New("--token-secret: a token in a Secret is bound to no node, and the policies would refuse it everything")
	}
	for _, path := range slices.Concat(c.Paths, c.SharedPaths, c.EveryNodePaths) {
		pool := strings.TrimSuffix(path, "/*")
		if !filepath.IsAbs(pool) || filepath.Clean(pool) != pool || pool == "/" || strings.ContainsAny(pool, "*") || strings.ContainsFunc(path, unicode.IsControl) {
			return fmt.Errorf("--pool-path: %q is not the path of a pool, or of a directory with pools and /*", path)
		}
	}
	for _, class := range c.Classes {
		if name := strings.TrimSuffix(class, "*"); len(validation.IsDNS1123Subdomain(strings.TrimRight(name, "-."))) > 0 && class != "*" {
			return fmt.Errorf("--class: %q cannot be the name of a StorageClass, or begin one",
				class)
		}
	}
	for _, alias := range c.Aliases {
		if err := config.CheckProvisioner(alias); err != nil && alias != "*" {
			return fmt.Errorf("--alias: %w", err)
		}
	}
	for _, audience := range c.Audiences {
		if audience == "" || strings.ContainsFunc(audience, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
			return fmt.Errorf("--audience: %q is none", audience)
		}
	}
	for node, label := range c.Hostnames {
		if len(validation.IsDNS1123Subdomain(node)) > 0 || label == "" || len(validation.IsValidLabelValue(label)) > 0 {
			return fmt.Errorf("--hostname: %q cannot be a node, or %q its label", node, label)
		}
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
