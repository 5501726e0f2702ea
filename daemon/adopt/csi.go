package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/unpublish"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// FromCSI takes over the volumes of o.Driver whose data lies in the pool: in the place of each
// object one of this pool's own is made, for the same claim. The directories stay as they are. Rows
// and error are Run's.
func FromCSI(ctx context.Context, o Options) ([]Row, error) {
	s, err := o.survey(ctx)
	if err != nil {
		return nil, err
	}
	names := s.begun
	for _, v := range s.volumes {
		names = append(names, v.Name)
	}
	slices.Sort(names)
	var rows []Row
	for _, name := range slices.Compact(names) {
		row := s.takeOver(ctx, name)
		if row.Action != plan.Ignore {
			rows = append(rows, row)
		}
		if ctx.Err() != nil {
			return rows, context.Cause(ctx)
		}
	}
	return rows, nil
}

// csiVolume is what is known of one of the driver's volumes.
type csiVolume struct {
	now   *corev1.PersistentVolume // the object of its name, nil if there is none
	seen  *corev1.PersistentVolume // the driver's, as adoptrules.OfHost has it; the recorded one where there is none
	facts adoptrules.Facts
	lost  bool // the driver's object is gone, or going: whatever is decided, another one has to be made
}

// takeOver decides about one volume and does it, anew as often as another client changes the
// object.
func (s *survey) takeOver(ctx context.Context, name string) Row {
	for try := 1; ; try++ {
		v, row, err := s.csiVolume(ctx, name)
		switch {
		case err != nil:
			return row.after(err)
		case row.Action != adoptrules.Adopt:
			return row
		}
		notes, err := s.replace(ctx, v)
		if apierrors.IsConflict(err) && try < tries && ctx.Err() == nil {
			continue
		}
		row.Notes = append(row.Notes, notes...)
		return s.tried(row, err)
	}
}

// csiVolume reads one volume, and what the rules say of it.
func (s *survey) csiVolume(ctx context.Context, name string) (v csiVolume, row Row, err error) {
	row = Row{Volume: name, Action: plan.Refuse}
	if v.now, err = s.API.GetVolume(ctx, name); err != nil {
		return v, row, err
	}
	if v.now != nil {
		row = rowOf(v.now, adoptrules.Verdict{})
	}
	found, err := s.Store.Lookup(ctx, s.Identity, name)
	if err != nil && !errors.Is(err, volume.ErrNotRecorded) && !errors.Is(err, record.ErrDamaged) {
		return v, row, err
	}
	driven := v.now
	if v.now == nil || !adoptrules.OfDriver(v.now, s.Driver) {
		if found.Replaced == "" {
			row.Action = plan.Ignore
			return v, row, nil
		}
		if driven, err = readOriginal(found.Replaced); err != nil {
			return v, row, err
		}
		switch {
		case !adoptrules.OfDriver(driven, s.Driver):
			row.Action = plan.Ignore
			return v, row, nil
		case v.now == nil:
		case !adoptrules.Succeeds(v.now, s.Pool, s.Node, &found):
			return v, row, errNotMadeHere
		case v.now.DeletionTimestamp == nil || !adoptrules.Held(v.now, s.Pool, s.Node): // else Undo was cut off
			return v, s.settled(ctx, v.now), nil
		}
	}
	v.seen, v.lost = adoptrules.OfHost(driven, s.Pool), v.now == nil || v.now.DeletionTimestamp != nil
	if v.facts, err = s.csiFacts(ctx, driven, v.seen); err != nil {
		return v, rowOf(v.seen, adoptrules.Verdict{}), err
	}
	v.facts.Overrides.Released = s.Overrides.Released || v.lost // what is made in that case is kept
	return v, rowOf(v.seen, adoptrules.ForReplacement(v.facts)), nil
}

var errNotMadeHere = errors.New("an object that was not made here has its name: look whose it is, and delete it or restore the driver's")

// settled is the row of a volume that has its object. One that was held to be given back, and was
// not, is let go.
func (s *survey) settled(ctx context.Context, v *corev1.PersistentVolume) Row {
	row := rowOf(v, adoptrules.Verdict{Action: adoptrules.Ours})
	if s.DryRun || !adoptrules.Held(v, s.Pool, s.Node) {
		return row
	}
	if _, err := s.API.PatchVolume(ctx, v, adoptrules.ReleasePatch(v)); err != nil {
		row.Action, row.Message = plan.Refuse, err.Error()
	}
	return row
}

func (s *survey) csiFacts(ctx context.Context, v, seen *corev1.PersistentVolume) (adoptrules.Facts, error) {
	f, err := s.facts(ctx, seen)
	if err != nil {
		return f, err
	}
	f.ReadOnly = v.Spec.CSI.ReadOnly
	if directory := adoptrules.DirectoryOf(s.Pool, seen); directory != "" { // kubelet's mounts are those of pods, too
		f.Shown = s.shown(directory, func(string) bool { return false })
	}
	if ref := v.Spec.ClaimRef; ref != nil {
		f.ClaimGone = f.Claim == nil
		f.Used, err = s.user(ctx, ref.Namespace, ref.Name)
	}
	return f, err
}

