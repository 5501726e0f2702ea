package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// snapshots is what plays the snapshot-controller for one test.
type snapshots struct {
	*environment
	api *cluster.Snapshots
}

func (w *environment) snapshots() *snapshots {
	w.Helper()
	api := need(w.Snapshots(w.Soon(), w.Namespace, w.Provisioner))(w)
	return &snapshots{w, api}
}

// snapshotHost is a host that makes snapshots, on an ext4 filesystem that was made with these
// arguments, and a bound claim.
func snapshotHost(
	t *testing.T, args ...string,
) (w *environment, s *snapshots, h *host, origin *corev1.PersistentVolume) {
	t.Helper()
	w = newEnvironment(t)
	s = w.snapshots()
	h = w.newHostOn(hosttest.Mkfs(w, "ext4", 96, args...), "a", `snapshots = "copy"`).run()
	return w, s, h, w.bound("data", w.Class("c", immediate), "10Mi")
}

// take asks for a snapshot that goes with its content, and waits until it is ready.
func (s *snapshots) take(name string, pv *corev1.PersistentVolume) (content, handle string) {
	s.Helper()
	content = s.ask(name, pv, s.Provisioner, "Delete")
	handle, _ = s.ready(name, content)["snapshotHandle"].(string)
	return content, handle
}

// ask asks for a snapshot of a volume, and returns the content's name.
func (s *snapshots) ask(name string, pv *corev1.PersistentVolume, class, policy string) (content string) {
	s.Helper()
	return need(s.api.Ask(s.Ctx, name, pv.Name, class, policy))(s.environment)
}

func (s *snapshots) status(content string) map[string]any {
	s.Helper()
	return need(s.api.Status(s.Ctx, content))(s.environment)
}

// ready waits until a content is ready, and has its VolumeSnapshot say so.
func (s *snapshots) ready(name, content string) map[string]any {
	s.Helper()
	s.Eventually("snapshot "+name+" is ready", func() bool { return s.status(content)["readyToUse"] == true })
	s.Must(s.api.Bind(s.Ctx, name, content))
	return s.status(content)
}

// remove deletes a VolumeSnapshot and its content, and waits until the content is gone.
func (s *snapshots) remove(name, content string) {
	s.Helper()
	s.Must(s.api.Remove(s.Ctx, name, content))
	s.gone(content)
}

// gone waits until a content is gone.
func (s *snapshots) gone(content string) {
	s.Helper()
	s.Eventually("content "+content+" is gone", func() bool {
		gone, err := s.api.Gone(s.Ctx, content)
		return err == nil && gone
	})
}

// says waits until a content's status says why there is no snapshot, or it does not go.
func (s *snapshots) says(content, why string) {
	s.Helper()
	s.Eventually("content "+content+" says "+why, func() bool { return s.told(content, why) })
}

// told reports whether the error in a content's status has this text.
func (s *snapshots) told(content, why string) bool {
	s.Helper()
	message, _, _ := unstructured.NestedString(s.status(content), "error", "message")
	return strings.Contains(message, why)
}

// restore makes a claim be filled from a snapshot.
func restore(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource = cluster.FromSnapshot(name) }
}

// A snapshot is made of a volume and outlives it, a claim is made from the snapshot and outlives
// that, where a consumer is awaited, too.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fs, mode string
		mib      int
	}{{"xfs", "live", 320}, {"ext4", "copy", 96}, {"btrfs", "snapshot", 160}} {
		t.Run(c.fs, func(t *testing.T) {
			w := newEnvironment(t)
			s := w.snapshots()
			h := w.newHostOn(hosttest.Mkfs(w, c.fs, c.mib), "a", fmt.Sprintf("snapshots = %q", c.mode)).run()
			class, waiting := w.Class("c", immediate), w.Class("w", wait)
			origin := w.bound("data", class, "10Mi")
			dir := h.writeAll(origin)
			if c.mode == "snapshot" { // which keeps what is left out of a copy
				w.Must(os.Remove(filepath.Join(dir, "socket")))
			}
			content := s.ask("snap", origin, w.Provisioner, "Delete")
			status := s.ready("snap", content)
			handle, _ := status["snapshotHandle"].(string)
			if !strings.HasPrefix(handle, "snapshot-") || status["restoreSize"] != int64(10<<20) || status["creationTime"] == nil || status["error"] != nil {
				t.Errorf("status %v", status)
			}
			w.DeleteClaim("data")
			h.wantTree(pool.Of(handle)...)
			restored := w.bound("restored", waiting, "20Mi", restore("snap"))
			h.wantClone(restored)
			small := w.claim("small", class, "5Mi", restore("snap"))
			w.refused(small, "DataSourceUnusable", "it is of a volume of 10Mi, and the claim requests 5Mi")
			s.remove("snap", content)
			h.wantTree(pool.Of(restored.Name)...)
			h.wantClone(restored)
			s.refusal(h, restored)
		})
	}
}

// refusal: why there is no snapshot is said in the content's status, and the content goes all the
// same.
func (s *snapshots) refusal(h *host, pv *corev1.PersistentVolume) {
	s.Helper()
	s.Must(s.api.Class(s.Ctx, s.Namespace+"-paused", map[string]any{"consistency": "paused"}))
	content := s.ask("paused", pv, s.Namespace+"-paused", "Delete")
	s.says(content, `and "paused" takes a pool of that`)
	s.remove("paused", content)
	h.wantTree(pool.Of(pv.Name)...)
}

// A daemon that is killed while it makes a snapshot leaves none that is said to be ready; the next
// one makes it whole. One that is kept outlives its content, and is imported by its handle.
func TestSnapshotKilled(t *testing.T) {
	w, s, h, origin := snapshotHost(t, "-N", "30000")
	h.many(origin)
	content := s.ask("snap", origin, w.Provisioner, "Retain")
	uid := strings.TrimPrefix(content, "snapcontent-")
	h.copying("snapshot-" + uid)
	h.again()
	handle, _ := s.ready("snap", content)["snapshotHandle"].(string)
	h.hasMany(handle)
	s.remove("snap", content)
	h.wantTree(pool.Of(origin.Name, handle)...)
	s.Must(s.api.Import(s.Ctx, "imported", "imported-"+uid, handle))
	s.Eventually("it is ready", func() bool { return s.status("imported-" + uid)["readyToUse"] == true })
	s.remove("imported", "imported-"+uid)
	h.wantTree(pool.Of(origin.Name)...)
}
