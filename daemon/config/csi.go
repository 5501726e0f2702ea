package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// socketMax is the longest path of a socket (sun_path in unix(7)).
const socketMax = 107

// setCSIDrivers takes the one CSI driver whose volumes the node service can mount in its place:
// kubevirt's, each of whose volumes is a directory of the handle's name.
func setCSIDrivers(c *Config, v any) (err error) {
	kubevirts := func(name string) error { return oneOf(name, plan.KubevirtCSI) }
	c.CSIDrivers, err = provisioners(v, kubevirts)
	return err
}

// checkCSIDrivers refuses a driver whose volumes are not this daemon's.
func (l *loader) checkCSIDrivers() {
	for _, driver := range l.config.CSIDrivers {
		if !slices.Contains(l.config.Aliases, driver) {
			l.refuse(l.whole("csi_drivers"), "%q is not one of aliases", driver)
		}
		if n := len(l.config.KubeletRoot) + len(driver) + len("/plugins_registry/-reg.sock"); n > socketMax {
			l.refuse(l.whole("kubelet_root"), "the path of a socket of the CSI driver %s would have %d bytes, and %d is the most", driver, n, socketMax)
		}
	}
}

// Bounds of Pool.PauseLimit. A liveness probe as kubelet has it by default fails when a container
// does not respond for 21 to 31 seconds: three times, 10 seconds apart, with a second for each.
const (
	leastPause = 10 * time.Millisecond
	mostPause  = 20 * time.Second
)

func setPauseLimit(p *Pool, s string) error {
	limit, err := time.ParseDuration(s)
	if err != nil || limit < leastPause || limit > mostPause {
		return fmt.Errorf("%q is not a time from %s to %s, such as \"5s\"", s, leastPause, mostPause)
	}
	p.PauseLimit = limit
	return nil
}

// checkPaused refuses pauses for volumes whose pods cannot be known.
func (l *loader) checkPaused(d *draft) {
	if d.Snapshots == plan.SnapshotsPaused && d.Source != plan.SourceCSI && !d.broken["source"] {
		l.refuse(l.where(d, "snapshots"), "%q is for volumes with source %q: the pods of others are not known", d.Snapshots, plan.SourceCSI)
	}
}

// SnapshotsUnlimited is the value of snapshots_per_namespace for a pool that bounds them by its
// size alone.
const SnapshotsUnlimited = "unlimited"

func setSnapshotSpace(p *Pool, s string) (err error) {
	p.SnapshotSpace = 0
	if s == SnapshotsUnlimited {
		return nil
	}
	p.SnapshotSpace, err = amountOf(s, `neither "unlimited" nor an amount ("10Gi")`)
	if err == nil && p.SnapshotSpace == 0 {
		err = fmt.Errorf("%q has room for no snapshot; snapshots = \"off\" makes none", s)
	}
	return err
}

// InlineOff is the value of inline_volumes for a pool that has none.
const InlineOff = "off"

func setInlineVolumes(p *Pool, s string) (err error) {
	p.InlineVolumes = 0
	if s == InlineOff {
		return nil
	}
	p.InlineVolumes, err = amountOf(s, `neither "off" nor an amount ("10Gi")`)
	if err == nil && p.InlineVolumes == 0 {
		err = fmt.Errorf("%q has room for no volume; \"off\" makes none", s)
	}
	return err
}

// checkInline refuses inline volumes where kubelet does not ask the node service for them, and
// where another node may have the pool.
func (l *loader) checkInline(d *draft) {
	if !d.MakesInline() {
		return
	}
	if d.Source != plan.SourceCSI && !d.broken["source"] {
		l.refuse(l.where(d, "inline_volumes"), "is for a pool with source %q", plan.SourceCSI)
	}
	if d.Scope != plan.ScopeNode && !d.broken["scope"] {
		l.refuse(l.where(d, "inline_volumes"), "is for a pool of one node, and the pool's scope is %q", d.Scope)
	}
}

// checkCSI refuses what a pool with the source csi cannot have, and pools in kubelet's own
// directory.
func (l *loader) checkCSI(d *draft) {
	if d.Path != "" && !d.broken["path"] && under(d.Path, l.config.KubeletRoot) {
		if _, common := trees[l.config.KubeletRoot]; !common { // else the key was refused already
			l.refuse(l.where(d, "path"), "%q is in kubelet_root %q, which belongs to kubelet", d.Path, l.config.KubeletRoot)
		}
	}
	if d.Source != plan.SourceCSI {
		return
	}
	if d.Scope == plan.ScopeEveryNode {
		l.refuse(l.where(d, "source"), "%q is not for a pool whose scope is %q", d.Source, d.Scope)
	}
	if n := len(l.config.KubeletRoot) + len(l.config.Provisioner) + len("/plugins_registry/-reg.sock"); n > socketMax {
		l.refuse(l.whole("kubelet_root"), "the path of the CSI driver's socket would have %d bytes, and %d is the most", n, socketMax)
	}
	if p := l.config.Provisioner; !plan.DriverNamePossible(p) {
		l.refuse(l.where(d, "source"), "%q wants a provisioner whose name a CSI driver can have, and %q has a capital letter, a slash, an underscore or more than 63 characters", d.Source, p)
	}
}

// setAliases takes an array of provisioner names. An empty one is none.
func setAliases(c *Config, v any) (err error) {
	c.Aliases, err = provisioners(v, CheckProvisioner)
	return err
}

// provisioners are the names in an array, each once.
func provisioners(v any, check func(string) error) (all []string, err error) {
	all, err = texts(v)
	for i, name := range all {
		switch {
		case err != nil:
		case check(name) != nil:
			err = check(name)
		case slices.Contains(all[:i], name):
			err = fmt.Errorf("%q is listed twice", name)
		}
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// texts are the strings of an array.
func texts(v any) (all []string, err error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("want an array of strings, got %s", typeName(v))
	}
	for _, one := range list {
		s, ok := one.(string)
		if !ok {
			return nil, fmt.Errorf("want an array of strings, got one with %s", typeName(one))
		}
		all = append(all, s)
	}
	return all, nil
}

// checkAliases refuses an alias that is the provisioner's own name: one of the two is a mistake.
func (l *loader) checkAliases() {
	if slices.Contains(l.config.Aliases, l.config.Provisioner) {
		l.refuse(l.whole("aliases"), "%q is the provisioner's own name", l.config.Provisioner)
	}
}
