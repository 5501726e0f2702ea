package plan

import (
	"reflect"
	"runtime"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// Each rule can be called alone, whatever the rules before it leave unsaid: with an object that
// says nothing, and with nothing else.
func TestEveryRuleIsTotal(t *testing.T) {
	claim, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	for _, rule := range append(concernRules, assignmentRules...) {
		calls(t, rule, ClaimFacts{Claim: claim})
	}
	for _, rule := range slices.Concat(requestRules, cloneRules, restoreRules) {
		calls(t, rule, RequestFacts{})
		calls(t, rule, RequestFacts{From: &SourceFacts{Taken: &SnapshotFacts{}}})
	}
	content := &snapshotapi.Content{}
	for _, rule := range slices.Concat(goingRules, stayingRules) {
		calls(t, rule, ContentFacts{Content: content})
		calls(t, rule, ContentFacts{Content: content, Snapshot: &record.Record{}})
	}
	for _, rule := range volumeRules {
		calls(t, rule, VolumeFacts{Volume: volume})
		calls(t, rule, VolumeFacts{Volume: volume, Record: &record.Record{}})
	}
	for _, rule := range unplacedRules {
		calls(t, rule, UnplacedFacts{Claim: claim})
	}
	for _, rule := range partRules {
		calls(t, rule, PartFacts{Volume: volume})
	}
	for _, rule := range expandRules {
		calls(t, rule, ExpandFacts{Claim: claim})
		calls(t, rule, ExpandFacts{Claim: claim, Volume: volume, Pool: &Pool{}})
		calls(t, rule, ExpandFacts{Claim: claim, Record: &record.Record{}})
	}
}

// calls a rule with facts, and reports its name if it panics.
func calls[F, V any](t *testing.T, rule func(F) (V, bool), facts F) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("%s: %v", runtime.FuncForPC(reflect.ValueOf(rule).Pointer()).Name(), r)
		}
	}()
	rule(facts)
}

// changed returns facts after all of these changes.
func changed[F any](f F, changes []func(*F)) F {
	for _, change := range changes {
		change(&f)
	}
	return f
}
