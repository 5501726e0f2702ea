package config

import "k8s.io/apimachinery/pkg/util/validation"

// socketMax is the longest path of a socket (sun_path in unix(7)).
const socketMax = 107

// checkCSI refuses what a pool with the source csi cannot have, and pools in kubelet's own directory.
func (l *loader) checkCSI(d *draft) {
	if d.Path != "" && !d.broken["path"] && under(d.Path, l.config.KubeletRoot) {
		if _, common := trees[l.config.KubeletRoot]; !common { // else the key was refused already
			l.refuse(l.where(d, "path"), "%q is in kubelet_root %q, which belongs to kubelet", d.Path, l.config.KubeletRoot)
		}
	}
	if d.Source != SourceCSI {
		return
	}
	if d.Scope == ScopeEveryNode {
		l.refuse(l.where(d, "source"), "%q is not for a pool whose scope is %q", d.Source, d.Scope)
	}
	if n := len(l.config.KubeletRoot) + len(l.config.Provisioner) + len("/plugins_registry/-reg.sock"); n > socketMax {
		l.refuse(l.whole("kubelet_root"), "the path of the CSI driver's socket would have %d bytes, and %d is the most", n, socketMax)
	}
	// As plan.DriverNamePossible, which classes are checked by.
	if p := l.config.Provisioner; len(p) > 63 || len(validation.IsDNS1123Subdomain(p)) > 0 {
		l.refuse(l.where(d, "source"), "%q wants a provisioner whose name a CSI driver can have, and %q has a capital letter, a slash, an underscore or more than 63 characters", d.Source, p)
	}
}
