package csi

import (
	"context"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// GetPluginInfo is part of spec.IdentityServer.
func (s *Server) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: s.Driver, VendorVersion: s.Version}, nil
}

// GetPluginCapabilities is part of spec.IdentityServer. There is no controller service: the daemon
// makes volumes. Volumes carry the node's own affinity, so the driver has no topology; those of
// kubevirt's driver have the driver's.
func (s *Server) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	r := &spec.GetPluginCapabilitiesResponse{}
	if s.Driver == plan.KubevirtCSI {
		r.Capabilities = append(r.Capabilities, &spec.PluginCapability{Type: &spec.PluginCapability_Service_{Service: &spec.PluginCapability_Service{
			Type: spec.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
		}}})
	}
	return r, nil
}

// Probe is part of spec.IdentityServer. A closed pool is told of when a volume is published.
func (s *Server) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
