package packaging

import (
	"encoding/json"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// Confinement is what the policies let the daemons of a cluster have. Its zero value confines
// nothing: then the manifests have no policies.
//
// A path is that of a pool, or of a directory and "/*": each directory in it may be a pool. A class
// may end with "*".
type Confinement struct {
	Paths          []string          // of pools of scope node
	SharedPaths    []string          // of pools of scope shared
	EveryNodePaths []string          // of pools of scope every-node
	Classes        []string          // beside those that are named after a provisioner
	Aliases        []string          // provisioner names beside Options.Provisioner, "*" for any
	Audiences      []string          // for which a token may be renewed: those of the API server; none is any
	Hostnames      map[string]string // the hostname label of each node that has another one than its name
}

// Any reports whether anything is confined.
func (c Confinement) Any() bool { return len(c.Paths)+len(c.SharedPaths)+len(c.EveryNodePaths) > 0 }

// lists are the variables of the policies that have a Confinement, as literals of CEL, which JSON's
// are. No policy reads another object for them: the API server would look for it in everybody's
// requests, and refuse them all where it is missing (paramKind).
var lists = []variable{
	{"provisioners", "@provisioners@"}, {"paths", "@paths@"}, {"sharedPaths", "@sharedPaths@"},
	{"everyNodePaths", "@everyNodePaths@"}, {"classes", "@classes@"}, {"audiences", "@audiences@"},
	{"hostnames", "@hostnames@"},
}

// literals are what stands in the places of lists, in pairs for strings.NewReplacer.
func (o Options) literals() []string {
	c := o.Confine
	names, classes := append([]string{o.Provisioner}, c.Aliases...), slices.Clone(c.Classes)
	if o.ClassPrefix != "" {
		classes = append(classes, o.ClassPrefix, o.ClassPrefix+"-*")
	}
	hostnames := map[string]string{}
	maps.Copy(hostnames, c.Hostnames)
	return []string{
		// Provisioners of one namespace share the identity, and with each other's names as aliases
		// the policies.
		"@provisioners@", literal(sorted(names)), "@paths@", literal(some(c.Paths)),
		"@sharedPaths@", literal(some(c.SharedPaths)), "@everyNodePaths@", literal(some(c.EveryNodePaths)),
		"@classes@", literal(some(sorted(classes))), "@audiences@", literal(some(c.Audiences)),
		"@hostnames@", literal(hostnames),
	}
}

// some is a list that is empty, and not nil: null is no list.
func some(all []string) []string { return append([]string{}, all...) }

func sorted(all []string) []string { return slices.Compact(slices.Sorted(slices.Values(all))) }

// literal is a list of texts, or a map of them, in CEL.
func literal(of any) string {
	text, err := json.Marshal(of)
	if err != nil { // texts can be written
		return ""
	}
	return string(text)
}

// Lists are what the policies of a cluster let the daemons have: literals, by the names of the
// variables.
type Lists map[string]string

// Add adds those of a policy. It reports whether they can be read, and are as in the policies
// before.
func (l Lists) Add(spec admissionv1.ValidatingAdmissionPolicySpec) bool {
	for _, v := range spec.Variables {
		if !isList(v.Name) {
			continue
		}
		if there, known := l[v.Name]; !json.Valid([]byte(v.Expression)) || known && there != v.Expression {
			return false
		}
		l[v.Name] = v.Expression
	}
	return true
}

func isList(name string) bool {
	return slices.ContainsFunc(lists, func(v variable) bool { return v.name == name })
}

// Texts are the entries of a list: provisioners, paths, sharedPaths, everyNodePaths, classes or
// audiences.
func (l Lists) Texts(name string) (all []string) {
	if json.Unmarshal([]byte(l[name]), &all) != nil {
		return nil
	}
	return all
}

// Hostnames are the nodes whose label is not their name, with their labels.
func (l Lists) Hostnames() (all map[string]string) {
	if json.Unmarshal([]byte(l["hostnames"]), &all) != nil {
		return nil
	}
	return all
}
