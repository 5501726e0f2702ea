package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/follow"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

const receiveLong = `Volume receive reads from standard input what volume send wrote, and makes a
volume of it in a pool of this node. The directory appears when all of it is there and every
checksum is right. Then the PersistentVolume is made again for this node, and the claim follows: it
is Lost for some seconds, and then Bound. The old copy stays on its node, until volume drop. A call that was cut
off is simply made again: it begins again, or has only the PersistentVolume left to make. Of a
stream of volume send --live that was cut off it prints how the rest is sent.

What came of a volume that is in use (volume send --live) waits for the stream that goes on from it,
or for volume drop.

With --new-cluster the PersistentVolume is made from what the stream says, where the cluster has
none: in another cluster, or of a backup. It waits for the claim of the recorded namespace and name,
which --claims makes, too.`

func (p *program) receiveCommand() *cobra.Command {
	var o anew
	c := &cobra.Command{
		Use: "receive POOL", Short: "Make a volume of what volume send wrote", Long: receiveLong,
		ValidArgsFunction: p.completePools, Args: args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, pool, err := p.loadPool(args)
			if err == nil {
				err = o.wrong(pool)
			}
			if err != nil {
				return err
			}
			return p.receive(c.Context(), cfg, pool, o, c.InOrStdin())
		},
	}
	o.flags(c.Flags(), "the volume: make its object from what the stream says", "the claim")
	return c
}

func (p *program) receive(ctx context.Context, cfg config.Config, pool config.Pool, o anew,
	from io.Reader) error {
	head, is, rest, err := follow.ReadHead(from)
	if err != nil {
		return err
	}
	client, err := p.asNode(cfg)
	if err != nil {
		return err
	}
	cluster, err := client.ClusterID(ctx)
	if err != nil {
		return err
	}
	looking, cancel := context.WithTimeout(ctx, poolDeadline)
	report := p.probeAll(looking, []config.Pool{pool})[0].Report
	cancel()
	if f, closed := report.Closed(); closed {
		return closedError{pool, f}
	}
	if f, other := otherCluster(pool, report.Mark, cluster); other {
		return closedError{pool, f}
	}
	store := storeOf(pool)
	r := follow.Receiving{
		AnewOptions: follow.AnewOptions{
			Options: follow.Options{Self: daemon.Self(cfg), From: is.Node, Store: store,
				Identity: report.Identity, API: client, Pool: daemon.PlanPool(pool)},
			Claims: o.claims, Classes: o.classes, CreateClaim: client.CreateClaim,
		},
		Head: head, Is: is, Cluster: cluster, New: o.newCluster,
	}
	begun, err := r.Begin(ctx)
	if err != nil {
		return fmt.Errorf("volume %s: %w", printable(is.PV), err)
	}
	if !begun.Whole {
		has := room{report.Free, report.InodesFree, report.Inodes > 0}
		if err := p.fill(ctx, pool, has, store, r, begun, rest); err != nil {
			return err
		}
	}
	if head.Live {
		p.receivedLive(head, is)
		return nil
	}
	if err := r.Finish(ctx); err != nil {
		return fmt.Errorf("volume %s is whole in pool %s, and is not made in the cluster: %w",
			printable(is.PV), pool.Name, err)
	}
	if begun.Record.Moving == "" {
		fmt.Fprintf(p.stdout, "%s was received before\n", printable(is.PV))
		return nil
	}
	fmt.Fprintf(p.stdout, "received %s for claim %s, as it was at %s\n", printable(is.PV),
		printable(is.Namespace+"/"+is.Claim), head.At.Format(time.RFC3339))
	return nil
}

// receivedLive says how what changed since is sent.
func (p *program) receivedLive(head follow.Head, is record.Record) {
	fmt.Fprintf(p.stdout, "received %s as it was while in use at %s; send what changed with: "+
		"hostpath-provisioner volume send -i %s %s\n", printable(is.PV),
		head.At.Format(time.RFC3339), head.Stream, printable(is.PV))
}

// room is what a pool has.
type room struct {
	bytes, inodes uint64
	counts        bool // inodes
}

