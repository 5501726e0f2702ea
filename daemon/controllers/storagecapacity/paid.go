package storagecapacity

import (
	"context"
	"time"
)

// paid is an API whose requests are paid from a budget.
type paid struct {
	api    API
	budget *budget
}

func (p paid) spend() API {
	p.budget.spend(time.Now())
	return p.api
}

// Capacities is part of API.
func (p paid) Capacities(ctx context.Context, node string) ([]Object, error) {
	return p.spend().Capacities(ctx, node)
}

// CreateCapacity is part of API.
func (p paid) CreateCapacity(ctx context.Context, o Object) error {
	return p.spend().CreateCapacity(ctx, o)
}

// UpdateCapacity is part of API.
func (p paid) UpdateCapacity(ctx context.Context, o Object) (bool, error) {
	return p.spend().UpdateCapacity(ctx, o)
}

// DeleteCapacity is part of API.
func (p paid) DeleteCapacity(ctx context.Context, name string) error {
	return p.spend().DeleteCapacity(ctx, name)
}

// Driver is part of API.
func (p paid) Driver(ctx context.Context) (*Driver, error) { return p.spend().Driver(ctx) }

// SetDriver is part of API.
func (p paid) SetDriver(ctx context.Context, d Driver) (bool, error) {
	return p.spend().SetDriver(ctx, d)
}

// Hostnames is part of API.
func (p paid) Hostnames(ctx context.Context) (map[string]string, error) {
	return p.spend().Hostnames(ctx)
}
