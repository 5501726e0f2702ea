// Package charts writes the objects of the manifests as a Helm chart and as a kustomization.
//
// The lists of the policies are the chart's values. Objects of its own are those for Prometheus and
// Grafana, which are off until they are asked for.
// test/upstream/charts renders both with Helm and Kustomize and compares. It contacts nothing.
package charts

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/packaging"
)

// Names that no cluster has, in whose places the chart has expressions.
const (
	namespace   = "namespace-of-the-chart"
	provisioner = "provisioner-of-the-chart"
	class       = "class-of-the-chart"
	list        = "-of-the-chart" // after the name of a list
)

// expressions are what Helm evaluates in these places.
var expressions = strings.NewReplacer(
	fmt.Sprintf("[%q]", provisioner), "{{ concat (list .Values.provisioner) .Values.aliases | sortAlpha | uniq | toJson }}",
	fmt.Sprintf("[%q]", "paths"+list), "{{ .Values.poolPaths | toJson }}",
	fmt.Sprintf("[%q]", "sharedPaths"+list), "{{ .Values.sharedPoolPaths | toJson }}",
	fmt.Sprintf("[%q]", "everyNodePaths"+list), "{{ .Values.everyNodePoolPaths | toJson }}",
	fmt.Sprintf("[%q,%q,%q]", class, class+"-*", "classes"+list), "{{ "+classes+" | sortAlpha | uniq | toJson }}",
	fmt.Sprintf("[%q]", "audiences"+list), "{{ .Values.audiences | toJson }}",
	fmt.Sprintf("{%q:%q}", "node"+list, "hostname"+list), "{{ .Values.hostnames | toJson }}",
	namespace, "{{ .Release.Namespace }}", provisioner, "{{ .Values.provisioner }}", class,
	`{{ .Values.classPrefix | default (.Values.provisioner | lower | replace "/" "-" | replace "_" "-") }}`)

// classes are those of the policies' list: a prefix that was given is no provisioner's.
const classes = `concat .Values.confinedClasses (ternary (list) (list .Values.classPrefix (printf "%s-*" .Values.classPrefix)) (eq .Values.classPrefix ""))`

// earlierParameters is what policies of earlier versions read, where a release has it: an upgrade
// would remove it at once, while API servers have the old policies for a second, and refuse
// everybody's writes.
const earlierParameters = `{{- with lookup "v1" "ConfigMap" .Release.Namespace "hostpath-provisioner-confinement" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: hostpath-provisioner-confinement
  namespace: {{ .metadata.namespace }}
  annotations: {helm.sh/resource-policy: keep}
data: {{ .data | toJson }}
{{- end }}
`

// inlineModes is the line that only a CSIDriver of pods' own volumes has.
const inlineModes = "  volumeLifecycleModes: [Persistent, Ephemeral]\n"

// podsRule is the rule for pods in a ClusterRole of the manifests.
var podsRule = regexp.MustCompile(`(?m)^  - apiGroups: \[""\]\n    resources: \[pods\]\n(    .*\n)+`)

// Conditions of Helm.
const (
	confined = "or .Values.poolPaths .Values.sharedPoolPaths .Values.everyNodePoolPaths"
	kubevirt = `and (has "` + packaging.KubevirtCSI + `" .Values.aliases) ` +
		`(ne .Values.provisioner "` + packaging.KubevirtCSI + `")`
	driver = `and (le (len .Values.provisioner) 63) (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" .Values.provisioner)`
)

// Helm is a chart, by the paths of its files. version is the program's; what is no version of a
// chart counts as 0.0.0.
func Helm(version string) map[string]string {
	o := packaging.Options{Namespace: namespace, Provisioner: provisioner, ClassPrefix: class, ClaimIndex: true, InlineVolumes: true}
	without := documents(packaging.Manifests(o))
	o.Confine.Aliases = []string{packaging.KubevirtCSI}
	served := documents(packaging.Manifests(o))
	o.Confine = packaging.Confinement{
		Paths: []string{"paths" + list}, SharedPaths: []string{"sharedPaths" + list}, EveryNodePaths: []string{"everyNodePaths" + list},
		Classes: []string{"classes" + list}, Audiences: []string{"audiences" + list}, Hostnames: map[string]string{"node" + list: "hostname" + list},
	}
	var b strings.Builder
	b.WriteString(earlierParameters)
	for _, d := range documents(packaging.Manifests(o)) {
		b.WriteString(d.template(without))
	}
	for _, d := range served {
		if !d.among(without) {
			b.WriteString(when(kubevirt, expressions.Replace(d.text)))
		}
	}
	if !semantic.MatchString(version) {
		version = "v0.0.0"
	}
	return map[string]string{
		"Chart.yaml": fmt.Sprintf("apiVersion: v2\nname: hostpath-provisioner\ndescription: What the daemons of hostpath-provisioner need in a cluster; they run on the nodes, outside of it\ntype: application\nversion: %s\nappVersion: %q\n",
			strings.TrimPrefix(version, "v"), version),
		"values.yaml":               values,
		"values.schema.json":        schema,
		"templates/manifests.yaml":  b.String(),
		"templates/monitoring.yaml": monitoring,
		"templates/NOTES.txt":       notes,
		alertsFile:                  packaging.Alerts,
		dashboardFile:               packaging.Dashboard,
	}
}

var semantic = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// document is one object of the manifests, in YAML.
type document struct{ kind, name, text string }

var (
	kindLine = regexp.MustCompile(`(?m)^kind: (\S+)$`)
	nameLine = regexp.MustCompile(`(?m)^  name: (\S+)$`)
)

