package storagecapacity

import (
	"context"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// terms say what a review goes by.
type terms struct {
	classes []string // nil: those for which something is published
	leaves  bool     // this node is about to publish nothing
	stays   bool     // it can be chosen all the same
}

// wonTries is how often a node that leaves tries to write the time: it may not go before.
const wonTries = 5

// reviewGap is how long after another daemon's review none is needed.
const reviewGap = 15 * time.Second

// review has the scheduler compare capacities if any node publishes them, and keeps the objects for
// the nodes that do not. Of several daemons that try at once one does it: the one that writes the
// time on the CSIDriver.
//
//	time written     another daemon begins no review for some seconds, also if this one dies
//	others created   one list of nodes more than is needed: nodes can be chosen that need not be
//	enabled          what the scheduler compares is there
//	others deleted   the lists of earlier reviews are gone
func (p *Publisher) review(ctx context.Context, d Driver, t terms) (done bool, err error) {
	now := time.Now()
	if !t.leaves && now.Sub(d.Reviewed).Abs() < reviewGap {
		return false, nil
	}
	d.Reviewed = now
	if won, err := p.paid().SetDriver(ctx, d); err != nil || !won {
		return false, err
	}
	all, err := p.paid().Capacities(ctx, "")
	if err != nil {
		return false, err
	}
	var hostnames map[string]string
	if !d.Strict {
		if hostnames, err = p.paid().Hostnames(ctx); err != nil {
			return false, err
		}
	}
	if t.classes == nil {
		t.classes = classesOf(all)
	}
	publishing, others := p.decide(t, Owner{p.Provisioner, d.UID}, all, hostnames)
	if err := p.createOthers(ctx, all, others); err != nil {
		return false, err
	}
	if err := p.setEnabled(ctx, publishing); err != nil {
		return false, err
	}
	return true, p.deleteOthers(ctx, all, others)
}

// classesOf are the classes of the objects.
func classesOf(all []Object) (classes []string) {
	for _, object := range all {
		classes = append(classes, object.Class)
	}
	slices.Sort(classes)
	return slices.Compact(classes)
}

func (p *Publisher) createOthers(ctx context.Context, all, others []Object) error {
	for _, object := range others {
		if slices.ContainsFunc(all, func(there Object) bool { return there.Name == object.Name }) {
			continue
		}
		if err := p.paid().CreateCapacity(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// decide returns how many nodes publish something, and the objects for those that publish nothing.
func (p *Publisher) decide(t terms, owner Owner, all []Object, hostnames map[string]string) (
	publishing int, others []Object) {
	publishes := map[string]bool{}
	for _, object := range all {
		if object.Node != "" && !(t.leaves && object.Node == p.Node) {
			publishes[object.Node] = true
		}
	}
	var silent []string
	for node, hostname := range hostnames {
		label := plan.NodeLabelValue(node)
		if !publishes[label] && (!t.leaves || t.stays || label != p.Node) {
			silent = append(silent, hostname)
		}
	}
	if len(publishes) == 0 || len(silent) == 0 {
		return len(publishes), nil
	}
	for _, class := range t.classes {
		others = append(others, othersObject(p.Provisioner, class, owner, silent))
	}
	return len(publishes), others
}

// setEnabled has the scheduler compare if any node publishes, and writes how many do, unless it is
// so. It was this daemon that wrote the driver last.
func (p *Publisher) setEnabled(ctx context.Context, publishing int) error {
	for range 3 {
		d, err := p.paid().Driver(ctx)
		if err != nil || d == nil || d.Enabled == (publishing > 0) && d.Publishing == publishing {
			return err
		}
		d.Enabled, d.Publishing = publishing > 0, publishing
		if won, err := p.paid().SetDriver(ctx, *d); err != nil || won {
			return err
		}
	}
	return nil // the next review does it
}

func (p *Publisher) deleteOthers(ctx context.Context, all, wanted []Object) error {
	for _, object := range all {
		if object.Node != "" || slices.ContainsFunc(wanted, func(kept Object) bool { return kept.Name == object.Name }) {
			continue
		}
		if err := p.paid().DeleteCapacity(ctx, object.Name); err != nil {
			return err
		}
	}
	return nil
}
