package storagecapacity

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// Group are the Publishers of a daemon: of its own provisioner, and of each CSI driver in whose
// place it is. A class is of one of them.
type Group []*Publisher

// Run publishes for all until ctx ends.
func (g Group) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range g {
		all.Go(func() { p.Run(ctx) })
	}
	all.Wait()
}

// Changed is Publisher.Changed of each.
func (g Group) Changed() { g.each((*Publisher).Changed) }

// Retry is Publisher.Retry of each.
func (g Group) Retry() { g.each((*Publisher).Retry) }

// Refused is Publisher.Refused of each.
func (g Group) Refused() { g.each((*Publisher).Refused) }

func (g Group) each(do func(*Publisher)) {
	for _, p := range g {
		do(p)
	}
}

// Compared is Publisher.Compared for the classes of one provisioner.
func (g Group) Compared(provisioner string) int {
	i := slices.IndexFunc(g, func(p *Publisher) bool { return p.Provisioner == provisioner })
	if i < 0 {
		return 0
	}
	return g[i].Compared()
}

// RefusedFor returns why the API server refuses what this node publishes for a class, "" if it does
// not.
func (g Group) RefusedFor(class string) (why string) {
	for _, p := range g {
		if why = p.RefusedFor(class); why != "" {
			break
		}
	}
	return why
}

// Offers returns what the nodes publish, by class, of the provisioners whose classes the scheduler
// compares. No budget pays for its requests.
func (g Group) Offers(ctx context.Context) (map[string]*plan.Offers, error) {
	all := map[string]*plan.Offers{}
	for _, p := range g {
		offers, err := p.offers(ctx)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, offers)
	}
	return all, nil
}

// Withdraw is Publisher.Withdraw of each. One that fails leaves the next ones as they are.
func (g Group) Withdraw(ctx context.Context, stays bool) error {
	for _, p := range g {
		if err := p.Withdraw(ctx, stays); err != nil {
			return err
		}
	}
	return nil
}
