package controllers

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// copier is a disk on which a copy takes until it is let go on, or canceled.
type copier struct {
	*creator
	began chan context.Context
	goOn  chan error
	begun volume.Spec   // the copy that began last
	tidy  chan struct{} // if not nil, a canceled copy goes on until it is closed
}

func (c *copier) Create(ctx context.Context, _ mounts.Identity, s volume.Spec) (string, error) {
	if s.Origin != (record.Origin{Name: "pvc-origin", UID: "of the record"}) {
		return s.Directory, nil // it is whole in the pool
	}
	c.begun = s
	c.began <- ctx
	select {
	case err := <-c.goOn:
		s.Copied(treecopy.Copied{Sockets: 2})
		return s.Directory, err
	case <-ctx.Done():
		if c.tidy != nil {
			<-c.tidy
		}
		return "", ctx.Err()
	}
}

func (c *copier) Lookup(_ context.Context, _ mounts.Identity, pv string) (record.Record, error) {
	if pv == "pvc-origin" {
		return record.Record{ClaimUID: "of the record"}, nil
	}
	return record.Record{}, volume.ErrNotRecorded
}

func (c *copier) Published(context.Context, mounts.Identity, string) error {
	c.done.note("published")
	return nil
}

// copyingOne is a controller with a clone to be provisioned.
func copyingOne() (*Controller, *poolWorker, plan.ClaimFacts, *audience, *copier) {
	c, w, f, heard := provisioning(&creator{})
	disk := &copier{creator: c.API.(*creator), began: make(chan context.Context, 1), goOn: make(chan error, 1)}
	w.disk.Storage = disk
	f.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "origin"}
	f.From = &plan.SourceFacts{Claim: &corev1.PersistentVolumeClaim{}, Volume: &corev1.PersistentVolume{}}
	f.From.Volume.Name, f.From.Claim.UID = "pvc-origin", "of the claim"
	return c, w, f, heard, disk
}

// A copy goes on beside the workers, and its claim comes to one again when it ended. Its record
// says that it has an object before that is made, and its event what it lacks.
func TestCopy(t *testing.T) {
	c, w, f, heard, disk := copyingOne()
	measured := map[string]usage.Measured{"pvc-origin": {Inodes: 7, Bytes: 9}}
	w.takes.Store(&usage.Pool{Measured: measured})
	provision := func() error {
		h, _ := w.disk.Open(t.Context())
		_, err := c.attempt(t.Context(), h, f)
		return err
	}
	for range 2 { // a second look begins no second copy
		if err := provision(); err != nil || len(disk.done) > 0 {
			t.Fatalf("%v, %v", err, disk.done)
		}
	}
	<-disk.began
	if of := disk.begun.Expected; of.Files != 7 || of.Bytes != 9 {
		t.Errorf("%+v is expected, and 7 files with 9 bytes were measured", of)
	}
	disk.goOn <- nil
	if i, _ := w.claims.Get(); i.uid != "u" {
		t.Errorf("%+v comes again", i)
	}
	if err := provision(); err != nil || disk.done.String() != "published, object pvc-u" {
		t.Errorf("%v, %v", err, disk.done)
	}
	if said := strings.Join(heard.of("u"), "; "); !strings.Contains(said, "copied from claim origin") || !strings.Contains(said, "2 sockets") {
		t.Errorf("said %q", said)
	}
	if len(c.copies.all) > 0 {
		t.Error("the copy is remembered")
	}
}

// A copy that failed is told, and begun anew by the next look. One that would write everything
// again is left alone for a while, however often its claim is changed.
func TestCopyThatFails(t *testing.T) {
	c, w, f, heard, disk := copyingOne()
	for _, failed := range []error{volume.ErrSource, syscall.EIO, treecopy.ErrNoReflink, syscall.EDQUOT} {
		h, _ := w.disk.Open(t.Context())
		if _, err := c.attempt(t.Context(), h, f); err != nil {
			t.Fatal(err)
		}
		<-disk.began
		disk.goOn <- failed
		i, _ := w.claims.Get()
		w.claims.Done(i)
		after, err := c.attempt(t.Context(), h, f)
		if said := strings.Join(heard.of("u"), "; "); !strings.Contains(said, failed.Error()) || !errors.Is(err, failed) && after != copyAgain {
			t.Errorf("%v, after %s, said %q", err, after, said)
		}
		hopeless := failed == treecopy.ErrNoReflink || failed == syscall.EDQUOT
		if hopeless != (err == nil) {
			t.Errorf("%v: returned %v", failed, err)
		}
		if known := c.copies.all["u"]; known != nil { // left alone
			for range 2 {
				after, err := c.attempt(t.Context(), h, f)
				if hopeless != (after == copyAgain && err == nil) || c.copies.all["u"] != known {
					t.Errorf("%v: looked at again: after %s, %v", failed, after, err)
				}
			}
			known.until = time.Now()
		} else if hopeless {
			t.Errorf("%v: it may begin again at once", failed)
		}
	}
	if i, _ := w.purges.Get(); i.name != "pvc-u" {
		t.Errorf("%+v is purged", i)
	}
}

