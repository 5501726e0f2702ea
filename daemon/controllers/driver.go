package controllers

import (
	"context"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// How long what was read of the CSIDriver counts. Nothing in it that matters can be changed, but
// the object can be deleted and made anew.
const (
	driverGood    = time.Minute
	driverLacking = 5 * time.Second
)

// driver is what was read of the daemon's CSIDriver last.
type driver struct {
	mu    sync.Mutex
	why   string
	until time.Time
}

// lacks returns why pods would not start on volumes with source csi, "" if they would. Claims that
// come meanwhile wait for the one request.
func (d *driver) lacks(ctx context.Context, api Reader, name string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Now().Before(d.until) {
		return d.why, nil
	}
	object, err := api.GetDriver(ctx, name)
	if err != nil {
		return "", err
	}
	d.why = plan.LacksDriver(name, object)
	kept := driverGood
	if d.why != "" {
		kept = driverLacking
	}
	d.until = time.Now().Add(kept)
	return d.why, nil
}
