package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// First versions of Kubernetes, as minor versions, that have what tests need.
const (
	ResizeStates      = 32 // of claims, and a request can be lowered (RecoverVolumeExpansionFailure)
	AttributesClasses = 34 // VolumeAttributesClass v1
	MutatingPolicies  = 36 // MutatingAdmissionPolicy v1
)

// Before reports whether the control plane is of a Kubernetes before 1.minor, as those that
// `make test-versions` builds may be.
func (c *Cluster) Before(minor int) (bool, error) {
	version, err := c.client.Discovery().ServerVersion()
	if err != nil {
		return false, err
	}
	has, err := strconv.Atoi(strings.TrimSuffix(version.Minor, "+"))
	if err != nil {
		return false, fmt.Errorf("the API server's version is %q: %w", version.GitVersion, err)
	}
	return has < minor, nil
}
