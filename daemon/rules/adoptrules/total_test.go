package adoptrules

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Each rule can be called alone, with an object that says nothing: a rule that needs an earlier one
// panics here.
func TestEveryRuleIsTotal(t *testing.T) {
	for _, rule := range slices.Concat(adoptRules, replacementRules) {
		rule(Facts{Volume: &corev1.PersistentVolume{}})
	}
}