// A copy that fails again and again, by what may be up to the source's owner, is begun less and
// less often.
func TestCopyFailsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c running
		fails := func() time.Duration {
			o, first := c.begin("u", func() {})
			if !first {
				t.Fatal("none begins")
			}
			began := time.Now()
			c.end("u", o, syscall.EINVAL)
			for c.result("u", o); c.known("u"); {
				time.Sleep(time.Second)
			}
			return time.Since(began)
		}
		for i, want := range []time.Duration{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
			if got := fails(); got != want*time.Second {
				t.Errorf("after failure %d it begins after %s, want %d s", i+1, got, want)
			}
		}
		c.take("u")
		if got := fails(); got != 0 {
			t.Errorf("of another copy it begins after %s", got)
		}
	})
}

// A copy ends when its claim goes, or another node was chosen for it.
func TestCopyEndsWithItsClaim(t *testing.T) {
	for name, end := range map[string]func(c *Controller){
		"deleted":      func(c *Controller) { c.dropClaim(item{uid: "u"}) },
		"another node": func(c *Controller) { c.abandon("u") },
	} {
		c, w, f, _, disk := copyingOne()
		h, _ := w.disk.Open(t.Context())
		if _, err := c.attempt(t.Context(), h, f); err != nil {
			t.Fatal(err)
		}
		copying := <-disk.began
		if end(c); copying.Err() == nil {
			t.Errorf("%s: the copy goes on", name)
			disk.goOn <- nil
		}
	}
}

// A canceled copy moves what it has to the trash when nothing waits for it any more. The
// comparisons of records that were asked for until then may be over, and its claim is not there to
// be looked at: what is left goes by one that is asked for at the end.
func TestRemainsOfCanceledCopy(t *testing.T) {
	for name, end := range map[string]func(c *Controller){
		"deleted":         func(c *Controller) { c.dropClaim(item{uid: "u"}) },
		"another node":    func(c *Controller) { c.abandon("u") },
		"content deleted": func(c *Controller) { c.dropContent(item{uid: "u"}) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c, w, f, _, disk := copyingOne()
			defer endAll(c)
			disk.tidy, w.Snapshots = make(chan struct{}), plan.SnapshotsLive
			h, _ := w.disk.Open(t.Context())
			if _, err := c.attempt(t.Context(), h, f); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			end(c)
			if after, err := c.Do(t.Context(), Work{Kind: WorkClaim, Pool: w.Name, Namespace: "ns", Name: "c", UID: "u"}); after != 0 || err != nil {
				t.Errorf("%s: looked at again after %s, %v", name, after, err)
			}
			if len(w.recheck) != 1 {
				t.Errorf("%s: %d comparisons are asked for when the copy is canceled", name, len(w.recheck))
			}
			select { // it is over
			case <-w.recheck:
			default:
			}
			close(disk.tidy)
			synctest.Wait()
			if len(w.recheck) != 1 {
				t.Errorf("%s: %d comparisons are asked for when the copy is in the trash", name, len(w.recheck))
			}
		})
	}
}

// What is left of a copy that failed goes also if its claim is refused by then, and so is not
// looked at as one that has a copy: its source is gone.
func TestRemainsOfFailedCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w, f, _, disk := copyingOne()
		defer endAll(c)
		h, _ := w.disk.Open(t.Context())
		if _, err := c.attempt(t.Context(), h, f); err != nil {
			t.Fatal(err)
		}
		<-disk.began
		disk.goOn <- volume.ErrSource
		synctest.Wait()
		if n := w.purges.Len(); n != 1 {
			t.Fatalf("%d volumes are to be purged", n)
		}
		if i, _ := w.purges.Get(); i.name != "pvc-u" {
			t.Errorf("%+v is purged", i)
		}
	})
}

// Clones that wait for one source read it once in a while together, and a source that has a volume
// is read each time.
func TestSourceOfManyClones(t *testing.T) {
	now, bound := &api{claim: &corev1.PersistentVolumeClaim{}}, &corev1.PersistentVolumeClaim{}
	bound.Spec.VolumeName = "pvc-origin"
	c, _, _, _, _ := copyingOne()
	c.API = now
	read := func(name string) *corev1.PersistentVolumeClaim {
		clone := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}}}
		clone.Namespace = "ns"
		from, err := c.sourceFacts(t.Context(), plan.ClaimFacts{Claim: clone})
		if err != nil {
			t.Fatal(err)
		}
		return from.Claim
	}
	for range 3 {
		read("origin")
	}
	if len(now.asked) != 1 {
		t.Fatalf("asked for %q", now.asked)
	}
	now.claim = nil
	if read("other") != nil || len(now.asked) != 2 {
		t.Errorf("another source: asked for %q", now.asked)
	}
	now.claim, c.unready.all["ns/origin"] = bound, response[*corev1.PersistentVolumeClaim]{until: time.Now()}
	if read("origin") != bound || len(now.asked) < 3 {
		t.Errorf("later: asked for %q", now.asked)
	}
	if read("other") != nil {
		t.Error("the other source was read again")
	}
}
