// Package claimindex decides whether the daemon may have the API server select the claims that it
// watches: by a label that an admission policy of the cluster writes on each claim that a daemon
// may have to act on. It reads no object by itself.
package claimindex

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

const (
	// Name is that of the policy and of its binding. There is one of each in a cluster, whatever
	// daemons it has.
	Name = "hostpath-provisioner-claims"
	// Label is on each claim that has no volume, or requests more than it has, or other attributes.
	// Its value is the provisioner that was asked for the volume, with _ for /; "" where none was
	// asked, where the name cannot be a label's value, and on a claim that has a volume.
	Label = "hostpath-provisioner/claim"
)

// Manifest is the policy and its binding in YAML. It sets each field that the API server would set,
// so that what the server returns can be compared with it.
//
//go:embed policy.yaml
var Manifest string

// Selection is which of the labelled claims a daemon reads.
type Selection struct{ selector labels.Selector }

// SelectionOf is the selection of the claims that a daemon may have to act on: those for which its
// provisioner was asked, or an alias, or none.
func SelectionOf(self plan.Self) Selection {
	values := []string{""}
	for _, provisioner := range append([]string{self.Provisioner}, self.Aliases...) {
		values = append(values, labelValue(provisioner))
	}
	return Selection{selector(Label, values)}
}

// selector selects the objects whose label has one of these values.
func selector(label string, values []string) labels.Selector {
	required, err := labels.NewRequirement(label, selection.In, values)
	if err != nil { // what labelValue and nameValue return is possible: TestSelectionHasWhatIsHeld
		return labels.Everything()
	}
	return labels.NewSelector().Add(*required)
}

// String is the selector in the notation of the API.
func (s Selection) String() string { return s.selector.String() }

// Misses reports whether a claim is one that the daemon may have to act on, and its label does not
// say so: it is from before the policy.
func (s Selection) Misses(c *corev1.PersistentVolumeClaim) bool {
	value, labelled := Value(c)
	return labelled && c.DeletionTimestamp == nil && s.selector.Matches(labels.Set{Label: value}) && !s.selector.Matches(labels.Set(c.Labels))
}

// Value returns the value that the policy writes. labelled reports whether it writes one.
func Value(c *corev1.PersistentVolumeClaim) (value string, labelled bool) {
	if c.Spec.VolumeName != "" {
		return "", plan.Asks(c)
	}
	asked := c.Annotations[plan.StorageProvisioner]
	if asked == "" {
		asked = c.Annotations[plan.StorageProvisionerBeta]
	}
	return labelValue(asked), true
}

// Written reports whether a claim has the label that the policy writes. One that has a volume and
// the label's empty value may have it, too: the policy does not judge each notation of a size as
// Value does.
func Written(c *corev1.PersistentVolumeClaim) bool {
	value, labelled := Value(c)
	return written(c.Labels, Label, value, labelled)
}

// written reports whether a label has the value that a policy writes, or none where it writes none.
func written(of map[string]string, label, value string, labelled bool) bool {
	has, is := of[label]
	return has == value && (is || !labelled)
}

var possible = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`)

func labelValue(provisioner string) string {
	return nameValue(strings.ReplaceAll(provisioner, "/", "_"))
}

// Identity tells an index from every other that a cluster had: the UIDs and generations of the
// policy and of its binding. It is "" if one of them is missing, or is not as in the manifest.
func (known *Index) Identity(policy *admissionv1.MutatingAdmissionPolicy,
	binding *admissionv1.MutatingAdmissionPolicyBinding) string {
	if policy == nil || binding == nil || policy.DeletionTimestamp != nil || binding.DeletionTimestamp != nil {
		return ""
	}
	if !equality.Semantic.DeepEqual(policy.Spec, known.policy.Spec) || !equality.Semantic.DeepEqual(binding.Spec, known.binding.Spec) {
		return ""
	}
	return fmt.Sprintf("%s/%d %s/%d", policy.UID, policy.Generation, binding.UID, binding.Generation)
}

// Claims is the index of Manifest, Volumes that of VolumesManifest.
var Claims, Volumes = parse(Manifest), parse(VolumesManifest)

// Index is a policy and its binding, as the API server returns them.
type Index struct {
	policy  admissionv1.MutatingAdmissionPolicy
	binding admissionv1.MutatingAdmissionPolicyBinding
}

// parse reads a manifest. A text that cannot be read leaves what no server returns: TestIdentity.
func parse(manifest string) (o Index) {
	scheme := runtime.NewScheme()
	if admissionv1.AddToScheme(scheme) != nil {
		return o
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	_, texts, _ := strings.Cut(manifest, "---\n")
	policy, binding, _ := strings.Cut(texts, "---\n")
	if _, _, err := decoder.Decode([]byte(policy), nil, &o.policy); err != nil {
		return Index{}
	}
	if _, _, err := decoder.Decode([]byte(binding), nil, &o.binding); err != nil {
		return Index{}
	}
	return o
}