// documents splits the manifests. What comes before the first object is instructions.
func documents(manifests string) (all []document) {
	for _, text := range strings.Split(manifests, "---\n")[1:] {
		all = append(all, document{kindLine.FindStringSubmatch(text)[1], nameLine.FindStringSubmatch(text)[1], text})
	}
	return all
}

// among reports whether an object of the same kind and name is there.
func (d document) among(all []document) bool {
	return slices.ContainsFunc(all, func(o document) bool {
		return o.kind == d.kind && o.name == d.name
	})
}

// template is the object as Helm evaluates it, in front of its condition; without has the objects
// of a cluster that is not confined.
func (d document) template(without []document) string {
	same := slices.IndexFunc(without, func(o document) bool { return o.kind == d.kind && o.name == d.name })
	text := expressed(d.text)
	switch {
	case d.kind == "Namespace": // Helm's
		return ""
	case d.kind == "StorageClass":
		return when(".Values.classes", text)
	case strings.HasPrefix(d.kind, "MutatingAdmission"):
		return when(".Values.claimIndex", text)
	case d.kind == "CSIDriver":
		return when(driver, strings.Replace(text, inlineModes, "{{- if .Values.inlineVolumes }}\n"+inlineModes+"{{- end }}\n", 1))
	case strings.Contains(d.name, provisioner):
		return when(driver, text)
	case same < 0:
		return when(confined, text)
	case without[same].text != d.text:
		return when(confined, text) + when("not ("+confined+")", expressed(without[same].text))
	}
	return "---\n" + text
}

// expressed is an object with Helm's expressions.
func expressed(text string) string {
	return podsRule.ReplaceAllString(expressions.Replace(text), "{{- if .Values.pods }}\n$0{{- end }}\n")
}

func when(condition, text string) string {
	return "{{- if " + condition + " }}\n---\n" + text + "{{- end }}\n"
}

const values = `# The name of the StorageClasses' provisioner, as in each node's configuration.
provisioner: hostpath-provisioner

# StorageClasses CLASSPREFIX and CLASSPREFIX-retain. "": the provisioner's name.
classes: true
classPrefix: ""

# Each node's identity is confined to its own objects, and to volumes in the pools with these paths, or right below one that ends
# with /* (Kubernetes 1.30 and later). Without a path there are no policies. See docs/security.md.
poolPaths: []
sharedPoolPaths: []
everyNodePoolPaths: []
# The confined identities serve classes of these provisioners, too, and these classes beside those that are named after a provisioner;
# they renew their tokens for these audiences alone.
aliases: []
confinedClasses: []
audiences: []
# Nodes whose label kubernetes.io/hostname is not their name: NODE: LABEL
hostnames: {}

# The daemons may list pods: the claims of a pod get their volumes together, and pods that name their node get theirs.
pods: true

# The API server (Kubernetes 1.36) labels claims, so that daemons do not read all of them.
claimIndex: false

# Pods may have volumes that are written in them, in pools with inline_volumes. Kubernetes refuses a change: delete the CSIDriver first.
inlineVolumes: false
` + monitoringValues

const schema = `{
  "$schema": "http://json-schema.org/draft-07/schema#",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "global": {"type": "object"},
    "provisioner": {"type": "string", "minLength": 1},
    "classes": {"type": "boolean"},
    "classPrefix": {"type": "string"},
    "poolPaths": {"$ref": "#/definitions/paths"},
    "sharedPoolPaths": {"$ref": "#/definitions/paths"},
    "everyNodePoolPaths": {"$ref": "#/definitions/paths"},
    "aliases": {"type": "array", "items": {"type": "string", "minLength": 1}},
    "confinedClasses": {"type": "array", "items": {"type": "string", "minLength": 1}},
    "audiences": {"type": "array", "items": {"type": "string", "minLength": 1}},
    "hostnames": {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}},
    "pods": {"type": "boolean"},
    "claimIndex": {"type": "boolean"},
    "inlineVolumes": {"type": "boolean"},
` + monitoringSchema + `  },
  "definitions": {
    "paths": {"type": "array", "items": {"type": "string", "pattern": "^(/[^/*\\n]+)+(/[*])?$"}}
  }
}
`

// notes are the steps of docs/install.md that are left.
const notes = `The cluster is ready for the daemons, which come as packages of the nodes' distribution. On each node:

  1. install the package
  2. write /etc/hostpath-provisioner/config.toml, and run: hostpath-provisioner check --config-only
  3. hostpath-provisioner prepare POOL, mount its storage, and prepare it again
  4. hostpath-provisioner enroll --namespace {{ .Release.Namespace }} --admin-kubeconfig FILE
  5. systemctl enable --now hostpath-provisioner
{{- if not .Values.poolPaths }}

Without poolPaths nothing confines a node's token to its own node.
{{- end }}
` + monitoringNotes

// Kustomization is a kustomization with the objects of the manifests with these options, by the
// paths of its files. Other names, and other lists of the policies, need other options.
func Kustomization(o packaging.Options) map[string]string {
	files, order := map[string]string{}, []string{}
	for _, d := range documents(packaging.Manifests(o)) {
		file := d.file()
		if !slices.Contains(order, file) {
			order = append(order, file)
		}
		files[file] += "---\n" + d.text
	}
	files["kustomization.yaml"] = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - " + strings.Join(order, "\n  - ") + "\n"
	return files
}

// file is that in which an object is.
func (d document) file() string {
	switch {
	case d.kind == "StorageClass":
		return "classes.yaml"
	case strings.HasPrefix(d.kind, "ValidatingAdmission"):
		return "policies.yaml"
	case strings.HasPrefix(d.kind, "MutatingAdmission"):
		return "claim-index.yaml"
	case strings.Contains(d.kind, "Role"):
		return "rights.yaml"
	}
	return "objects.yaml"
}
