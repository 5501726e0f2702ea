package main

import (
	"context"
	"crypto/rand"
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
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

const sendLong = `Volume send writes a volume to standard output: its record, and each file with its
data, holes, owner, mode, times, ACLs and attributes, with checksums. Sockets and devices are left
out. Its pods have to be stopped. Before the stream ends, the PersistentVolume gets an affinity that
no node meets, so that no pod uses the volume until another node has received it; a stream during
which it was written to does not end. The next call sends it anew, and --abort gives it back to its
pods here: no stream of it is received then.

With --backup the volume stays as it is, and its claim follows no such stream.`

// sending is what the command line asks for.
type sending struct{ abort, backup bool }

func (p *program) sendCommand() *cobra.Command {
	var o sending
	c := &cobra.Command{
		Use: "send VOLUME", Short: "Write a volume to standard output", Long: sendLong,
		Args: args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			out := p.stdout.(*terminal)
			switch {
			case o.abort && o.backup:
				return usageError{errors.New("--abort and --backup exclude each other")}
			case o.abort:
				return p.takeBack(c.Context(), args[0])
			case out.columns > 0:
				return usageError{errors.New("standard output is a terminal")}
			}
			return p.send(c.Context(), args[0], o, out.to)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&o.abort, "abort", false,
		"send nothing: pods use the volume here again, and what was sent of it is not received")
	flags.BoolVar(&o.backup, "backup", false,
		"the volume stays in use here: its claim does not follow the stream")
	return c
}

func (p *program) send(ctx context.Context, pv string, o sending, to io.Writer) error {
	h, err := p.sendable(ctx, pv)
	if err != nil {
		return err
	}
	counted, err := h.store.Write(ctx, h.id, pv, nil, treecopy.Options{}, nil)
	if err != nil {
		return err
	}
	head := follow.Head{Stream: rand.Text(), Cluster: h.cluster,
		At:      p.now().UTC().Truncate(time.Second),
		Entries: entriesOf(counted), Bytes: counted.Bytes, Backup: o.backup}
	if !o.backup {
		if err := h.marked(ctx, head.Stream); err != nil {
			return err
		}
	}
	if h.object != nil {
		head.AccessModes = h.object.Spec.AccessModes
	}
	if head.Record, err = h.record.Encode(); err != nil {
		return err
	}
	e, err := follow.WriteHead(to, head)
	if err != nil {
		return err
	}
	shown := p.show(totalOf(head))
	var done treecopy.Copied
	shown.during(printable(pv), func() {
		done, err = h.store.Write(ctx, h.id, pv, e, treecopy.Options{Work: shown.work},
			func() error { return h.last(ctx, head) })
	})
	if err == nil {
		err = e.End()
	}
	if err != nil && !o.backup { // nothing can have received it
		err = errors.Join(err, h.back(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "sent %s: %s\n", printable(pv), sentOf(done))
	return nil
}

// sendable is a volume that no pod uses. What an earlier call left half done is undone.
func (p *program) sendable(ctx context.Context, pv string) (h held, err error) {
	h, err = p.heldVolume(ctx, pv, true)
	if err == nil && h.record.Moving != "" && h.record.Sent != "" {
		if err = h.back(ctx); err == nil {
			h, err = p.heldVolume(ctx, pv, true)
		}
	}
	if err == nil {
		err = h.idle(ctx)
	}
	return h, err
}

// last is done between a stream's data and its end: from then on no pod uses the volume, until it
// is received or taken back.
func (h held) last(ctx context.Context, head follow.Head) error {
	if h.object != nil && h.object.Spec.ClaimRef != nil && !head.Backup {
		if err := follow.Park(ctx, h.options(), h.record.PV, head.Stream); err != nil {
			return err
		}
	}
	return h.idle(ctx) // a pod that came since may have written
}

// back is follow.TakeBack.
func (h held) back(ctx context.Context) error {
	if h.object == nil && h.record.Moving == "" {
		return nil // there is none, or another node is about to make it
	}
	return follow.TakeBack(ctx, h.options(), h.record.PV)
}

func (h held) options() follow.Options {
	return follow.Options{Self: h.self, From: h.self.Node, Store: h.store, Identity: h.id,
		API: h.client, Pool: planPool(h.pool)}
}

func planPool(p config.Pool) plan.Pool {
	return plan.Pool{Name: p.Name, Path: p.Path, Scope: p.Scope, Source: p.Source}
}

// takeBack is send --abort.
func (p *program) takeBack(ctx context.Context, pv string) error {
	h, err := p.heldVolume(ctx, pv, true)
	switch {
	case err != nil:
		return err
	case h.record.Sent == "":
		return fmt.Errorf("volume %s was not sent", printable(pv))
	case h.object != nil && !h.here(p.node):
		return fmt.Errorf("volume %s is of node %q and %s: it was received", printable(pv),
			h.object.Labels[plan.NodeLabel], plan.PathOf(h.object))
	case h.object == nil && h.record.Moving == "":
		return fmt.Errorf("volume %s has no PersistentVolume: it is being received", printable(pv))
	}
	if err = h.back(ctx); err == nil {
		fmt.Fprintf(p.stdout, "%s is node %s's again\n", printable(pv), p.node)
	}
	return err
}

// entriesOf is how many entries are in the volume's own directory and below.
func entriesOf(c treecopy.Copied) uint64 {
	return uint64(c.Directories - 1 + c.Files + c.HardLinks + c.Symlinks + c.FIFOs)
}

func totalOf(h follow.Head) progress.Total {
	return progress.Total{Files: h.Entries, Bytes: uint64(h.Bytes)}
}

// sentOf is what a stream had, and had not.
func sentOf(c treecopy.Copied) string {
	text := words.Count(c.Files, "file") + ", " + words.Size(uint64(c.Bytes))
	if n := c.Sockets + c.Devices; n > 0 {
		text += fmt.Sprintf("; %d sockets and devices left out", n)
	}
	if c.Mounts > 0 {
		text += fmt.Sprintf("; %s not entered", words.Count(c.Mounts, "mount"))
	}
	if c.Lost > 0 {
		text += fmt.Sprintf("; %d owners, modes and attributes not kept", c.Lost)
	}
	return text
}

// idle is why a volume cannot be sent now, nil if it can.
func (h held) idle(ctx context.Context) error {
	node := h.self.Node
	switch v := h.object; {
	case h.record.Place != record.InPool:
		return fmt.Errorf("volume %s is %s", h.record.PV, h.record.Place.Describe())
	case h.record.Moving != "" || h.record.Unpublished:
		return fmt.Errorf("volume %s is being made", h.record.PV)
	case v == nil:
		return nil
	case !h.here(node):
		return fmt.Errorf("PersistentVolume %s is of node %q and %s: it was moved",
			v.Name, v.Labels[plan.NodeLabel], plan.PathOf(v))
	case v.Spec.ClaimRef == nil:
		return nil
	}
	users, err := follow.Users(ctx, h.client, node)
	ref := h.object.Spec.ClaimRef
	if user := users[ref.Namespace+"/"+ref.Name]; err == nil && user != "" {
		err = fmt.Errorf("pod %s uses volume %s: stop it first", user, h.record.PV)
	}
	return err
}

// marked notes in the record and on the object that there is a new stream: no other is received.
func (h held) marked(ctx context.Context, stream string) error {
	err := h.store.Sent(ctx, h.id, h.record.PV, stream)
	if err != nil || h.object == nil {
		return err
	}
	_, err = h.client.PatchVolume(ctx, h.object, plan.MetadataPatch{
		Labels: map[string]*string{}, Annotations: map[string]*string{plan.SentAnnotation: &stream},
		Finalizers: h.object.Finalizers})
	return err
}

// receiving is what the command line asks for.
type receiving struct {
	newCluster, claims bool
	classes            map[string]string
}

const receiveLong = `Volume receive reads from standard input what volume send wrote, and makes a
volume of it in a pool of this node. The directory appears when all of it is there and every
checksum is right. Then the PersistentVolume is made again for this node, and the claim follows: it is Lost for
some seconds, and then Bound. The old copy stays on its node, until volume drop. A call that was cut
off is simply made again: it begins anew, or has only the PersistentVolume left to make.

With --new-cluster the PersistentVolume is made from what the stream says, where the cluster has
none: in another cluster, or of a backup. It waits for the claim of the recorded namespace and name,
which --claims makes, too.`

func (p *program) receiveCommand() *cobra.Command {
	var o receiving
	c := &cobra.Command{
		Use: "receive POOL", Short: "Make a volume of what volume send wrote", Long: receiveLong,
		ValidArgsFunction: p.completePools, Args: args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, pool, err := p.loadPool(args)
			switch {
			case err != nil:
				return err
			case !o.newCluster && (o.claims || len(o.classes) > 0):
				return usageError{errors.New("--claims and --class go with --new-cluster")}
			case pool.Scope != config.ScopeNode:
				return usageError{fmt.Errorf("pool %s has scope %s: its volumes are not one node's",
					pool.Name, pool.Scope)}
			}
			return p.receive(c.Context(), cfg, pool, o, c.InOrStdin())
		},
	}
	flags := c.Flags()
	flags.BoolVar(&o.newCluster, "new-cluster", false,
		"the cluster knows nothing of the volume: make its object from what the stream says")
	flags.BoolVar(&o.claims, "claims", false, "with --new-cluster: make the claim, too")
	flags.StringToStringVar(&o.classes, "class", nil,
		"with --new-cluster: a class has another name here, `OLD=NEW`; may be repeated")
	return c
}

func (p *program) receive(ctx context.Context, cfg config.Config, pool config.Pool, o receiving,
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
	store := p.storeOf(pool)
	r := follow.Receiving{
		AnewOptions: follow.AnewOptions{
			Options: follow.Options{Self: daemon.Self(cfg), From: is.Node, Store: store,
				Identity: report.Identity, API: client, Pool: planPool(pool)},
			Claims: o.claims, Classes: o.classes, CreateClaim: client.CreateClaim,
		},
		Head: head, Is: is, Cluster: cluster, New: o.newCluster,
	}
	begun, err := r.Begin(ctx)
	if err != nil {
		return fmt.Errorf("volume %s: %w", printable(is.PV), err)
	}
	if !begun.Whole {
		room := room{report.Free, report.InodesFree, report.Inodes > 0}
		if err := room.takes(pool, head, begun.Record); err != nil {
			return err
		}
		if err := p.fill(ctx, pool, store, r, begun, rest); err != nil {
			return err
		}
	}
	if err := r.Finish(ctx); err != nil {
		return fmt.Errorf("volume %s is whole in pool %s, and its PersistentVolume is not made: %w",
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

// room is what a pool has.
type room struct {
	bytes, inodes uint64
	counts        bool // inodes
}

// takes is why a volume does not fit, nil if it does.
func (r room) takes(pool config.Pool, h follow.Head, is record.Record) error {
	need := max(is.Reserved(), uint64(h.Bytes))
	switch {
	case pool.Quota != config.QuotaOff && h.Bytes > is.Requested:
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
func (p *program) fill(ctx context.Context, pool config.Pool, store *volume.Pool,
	r follow.Receiving, begun follow.Begun, from io.Reader) error {
	pv := begun.Record.PV
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
		Subvolume: pool.Snapshots == config.SnapshotsSnapshot,
		Project:   pool.Quota == config.QuotaProject,
		Receive: func(ctx context.Context, dir int, o treecopy.Options) (treecopy.Copied, error) {
			o.Limit, o.Work = r.Bytes, shown.work
			return treecopy.Read(ctx, from, dir, r.Entries, o)
		},
		Copied: func(c treecopy.Copied) {
			fmt.Fprintf(p.stderr, "received %s: %s\n", printable(pv), sentOf(c))
		},
	}
	if pool.Quota != config.QuotaOff {
		made.Quota = begun.Record.Requested
	}
	var err error
	shown.during(printable(pv), func() { _, err = store.Create(ctx, r.Identity, made) })
	if err != nil && !errors.Is(err, volume.ErrReceiving) {
		after := context.WithoutCancel(ctx)
		if store.DropReceived(after, r.Identity, pv) == nil {
			_, _ = store.Purge(after, r.Identity, pv)
		}
	}
	return err
}
