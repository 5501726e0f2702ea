package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/unpublish"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// streamMagic is the first line of a stream, with its version.
const streamMagic = "hostpath-provisioner volume 1\n"

// Head is what a stream says of its volume, before the tree.
type Head struct {
	Stream      string                              `json:"stream"`  // its UID
	Cluster     string                              `json:"cluster"` // that of the volume
	At          time.Time                           `json:"at"`
	Record      json.RawMessage                     `json:"record"` // of the volume, on its node
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	Backup      bool                                `json:"backup,omitempty"`
	Live        bool                                `json:"live,omitempty"` // of a volume in use
	Base        string                              `json:"base,omitempty"` // from which it goes on
	Entries     uint64                              `json:"entries"`        // the most that follow
	Bytes       int64                               `json:"bytes"`          // of data, the same
}

// WriteHead begins a stream; what follows, with the stream's end, is written to what it returns.
func WriteHead(w io.Writer, h Head) (*treecopy.Encoder, error) {
	if _, err := io.WriteString(w, streamMagic); err != nil {
		return nil, err
	}
	e := treecopy.NewEncoder(w)
	return e, treecopy.WriteItem(e, h)
}

// ReadHead reads the head of a stream that anybody may have written, and the record in it as it is
// on another node. What follows is read from what it returns.
func ReadHead(r io.Reader) (h Head, rec record.Record, rest *treecopy.Decoder, err error) {
	magic := make([]byte, len(streamMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != streamMagic {
		return h, rec, nil, errors.Join(errNoStream, err)
	}
	rest = treecopy.NewDecoder(r)
	if err := treecopy.ReadItem(rest, 2*record.MaxSize, &h); err != nil {
		return h, rec, nil, err
	}
	if rec, err = record.Decode(h.Record, ""); err != nil {
		return h, rec, nil, fmt.Errorf("%w: %w", treecopy.ErrStream, err)
	}
	if h.Stream == "" || h.Bytes < 0 || rec.Kind != record.Volume || rec.Requested <= 0 {
		return h, rec, nil, fmt.Errorf("%w: it is of no volume", treecopy.ErrStream)
	}
	return h, rec, rest, nil
}

var errNoStream = errors.New("it does not begin as a volume's stream does")

// Receiving is one volume that comes in a stream. Options.From is the node that it was on.
type Receiving struct {
	AnewOptions
	Head
	Is      record.Record // as the head has it
	Cluster string        // that of the API server
	New     bool          // the cluster knows nothing of the volume
}

// Begun is how a volume that comes in a stream stands.
type Begun struct {
	Record record.Record // with which it is to be made
	Whole  bool          // its data is here, and only its object is left to be made
	Drop   bool          // what an earlier call left must be discarded first
	Freed  uint64        // bytes that are promised to that
}

// Begin decides whether a volume is received, before its data is read: the record has the object
// that is to be made from then on.
func (o Receiving) Begin(ctx context.Context) (b Begun, err error) {
	pv := o.Is.PV
	here, unreadable, err := volume.Found(o.Store.Lookup(ctx, o.Identity, pv))
	if err != nil || unreadable != "" {
		return b, errors.Join(err, asError(unreadable))
	}
	v, err := o.API.GetVolume(ctx, pv)
	if err != nil {
		return b, err
	}
	var before *Intent
	if here != nil {
		same := here.Origin.Kind == record.Stream && here.Origin.UID == o.Stream
		if here.Place == record.InPool && same {
			return Begun{Record: *here, Whole: true}, nil
		}
		if here.Origin.Kind != record.Stream || here.Moving == "" {
			return b, fmt.Errorf("the pool has a volume of this name, which is %s",
				here.Place.Describe())
		}
		if before, err = decode(here.Moving); err != nil {
			return b, err
		}
		replaced := before.Begun &&
			(v == nil || v.Labels[plan.NodeLabel] == plan.NodeLabelValue(o.Node))
		if here.Place == record.InPool && replaced {
			return Begun{Record: *here, Whole: true}, nil
		}
		if b.Drop = o.Base == ""; b.Drop {
			b.Freed = here.Reserved()
		}
	}
	if err := o.basedOn(here); err != nil {
		return b, err
	}
	b.Record = o.record()
	intent, err := o.intends(ctx, v, b.Record)
	if err != nil {
		return b, err
	}
	if before != nil && before.UID == intent.UID && !before.Deleting {
		intent.Deleting = false // it was an earlier call that deleted the object
	}
	if err := o.API.CheckVolume(ctx, intent.Object); err != nil {
		return b, err
	}
	b.Record.Moving, err = intent.encode()
	return b, err
}

// basedOn is an error if the stream goes on from another one than the pool has.
func (o Receiving) basedOn(here *record.Record) error {
	switch {
	case o.Live && o.New:
		return errors.New("a stream that was sent with --live is no backup: send one with --backup")
	case o.Base == "":
		return nil
	case here == nil || here.Partial == "" || here.Origin.UID == "":
		return fmt.Errorf("%w: it was not received here", ErrBase)
	case here.Origin.UID != o.Base:
		return fmt.Errorf("the stream goes on from another one than was received here, which was "+
			"%s", here.Origin.UID)
	}
	return nil
}

// record is the volume's on this node: what another pool's quota and adoption were goes.
func (o Receiving) record() record.Record {
	is := o.Is
	return record.Record{
		PV: is.PV, Namespace: is.Namespace, Claim: is.Claim, ClaimUID: is.ClaimUID, Class: is.Class,
		Provisioner: is.Provisioner, Node: o.Node, Scope: plan.ScopeNode, Source: is.Source,
		Reclaim: is.Reclaim, OnDelete: is.OnDelete, Directory: is.Directory,
		Requested: is.Requested, Promised: is.Promised, Unheld: is.Unheld,
		Origin: record.Origin{Kind: record.Stream, Name: is.PV, UID: o.Stream},
	}
}

// intends is what is to be made: an object in the place of the one that is there, or one from the
// record.
func (o Receiving) intends(ctx context.Context, v *corev1.PersistentVolume,
	r record.Record) (i Intent, err error) {
	hostname, err := o.hostnameOf(ctx)
	if err != nil {
		return i, err
	}
	claim, err := o.API.GetClaim(ctx, r.Namespace, r.Claim)
	if err != nil {
		return i, err
	}
	if v == nil {
		return o.intendsNew(r, claim, hostname)
	}
	f := Facts{Self: o.Self, From: o.From, Pool: o.Pool, Volume: v, Record: &r, Hostname: hostname}
	ref := v.Spec.ClaimRef
	switch {
	case o.Head.Cluster != o.Cluster:
		return i, errors.New("the cluster has a volume of this name, and the stream is of " +
			"another cluster's")
	case o.Backup:
		return i, errors.New("the stream is a backup, and the cluster has the volume")
	case !o.Live && v.Annotations[plan.SentAnnotation] != o.Stream:
		return i, fmt.Errorf("the volume was sent again since the stream was written, %s, or moved",
			o.At.Format(time.RFC3339))
	case ref == nil:
		return i, errors.New("its object is for no claim")
	case o.From == o.Node:
		return i, errors.New("the volume is this node's already")
	}
	if now, err := o.API.GetClaim(ctx, ref.Namespace, ref.Name); err != nil ||
		now != nil && now.UID != ref.UID {
		return i, errors.Join(err, fmt.Errorf("claim %s/%s is another one than the volume's",
			ref.Namespace, ref.Name))
	}
	users, err := Users(ctx, o.API, o.From)
	if err != nil {
		return i, err
	}
	if !o.Live {
		f.User = users[ref.Namespace+"/"+ref.Name]
	}
	if verdict := For(f); verdict.Action != Move {
		return i, errors.New(saying(verdict, "its object is this node's already"))
	}
	bound, err := unpublish.Claim(ctx, o.API, ref)
	return Intent{UID: v.UID, Deleting: v.DeletionTimestamp != nil, Claimed: bound != nil,
		Object: Successor(f)}, err
}

func (o Receiving) intendsNew(r record.Record, claim *corev1.PersistentVolumeClaim,
	hostname string) (i Intent, err error) {
	if !o.New {
		return i, errors.New("the cluster has no volume of this name; with --new-cluster one is " +
			"made from what the stream says")
	}
	r.Place = record.InPool
	f := AnewFacts{Self: o.Self, Pool: o.Pool, Record: r, Claim: claim, Claims: o.Claims}
	if verdict := ForAnew(f); verdict.Action != Make {
		return i, errors.New(saying(verdict, "there is nothing to be made"))
	}
	i = Intent{Claimed: claim != nil, Object: FromRecord(f, o.Classes, hostname)}
	if claim == nil && len(o.AccessModes) > 0 {
		i.Object.Spec.AccessModes = o.AccessModes
	}
	return i, nil
}

func saying(v plan.Verdict, otherwise string) string {
	if v.Message == "" {
		return otherwise
	}
	return v.Message
}

func asError(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// Finish makes the object of a volume whose data is in the pool, and with o.Claims its claim.
func (o Receiving) Finish(ctx context.Context) error {
	s, err := o.ofOne(ctx)
	if err != nil {
		return err
	}
	s.stream = o.Stream
	now, err := o.API.GetVolume(ctx, o.Is.PV)
	if err != nil {
		return err
	}
	if now == nil {
		if err := s.begun(ctx, o.Is.PV); err != nil {
			return err
		}
	}
	if now == nil || now.Spec.ClaimRef == nil || now.Spec.ClaimRef.UID == "" {
		if err := s.makes(ctx, o.AnewOptions, o.Is.PV); err != nil {
			return err
		}
		now, err = o.API.GetVolume(ctx, o.Is.PV)
		if err == nil && now == nil {
			err = errors.New("it was deleted since")
		}
		return err
	}
	if err := s.one(ctx, o.Is.PV); err != nil || !o.Claims {
		return err
	}
	return o.claims(ctx, now)
}

// begun is an error if another object was to be replaced, and is gone by another hand: its node may
// be about to make it again.
func (s *survey) begun(ctx context.Context, pv string) error {
	r, err := s.Store.Lookup(ctx, s.Identity, pv)
	if err != nil {
		return err
	}
	if i, err := decode(r.Moving); err != nil || i == nil || i.Begun || i.UID == "" {
		return err
	}
	return fmt.Errorf("its object is gone: node %s may be about to make it again", s.From)
}

// Park has no pod use a volume of this node, which was written to a stream: its object is made
// again with an affinity that no node meets, before the stream ends. A pod that has it is an error.
// What a crash leaves, TakeBack finishes.
func Park(ctx context.Context, o Options, pv, stream string) error {
	s, err := o.ofOne(ctx)
	if err != nil {
		return err
	}
	s.park = stream
	return s.one(ctx, pv)
}

// TakeBack undoes Park, as long as no other node has the volume: no stream of it is received then.
func TakeBack(ctx context.Context, o Options, pv string) error {
	s, err := o.ofOne(ctx)
	if err != nil {
		return err
	}
	f, err := s.facts(ctx, pv)
	if v := f.Volume; err == nil && v != nil && f.Intent == nil && !plan.OfNoNode(v) &&
		v.Labels[plan.NodeLabel] == plan.NodeLabelValue(o.Node) {
		_, err = o.API.PatchVolume(ctx, v, plan.MetadataPatch{Labels: map[string]*string{},
			Annotations: map[string]*string{plan.SentAnnotation: nil}, Finalizers: v.Finalizers})
		return err
	}
	if err != nil {
		return err
	}
	return s.one(ctx, pv)
}

// ofOne is survey for one volume.
func (o Options) ofOne(ctx context.Context) (s *survey, err error) {
	s = &survey{Options: o, told: true}
	if s.hostname, err = s.hostnameOf(ctx); err == nil {
		s.users, err = Users(ctx, o.API, o.From)
	}
	return s, err
}

func (s *survey) one(ctx context.Context, pv string) error {
	if row := s.volumeNow(ctx, pv); row.Action == plan.Refuse || row.Action == plan.Keep {
		return errors.New(row.Message)
	}
	return nil
}