// takes is why a volume does not fit, nil if it does.
func (r room) takes(pool config.Pool, h follow.Head, is record.Record) error {
	need := max(is.Reserved(), uint64(h.Bytes))
	if h.Base != "" { // it is promised already
		need = 0
	}
	switch {
	case pool.Quota != plan.QuotaOff && h.Bytes > is.Requested:
		return fmt.Errorf("pool %s has quota = %q, and the volume's data, %s, is more than its "+
			"size, %s", pool.Name, pool.Quota, words.Size(uint64(h.Bytes)),
			words.Size(uint64(is.Requested)))
	case need > r.bytes:
		return fmt.Errorf("pool %s has no room: the volume takes %s, and one more can get %s",
			pool.Name, words.Size(need), words.Size(r.bytes))
	case r.counts && h.Entries > r.inodes:
		return fmt.Errorf("pool %s has no room: the volume has %d files, and %d inodes are free",
			pool.Name, h.Entries, r.inodes)
	}
	return nil
}

// fill makes the directory. What an earlier call left is removed before, and what this one leaves
// when it fails, after.
func (p *program) fill(ctx context.Context, pool config.Pool, has room, store *volume.Pool,
	r follow.Receiving, begun follow.Begun, from io.Reader) error {
	pv := begun.Record.PV
	has.bytes += begun.Freed
	if err := has.takes(pool, r.Head, begun.Record); err != nil {
		return err
	}
	if begun.Drop {
		if err := store.DropReceived(ctx, r.Identity, pv); err != nil {
			return err
		}
		if _, err := store.Purge(ctx, r.Identity, pv); err != nil {
			return err
		}
	}
	shown := p.show(totalOf(r.Head))
	made := volume.Spec{
		Record: begun.Record, Label: daemon.LabelOf(pool), Full: true,
		Subvolume: pool.Snapshots == plan.SnapshotsSnapshot,
		Project:   pool.Quota == plan.QuotaProject,
		Receive: func(ctx context.Context, dir int, o treecopy.Options) (treecopy.Copied, error) {
			entries, bytes := r.Most()
			o.Limit, o.Work, o.Live = bytes, shown.work, r.Live
			fits := func() error {
				return p.promises(ctx, pool, store, r.Identity, begun.Record.Reserved())
			}
			if err := fits(); err != nil {
				return treecopy.Copied{}, err
			}
			done, err := p.read(ctx, r, from, dir, entries, o)
			if err == nil { // what the daemon promised before that call is recorded by now
				err = fits()
			}
			return done, err
		},
		Copied: func(c treecopy.Copied) {
			fmt.Fprintf(p.stderr, "received %s: %s\n", printable(pv), sentOf(c))
		},
	}
	if pool.Quota != plan.QuotaOff {
		made.Quota = begun.Record.Requested
	}
	var err error
	shown.during(printable(pv), func() {
		if r.Live || r.Base != "" {
			err = store.ReceiveBase(ctx, r.Identity, made, r.Base, !r.Live)
		} else {
			_, err = store.Create(ctx, r.Identity, made)
		}
	})
	return notFilled(ctx, store, r, err)
}

// notFilled removes what was made when it failed, unless another stream goes on from that.
func notFilled(ctx context.Context, store *volume.Pool, r follow.Receiving, err error) error {
	cut, pv := &volume.CutError{}, r.Is.PV
	switch {
	case err == nil:
	case errors.As(err, &cut):
		return fmt.Errorf("%w; send the rest with: hostpath-provisioner volume send --live -i %s %s",
			err, cut.Base, printable(pv))
	case r.Base == "" && !errors.Is(err, volume.ErrReceiving):
		after := context.WithoutCancel(ctx)
		if store.DropReceived(after, r.Identity, pv) == nil {
			_, _ = store.Purge(after, r.Identity, pv)
		}
	}
	return err
}

// read reads the tree. Where the first stream of a volume in use is cut off, another one goes on
// from what came.
func (p *program) read(ctx context.Context, r follow.Receiving, from io.Reader, dir int,
	entries uint64, o treecopy.Options) (done treecopy.Copied, err error) {
	first := r.Stream
	if r.Base != "" {
		if first, o.Cut, err = follow.WholeOf(r.Base); err != nil {
			return done, err
		}
	}
	done, err = treecopy.Read(ctx, from, dir, entries, o)
	part := r.Base == "" || o.Cut != 0
	if errors.Is(err, treecopy.ErrCutOff) && r.Live && part && done.Last != 0 {
		err = &volume.CutError{Base: follow.Part(first, done.Last), Err: err}
	}
	return done, err
}
