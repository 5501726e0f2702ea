package controllers

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// failing is an API that deletes no volume object, as far as the daemon is told.
type failing struct {
	api
	with error
}

func (f *failing) ReleaseFinalizer(_ context.Context, pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	return pv, nil
}

func (f *failing) DeleteVolume(context.Context, *corev1.PersistentVolume) error { return f.with }

// A deletion that may have been done is remembered, so that its trash is emptied when the object is
// gone. One that certainly was not done is decided anew.
func TestLetGoIsRememberedWhileItIsUncertain(t *testing.T) {
	resource := corev1.Resource("persistentvolumes")
	for name, c := range map[string]struct {
		with error
		want bool
	}{
		"the response is lost":     {io.ErrUnexpectedEOF, true},
		"500":                      {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), true},
		"503, of a proxy perhaps":  {apierrors.NewServiceUnavailable("upstream connect error or disconnect/reset before headers"), true},
		"it was changed meanwhile": {apierrors.NewConflict(resource, "pvc-a", errors.New("changed")), false},
		"forbidden":                {apierrors.NewForbidden(resource, "pvc-a", errors.New("no")), false},
		"429, of a proxy perhaps":  {apierrors.NewTooManyRequestsError("later"), true},
	} {
		controller, w := stand(&api{}, &shelf{})
		controller.API = &failing{with: c.with}
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-a"}}
		if err := controller.letGo(t.Context(), w, pv); !errors.Is(err, c.with) {
			t.Errorf("%s: %v", name, err)
		}
		if got := controller.begun.Has(letGoKey("pvc-a")); got != c.want {
			t.Errorf("%s: remembered: %t", name, got)
		}
	}
}

