package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// First versions of Kubernetes, as minor versions, that have what tests need.
const (
	ResizeStates      = 32 // of claims, and a request can be lowered (RecoverVolumeExpansionFailure)
	CapacityScoring   = 33 // the gate StorageCapacityScoring
	AttributesClasses = 34 // VolumeAttributesClass v1
	MutatingPolicies  = 36 // MutatingAdmissionPolicy v1
)

// minor is 33 of Kubernetes 1.33.
func (c *Cluster) minor() (int, error) {
	version, err := c.client.Discovery().ServerVersion()
	if err != nil {
		return 0, err
	}
	has, err := strconv.Atoi(strings.TrimSuffix(version.Minor, "+"))
	if err != nil {
		return 0, fmt.Errorf("the API server's version is %q: %w", version.GitVersion, err)
	}
	return has, nil
}

// Before reports whether the control plane is of a Kubernetes before 1.minor, as those that
// `make test-versions` builds may be.
func (c *Cluster) Before(minor int) (bool, error) {
	has, err := c.minor()
	return has < minor, err
}

// WatchLists reports whether the API server serves watch-lists by default: 1.32 did, 1.33 does not,
// and all from 1.34 on do (apiserver, pkg/features, WatchList).
func (c *Cluster) WatchLists(t test) bool {
	t.Helper()
	minor, err := c.minor()
	if err != nil {
		t.Fatal(err)
	}
	return minor == 32 || minor >= 34
}

// test is a testing.TB.
type test interface {
	Helper()
	Skipf(format string, args ...any)
	Fatal(args ...any)
}

// Since skips a test on an API server before Kubernetes 1.minor, which lacks what is named.
func (c *Cluster) Since(t test, minor int, what string) {
	t.Helper()
	older, err := c.Before(minor)
	if err != nil {
		t.Fatal(err)
	}
	if older {
		t.Skipf("%s is of Kubernetes 1.%d", what, minor)
	}
}

// Resizing returns the types of a claim's conditions that are of an expansion, sorted. From 1.37 on
// a claim that no pod uses has another one.
func Resizing(c *corev1.PersistentVolumeClaim) (types []string) {
	for _, condition := range c.Status.Conditions {
		if condition.Type != corev1.PersistentVolumeClaimUnused {
			types = append(types, string(condition.Type))
		}
	}
	slices.Sort(types)
	return types
}