// user returns the pod that uses a claim, "" if none does.
func (o Options) user(ctx context.Context, namespace, name string) (used string, err error) {
	err = o.API.EachPod(ctx, namespace, "status.phase!=Succeeded,status.phase!=Failed", func(pod *corev1.Pod) {
		if slices.Contains(plan.PodClaimNames(pod, len(pod.Spec.Volumes)+1), name) && used == "" {
			used = pod.Namespace + "/" + pod.Name
		}
	})
	return used, err
}

// replace makes an object of ours in the place of the driver's. A crash leaves, after
//
//	holding        the driver's object with the policy Retain and its own in an annotation
//	record         the same, and the object's text on the disk
//	deletion       the same, being deleted: its finalizers hold it
//	finalizers     no object; the claim is Lost until the next call
//	new object     nothing missing
//
// Each is finished by the next call, or undone by Undo.
func (s *survey) replace(ctx context.Context, v csiVolume) (notes []string, err error) {
	hostname := s.labels[plan.HostnameLabel]
	if hostname == "" {
		return nil, fmt.Errorf("node %s has no label %s, which the volume's affinity would name", s.Node, plan.HostnameLabel)
	}
	size := adoptrules.Size(v.seen, v.facts.Claim)
	ours := adoptrules.Successor(v.seen, s.Pool, s.Node, hostname, size)
	if !v.lost {
		if err := s.API.CheckVolume(ctx, ours); err != nil {
			return nil, err
		}
		if s.DryRun {
			return nil, s.API.CheckPatch(ctx, v.now, adoptrules.HoldPatch(v.now, s.Pool, s.Node))
		}
		held, err := s.hold(ctx, v.now)
		if err != nil {
			return nil, err
		}
		adopted := s.record(adoptrules.OfHost(held, s.Pool), size)
		adopted.Source = plan.SourceOf(ours)
		if adopted.Replaced, err = original(held); err != nil {
			return nil, err
		}
		if err := s.Store.Adopt(ctx, s.Identity, adopted); err != nil {
			return nil, err
		}
		v.now = held
	}
	if s.DryRun {
		return nil, s.API.CheckVolume(ctx, ours)
	}
	if err := unpublish.Volume(ctx, s.API, v.now); err != nil {
		return nil, err
	}
	if v.lost && v.facts.ClaimGone && !s.Overrides.Released {
		ours.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		notes = append(notes, "its claim is gone, so it was made with the policy Retain")
	}
	existing, err := s.API.CreateVolume(ctx, ours)
	if err != nil || existing == nil {
		return notes, err
	}
	found, err := s.Store.Lookup(ctx, s.Identity, ours.Name)
	if err == nil && !adoptrules.Succeeds(existing, s.Pool, s.Node, &found) {
		err = errNotMadeHere
	}
	return notes, err
}

// original is the text of an object for the record, readOriginal reads it.
func original(held *corev1.PersistentVolume) (string, error) {
	text, err := json.Marshal(adoptrules.Original(held))
	return string(text), err
}

func readOriginal(text string) (*corev1.PersistentVolume, error) {
	v := &corev1.PersistentVolume{}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return nil, fmt.Errorf("the object that was replaced: %w", err)
	}
	if v.Spec.CSI == nil {
		return nil, fmt.Errorf("the object that was replaced, %q, has no CSI source", v.Name)
	}
	return v, nil
}

// hold has the object's policy be Retain, which its own provisioner takes for a volume to leave
// alone.
func (o Options) hold(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	if adoptrules.Held(v, o.Pool, o.Node) {
		return v, nil
	}
	return o.API.PatchVolume(ctx, v, adoptrules.HoldPatch(v, o.Pool, o.Node))
}

// lookForDriver looks whether the driver runs, beside its pods: what kubelet has registered on this
// node, and the sockets that the usual manifests have. That there are none shows nothing.
func (s *survey) lookForDriver(ctx context.Context) {
	registered, err := s.API.CSIDrivers(ctx, s.Node)
	switch {
	case err != nil:
		s.notKnown = err.Error()
	case slices.Contains(registered, s.Driver):
		s.running[s.Driver] = fmt.Sprintf("kubelet of node %s has it registered", s.Node)
	}
	for _, socket := range []string{
		"plugins_registry/" + s.Driver + "-reg.sock", "plugins/" + s.Driver + "/csi.sock", "plugins/csi-hostpath/csi.sock",
	} {
		if at := path.Join(s.Kubelet, socket); s.running[s.Driver] == "" && accepts(ctx, at) {
			s.running[s.Driver] = "a process accepts connections at " + at
		}
	}
}

// accepts reports whether a process accepts connections there.
func accepts(ctx context.Context, socket string) bool {
	ctx, done := context.WithTimeout(ctx, time.Second)
	defer done()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
	}
	return conn.Close() == nil
}