// The watch may bring a change that was made before the object was let go only after that. It has
// nothing forgotten: the directory would be kept in the trash for ever. What was made afterwards
// has, and so has an object of a restored server.
func TestLetGoIsNotForgottenForALateEvent(t *testing.T) {
	volume := func(uid, version string, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-a", UID: types.UID(uid), ResourceVersion: version, Labels: map[string]string{plan.PoolLabel: "fast"}}}
		pv.Spec.PersistentVolumeReclaimPolicy, pv.Status.Phase = corev1.PersistentVolumeReclaimDelete, phase
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data"}
		return pv
	}
	for name, c := range map[string]struct {
		was, now *corev1.PersistentVolume
		want     bool
	}{
		"made before":                   {volume("u", "9", corev1.VolumeBound), volume("u", "10", corev1.VolumeBound), true},
		"made afterwards":               {volume("u", "9", corev1.VolumeBound), volume("u", "13", corev1.VolumeBound), false},
		"that of the decision again":    {volume("u", "9", corev1.VolumeBound), volume("u", "12", corev1.VolumeBound), false},
		"restored, older than known":    {volume("u", "12", corev1.VolumeReleased), volume("u", "10", corev1.VolumeBound), false},
		"restored, and not known":       {nil, volume("u", "10", corev1.VolumeBound), false},
		"another object":                {volume("v", "9", corev1.VolumeBound), volume("v", "10", corev1.VolumeBound), false},
		"one in the other's place":      {volume("v", "9", corev1.VolumeBound), volume("u", "10", corev1.VolumeBound), false},
		"versions that are no numbers":  {volume("u", "a", corev1.VolumeBound), volume("u", "b", corev1.VolumeBound), false},
		"made before, and it is to go":  {volume("u", "9", corev1.VolumeReleased), volume("u", "10", corev1.VolumeReleased), true},
		"made afterwards, and is to go": {volume("u", "12", corev1.VolumeReleased), volume("u", "13", corev1.VolumeReleased), true},
	} {
		ctl, w := stand(&api{}, &shelf{})
		ctl.API = &failing{with: io.ErrUnexpectedEOF}
		if err := ctl.letGo(t.Context(), w, volume("u", "12", corev1.VolumeReleased)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		ctl.VolumeChanged(c.was, c.now)
		if got := ctl.begun.Has(letGoKey("pvc-a")); got != c.want {
			t.Errorf("%s: remembered: %t", name, got)
		}
		if late := name == "made before"; late && w.volumes.Len() != 1 {
			t.Errorf("%s: the object is not looked at", name)
		}
	}
}

// Whether an old change is of a restored server the API says: what is to stay ends what is
// remembered, what is gone does not.
func TestLetGoIsForgottenForWhatTheAPIHas(t *testing.T) {
	bound := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-a"}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
	bound.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	for name, c := range map[string]struct {
		has       *corev1.PersistentVolume
		discarded int
	}{"it is Bound": {bound, 0}, "it is gone": {nil, 1}} {
		disk := &shelf{records: []record.Record{{PV: "pvc-a", ClaimUID: "u", Place: record.InTrash}}}
		ctl, w := stand(&api{volume: c.has}, disk)
		ctl.Events = deafSpeaker{}
		ctl.begun.Begin(letGoKey("pvc-a"))
		if _, err := ctl.volume(t.Context(), w, "pvc-a"); err != nil || len(disk.discarded) != c.discarded || ctl.begun.Has(letGoKey("pvc-a")) {
			t.Errorf("%s: %v, discarded %q, still remembered: %t", name, err, disk.discarded, ctl.begun.Has(letGoKey("pvc-a")))
		}
	}
}

// flappingAPI is an API that deletes a volume object while the pool closes and opens again.
type flappingAPI struct {
	api
	flap func()
}

func (f *flappingAPI) ReleaseFinalizer(_ context.Context, pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	return pv, nil
}

func (f *flappingAPI) DeleteVolume(context.Context, *corev1.PersistentVolume) error {
	f.flap()
	return nil
}

// The files of a volume whose object went go also if the pool was closed for a moment meanwhile.
func TestLetGoWhileThePoolFlaps(t *testing.T) {
	disk := &shelf{}
	c, w := stand(&api{}, disk)
	c.API = &flappingAPI{flap: w.disk.Close}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-a"}}
	if err := c.letGo(t.Context(), w, pv); err != nil || len(disk.discarded) != 1 || c.begun.Has(letGoKey("pvc-a")) {
		t.Errorf("%v, discarded %q, and still remembered: %t", err, disk.discarded, c.begun.Has(letGoKey("pvc-a")))
	}
}

// The comparison of records finds a volume that was let go and not noted also before the watch has
// brought that its object is gone; it passes over every other volume that is watched.
func TestLetGoBeforeTheWatchBringsIt(t *testing.T) {
	for name, c := range map[string]struct{ letGo bool }{"let go": {true}, "watched alone": {false}} {
		disk := &shelf{records: []record.Record{{PV: "pvc-a", ClaimUID: "u", Place: record.InTrash}}}
		ctl, w := stand(&api{}, disk)
		ctl.Listers.Volumes = one[*corev1.PersistentVolume]{&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-a"}}}
		if c.letGo {
			ctl.begun.Begin(letGoKey("pvc-a"))
		}
		if err := ctl.recheck(t.Context(), w); err != nil || (len(disk.discarded) == 1) != c.letGo {
			t.Errorf("%s: %v, discarded %q", name, err, disk.discarded)
		}
	}
}

// readOnly is a disk that was remounted read-only, for as long as err is set.
type readOnly struct {
	shelf
	err error
}

func (d *readOnly) Purge(context.Context, mounts.Identity, string) (volume.Purged, error) {
	return volume.Purged{}, d.err
}

// A purge that fails for a moment goes on soon; one that goes on failing is tried seldom.
func TestPurgeFails(t *testing.T) {
	disk := &readOnly{err: errors.New("unlinkat file: read-only file system")}
	c, w := stand(&api{}, disk)
	c.Events = deafSpeaker{}
	for range 2 {
		if after, err := c.purge(t.Context(), w, "pvc-a"); err != nil || after != time.Second {
			t.Errorf("again after %s, %v; want a second", after, err)
		}
	}
	if first := c.begun.Since("purge/pvc-a"); first <= 0 || first > time.Minute {
		t.Errorf("the first failure was %s ago", first)
	}
	for failed, want := range map[time.Duration]time.Duration{0: time.Second, time.Minute: time.Minute, time.Hour: 10 * time.Minute} {
		if after := purgeAgain(failed); after != want {
			t.Errorf("after failures for %s again after %s, want %s", failed, after, want)
		}
	}
	disk.err = nil
	if after, err := c.purge(t.Context(), w, "pvc-a"); after != 0 || err != nil || c.begun.Has("purge/pvc-a") {
		t.Errorf("done: again after %s, %v", after, err)
	}
}

// awayFor is an API without objects, that responds again after so many requests for volumes.
type awayFor struct {
	api
	left atomic.Int64
}

func awayForSome(requests int64) *awayFor {
	a := &awayFor{}
	a.left.Store(requests)
	return a
}

func (a *awayFor) GetVolume(context.Context, string) (*corev1.PersistentVolume, error) {
	if a.left.Add(-1) >= 0 {
		return nil, errAway
	}
	return a.volume, nil
}

// A daemon that is told to end, or to take another configuration, first finds out what became of
// the objects that it let go without a response: the next one cannot know that they went by its
// hand, and would keep their directories for ever.
func TestLetGoIsFinishedAtTheEnd(t *testing.T) {
	bound := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-a"}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
	for name, c := range map[string]struct {
		letGo, want bool
		api         *awayFor
		longest     time.Duration
	}{
		"the object is gone":                {letGo: true, want: true, api: awayForSome(0)},
		"the API is away for some tries":    {letGo: true, want: true, api: awayForSome(5), longest: time.Second},
		"the API is away":                   {letGo: true, api: awayForSome(1e6), longest: grace},
		"the object is there, and stays":    {letGo: true, api: &awayFor{api: api{volume: bound}}},
		"another process let the object go": {api: awayForSome(0)},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctl, _, disk := flappingClaim(t, &audience{})
			ctl.API = c.api
			ctl.look(t.Context(), ctl.workers["fast"])
			disk.records = []record.Record{{PV: "pvc-a", ClaimUID: "u", Directory: "pvc-a", Place: record.InTrash}}
			if c.letGo {
				ctl.begun.Begin(letGoKey("pvc-a"))
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			began := time.Now()
			ctl.Run(ctx, make(chan struct{}), make(chan struct{}))
			if took := time.Since(began); (len(disk.discarded) > 0) != c.want || took > c.longest {
				t.Errorf("%s: after %s discarded %q", name, took, disk.discarded)
			}
		})
	}
}
