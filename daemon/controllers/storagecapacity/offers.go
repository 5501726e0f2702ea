package storagecapacity

import (
	"cmp"
	"context"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// offers returns what the nodes publish, by class: nothing if the scheduler does not compare it.
func (p *Publisher) offers(ctx context.Context) (map[string]*plan.Offers, error) {
	driver, err := p.API.Driver(ctx)
	if err != nil || driver == nil || !driver.Ours || !driver.Enabled {
		return nil, err
	}
	all, err := p.API.Capacities(ctx, "")
	if err != nil {
		return nil, err
	}
	classes := map[string]*plan.Offers{}
	for _, o := range all {
		offers := classes[o.Class]
		if offers == nil {
			offers = &plan.Offers{}
			classes[o.Class] = offers
		}
		if o.Node == "" || o.Bytes < 0 { // of the nodes that publish nothing, or of one that will mend it
			offers.Silent += max(1, len(o.Hostnames))
			continue
		}
		offers.Add(cmp.Or(o.Owner.Name, o.Node), o.Closed, uint64(o.Bytes))
	}
	return classes, nil
}
