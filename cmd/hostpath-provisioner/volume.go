package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

const volumeLong = `Volume send writes a volume to standard output, and volume receive makes a
volume of what it reads: on another node, whose claim then follows, or at another time, from a file. Volume
drop removes what stayed behind.`

func (p *program) volumeCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "volume", Short: "Send a volume to another node, receive one, or drop one",
		Long: volumeLong, Args: args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("volume: send, receive or drop is needed")}
		},
	}
	c.AddCommand(p.sendCommand(), p.receiveCommand(), &cobra.Command{
		Use: "drop VOLUME", Short: "Remove the data of a volume that has no PersistentVolume here",
		Long: dropLong, Args: args(1, 1),
		RunE: func(c *cobra.Command, args []string) error { return p.drop(c.Context(), args[0]) },
	})
	return c
}

// held is a volume of one of this node's pools, and what the API has of it.
type held struct {
	pool    config.Pool
	self    plan.Self
	store   *volume.Pool
	id      mounts.Identity
	record  record.Record
	client  *kube.Client
	cluster string
	object  *corev1.PersistentVolume // nil: there is none
}

// heldVolume looks for a volume in the pools whose volumes are one node's. Of several copies it is
// one that has the PersistentVolume, or has not.
func (p *program) heldVolume(ctx context.Context, pv string, published bool) (best held,
	err error) {
	cfg, err := p.load()
	if err != nil {
		return best, err
	}
	closed, h := error(nil), held{}
	for _, pool := range cfg.Pools {
		if pool.Scope != plan.ScopeNode {
			continue
		}
		report, err := p.opened(ctx, pool)
		if err != nil {
			closed = errors.Join(closed, err)
			continue
		}
		h.pool, h.id, h.store = pool, report.Identity, storeOf(pool)
		h.self = daemon.Self(cfg)
		h.record, err = h.store.Lookup(ctx, h.id, pv)
		if errors.Is(err, volume.ErrNotRecorded) {
			continue
		}
		if err == nil && h.record.Kind != record.Volume {
			err = usageError{fmt.Errorf("%s is no PersistentVolume's", printable(pv))}
		}
		if err != nil {
			return h, err
		}
		h.client, h.cluster, err = p.ofCluster(ctx, cfg, pool, report.Mark)
		if err != nil {
			return h, err
		}
		if h.object, err = h.client.GetVolume(ctx, pv); err != nil {
			return h, err
		}
		if best.store == nil || h.here(p.node) == published {
			best = h
		}
	}
	switch {
	case best.store != nil:
		return best, nil
	case closed != nil:
		return best, closed
	}
	return best, noVolumeError{pv}
}

// here reports whether the object is of this pool's directory.
func (h held) here(node string) bool {
	v := h.object
	return v != nil && v.Labels[plan.NodeLabel] == plan.NodeLabelValue(node) &&
		plan.PathOf(v) == h.path()
}

func (h held) path() string { return h.pool.Path + "/" + h.record.Directory }

const dropLong = `Volume drop removes the data of a volume that has no PersistentVolume here: one
that was sent, and has it on another node by now; one that is retained; and one that is orphaned. It
is refused as long as a PersistentVolume or a claim needs the data. What was cut off is finished by
the next call.`

func (p *program) drop(ctx context.Context, pv string) error {
	h, err := p.heldVolume(ctx, pv, false)
	if err != nil {
		return err
	}
	if err := h.needed(ctx, p.node); err != nil {
		return err
	}
	switch h.record.Place {
	case record.InPool, record.InTrash:
		if err = h.store.Trash(ctx, h.id, pv); err == nil {
			err = h.store.Discard(ctx, h.id, pv)
		}
	case record.InStaging:
		err = h.store.DropReceived(ctx, h.id, pv)
	case record.Emptying, record.Nowhere:
	default:
		err = fmt.Errorf("volume %s is %s", pv, h.record.Place.Describe())
	}
	if err != nil {
		return err
	}
	p.show(progress.Total{}).during(printable(pv), func() {
		_, err = h.store.Purge(ctx, h.id, pv)
	})
	if err == nil {
		fmt.Fprintf(p.stdout, "dropped %s of pool %s\n", printable(pv), h.pool.Name)
	}
	return err
}

// needed is why the data of a volume cannot be dropped, nil if it can.
func (h held) needed(ctx context.Context, node string) error {
	r, away := h.record, h.object != nil && h.record.Sent != "" && !h.here(node)
	received := r.Origin.Kind == record.Stream && r.Moving != "" && h.object != nil && !h.here(node)
	switch {
	case r.Partial != "", received && !plan.OfNoNode(h.object): // which was taken back
		return nil
	case r.Place == record.Emptying, r.Place == record.Nowhere, away:
		return nil
	case h.object != nil:
		return fmt.Errorf("volume %s has a PersistentVolume: delete its claim instead", r.PV)
	case r.Moving != "" || r.Unpublished || r.Sent != "" && !r.Retained:
		return fmt.Errorf("volume %s may be about to get its PersistentVolume", r.PV)
	}
	claim, err := h.client.GetClaim(ctx, r.Namespace, r.Claim)
	if err != nil {
		return err
	}
	if claim != nil && (claim.Spec.VolumeName == r.PV || string(claim.UID) == r.ClaimUID) {
		return fmt.Errorf("claim %s/%s waits for volume %s", r.Namespace, r.Claim, r.PV)
	}
	other := ""
	err = h.client.EachVolume(ctx, func(v *corev1.PersistentVolume) {
		on := v.Labels[plan.NodeLabel]
		if plan.PathOf(v) == h.path() && (on == "" || on == plan.NodeLabelValue(node)) {
			other = v.Name
		}
	})
	if err == nil && other != "" {
		err = fmt.Errorf("PersistentVolume %s has the directory of volume %s", other, r.PV)
	}
	return err
}
