package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/follow"
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

With --live its pods go on. What was received is no volume yet, and receive prints the --incremental
that sends what changed since, with --live once more, or without it when the pods are stopped.

With --backup the volume stays as it is, and its claim follows no such stream.`

// sending is what the command line asks for.
type sending struct {
	abort, backup, live bool
	base                string
}

// check is what excludes each other.
func (o sending) check() error {
	switch {
	case o.backup && o.live, o.abort && (o.backup || o.live || o.base != ""):
		return errors.New("--abort, --backup and --live exclude each other")
	case o.backup && o.base != "":
		return errors.New("--backup and --incremental exclude each other")
	}
	return nil
}

func (o sending) options() (to treecopy.Options, err error) {
	to.Live = o.live
	if o.base == "" {
		return to, nil
	}
	var stream string
	if stream, to.Cut, err = follow.WholeOf(o.base); err == nil {
		to.Since, err = follow.SinceOf(stream)
	}
	return to, err
}

func (p *program) sendCommand() *cobra.Command {
	var o sending
	c := &cobra.Command{
		Use: "send VOLUME", Short: "Write a volume to standard output", Long: sendLong,
		Args: args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			out := p.stdout.(*terminal)
			if err := o.check(); err != nil {
				return usageError{err}
			}
			switch {
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
	flags.BoolVar(&o.live, "live", false, "pods go on: a further stream brings what they change")
	flags.StringVarP(&o.base, "incremental", "i", "",
		"send what changed since the `STREAM` that was received")
	return c
}

func (p *program) send(ctx context.Context, pv string, o sending, to io.Writer) error {
	options, err := o.options()
	if errors.Is(err, follow.ErrBase) {
		return err
	}
	if err != nil {
		return usageError{err}
	}
	h, err := p.sendable(ctx, pv, o.live)
	if err != nil {
		return err
	}
	counted, err := h.store.Write(ctx, h.id, pv, volume.Sending{Options: options})
	if err != nil {
		return err
	}
	head := follow.Head{Cluster: h.cluster, At: p.now().UTC().Truncate(time.Second),
		Backup: o.backup, Live: o.live, Base: o.base,
		Entries: entriesOf(counted), Bytes: counted.Bytes}
	shown := p.show(totalOf(head))
	options.Work = shown.work
	var done treecopy.Copied
	var e *treecopy.Encoder
	s := volume.Sending{Options: options, Begin: func(since unix.Timespec) (io.Writer, error) {
		if head.Stream, err = follow.NewStream(since); err != nil {
			return nil, err
		}
		e, err = h.begins(ctx, &head, to)
		return e, err
	}}
	if !o.live {
		s.Last = func() error { return h.last(ctx, head) }
	}
	shown.during(printable(pv), func() { done, err = h.store.Write(ctx, h.id, pv, s) })
	if err == nil {
		err = e.End()
	}
	if err != nil && !o.backup && !o.live { // nothing can have received it
		err = errors.Join(err, h.back(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "sent %s: %s\n", printable(pv), sentOf(done))
	return nil
}

// begins marks a volume, unless it stays in use, and writes the stream's head.
func (h held) begins(ctx context.Context, head *follow.Head, to io.Writer) (*treecopy.Encoder,
	error) {
	var err error
	if !head.Backup && !head.Live {
		if err := h.marked(ctx, head.Stream); err != nil {
			return nil, err
		}
	}
	if h.object != nil {
		head.AccessModes = h.object.Spec.AccessModes
	}
	if head.Record, err = h.record.Encode(); err != nil {
		return nil, err
	}
	return follow.WriteHead(to, *head)
}

// sendable is a volume that no pod uses, unless it is sent live. What an earlier call left half done
// is undone.
func (p *program) sendable(ctx context.Context, pv string, live bool) (h held, err error) {
	h, err = p.heldVolume(ctx, pv, true)
	if err == nil && h.record.Moving != "" && h.record.Sent != "" {
		if err = h.back(ctx); err == nil {
			h, err = p.heldVolume(ctx, pv, true)
		}
	}
	if err == nil {
		err = h.ready(live)
	}
	if err == nil && !live {
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
		API: h.client, Pool: daemon.PlanPool(h.pool)}
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

// ready is why a volume cannot be sent, nil if it can.
func (h held) ready(live bool) error {
	node := h.self.Node
	switch v := h.object; {
	case h.record.Place != record.InPool:
		return fmt.Errorf("volume %s is %s", h.record.PV, h.record.Place.Describe())
	case h.record.Moving != "" || h.record.Unpublished:
		return fmt.Errorf("volume %s is being made", h.record.PV)
	case v == nil && live:
		return fmt.Errorf("volume %s has no PersistentVolume, and is in no use", h.record.PV)
	case v != nil && !h.here(node):
		return fmt.Errorf("PersistentVolume %s is of node %q and %s: it was moved",
			v.Name, v.Labels[plan.NodeLabel], plan.PathOf(v))
	}
	return nil
}

// idle is an error if a pod uses the volume.
func (h held) idle(ctx context.Context) error {
	if h.object == nil || h.object.Spec.ClaimRef == nil {
		return nil
	}
	users, err := follow.Users(ctx, h.client, h.self.Node)
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
