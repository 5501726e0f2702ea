package harness

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// CompareObjects compares claims with volume objects: each claim is Bound to the volume of its UID,
// each volume has its claim, and no claim is being deleted. It adds what differs, and returns the
// names of the volumes that there should be.
//
// The claims that should exist are those of expected, UIDs by name; where it is nil, all claims
// that do exist.
func (f *Findings) CompareObjects(claims []corev1.PersistentVolumeClaim, volumes []corev1.PersistentVolume, expected map[string]string) map[string]bool {
	want, found := map[string]bool{}, map[string]bool{}
	for name, uid := range expected {
		want[volumeOf(uid)] = true
		found[name] = false
	}
	for _, c := range claims {
		uid := string(c.UID)
		switch {
		case c.DeletionTimestamp != nil, expected != nil && expected[c.Name] != uid:
			f.Fault(Unsettled, "claim %s is deleted and does not go", c.Name)
		case c.Status.Phase != corev1.ClaimBound || c.Spec.VolumeName != volumeOf(uid):
			f.Fault(Unsettled, "claim %s is %s, its provisioner is %q", c.Name, c.Status.Phase, c.Annotations[plan.StorageProvisioner])
		case c.Status.Capacity.Storage().Cmp(*c.Spec.Resources.Requests.Storage()) < 0:
			f.Fault(Unsettled, "claim %s requests %s and has %s", c.Name, c.Spec.Resources.Requests.Storage(), c.Status.Capacity.Storage())
		}
		if expected == nil {
			want[volumeOf(uid)] = true
		}
		found[c.Name] = true
	}
	for name, is := range found {
		if !is {
			f.Fault(Unsettled, "claim %s is gone", name)
		}
	}
	f.compareVolumes(volumes, want)
	return want
}

func (f *Findings) compareVolumes(volumes []corev1.PersistentVolume, want map[string]bool) {
	found := map[string]bool{}
	for _, pv := range volumes {
		if !want[pv.Name] {
			f.Fault(VolumesLeft, "volume %s is %s", pv.Name, pv.Status.Phase)
		}
		found[pv.Name] = true
	}
	for pv := range want {
		if !found[pv] {
			f.Fault(Unsettled, "volume %s does not exist", pv)
		}
	}
}

// volumeOf is the name of the volume of the claim with this UID.
func volumeOf(uid string) string { return "pvc-" + uid }

// WaitDisk waits until a pool's directory holds these volumes, a directory and a record each, and
// nothing else.
func WaitDisk(ctx context.Context, dir string, volumes ...string) error {
	var extra, missing []string
	var unreadable error
	err := Eventually(ctx, func() bool {
		var tree []string
		tree, unreadable = pool.Tree(dir)
		extra, missing = pool.Compare(tree, pool.Of(volumes...))
		return unreadable == nil && len(extra)+len(missing) == 0
	})
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w: left %q, missing %q", dir, err, extra, missing), unreadable)
	}
	return nil
}

// Exceptions are what a comparison lets pass. The zero value lets nothing pass.
type Exceptions struct {
	Extra   func(directory, volume string) bool // that may be there: an entry in one of the daemon's directories, "" for the pool's own
	Missing func(volume string) bool            // whose directory and record may be missing
}

// CompareDisk compares a tree (pool.Tree) with the volumes that there should be: a directory and a
// record each, and nothing else. It adds what differs.
func (f *Findings) CompareDisk(tree []string, want map[string]bool, e Exceptions) {
	var names []string
	for pv := range want {
		names = append(names, pool.Of(pv)...)
	}
	extra, missing := pool.Compare(tree, names)
	for _, name := range extra {
		if directory, volume := pool.Split(name); e.Extra == nil || !e.Extra(directory, volume) {
			f.Fault(EntriesLeft, "%s", name)
		}
	}
	for _, name := range missing {
		if _, volume := pool.Split(name); e.Missing == nil || !e.Missing(volume) {
			f.Fault(EntriesMissing, "%s", name)
		}
	}
}
