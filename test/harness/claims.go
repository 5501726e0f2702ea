package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// InPool makes a class of a pool of this name.
func InPool(name string) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"pool": name} }
}

// NewClaim is the object of a claim of a class for the first node.
func (e *Environment) NewClaim(class, name string) *corev1.PersistentVolumeClaim {
	claim := cluster.Claim(e.Namespace, name, class, "1Mi")
	claim.Annotations = map[string]string{plan.ProvisionOnNode: e.Node}
	return claim
}

// Claim creates a claim of a class for the first node.
func (e *Environment) Claim(ctx context.Context, class, name string) (*corev1.PersistentVolumeClaim, error) {
	return e.Claims().Create(ctx, e.NewClaim(class, name), metav1.CreateOptions{})
}

// Bound creates a claim and returns the name of its volume when it is bound.
func (e *Environment) Bound(ctx context.Context, class, name string) (pv string, err error) {
	if _, err = e.Claim(ctx, class, name); err != nil {
		return "", err
	}
	claim, err := e.Cluster.WaitClaimBound(ctx, e.Namespace, name)
	if err != nil {
		return "", err
	}
	return claim.Spec.VolumeName, nil
}

// Delete deletes a claim without waiting.
func (e *Environment) Delete(ctx context.Context, name string) error {
	return e.Claims().Delete(ctx, name, metav1.DeleteOptions{})
}

// Batch creates n claims at once and waits until all are bound. It returns how long that took.
func (e *Environment) Batch(ctx context.Context, class, prefix string, n int) (time.Duration, error) {
	began := time.Now()
	for i := range n {
		if _, err := e.Claim(ctx, class, fmt.Sprintf("%s-%d", prefix, i)); err != nil {
			return 0, err
		}
	}
	for i := range n {
		if _, err := e.Cluster.WaitClaimBound(ctx, e.Namespace, fmt.Sprintf("%s-%d", prefix, i)); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// Status is a pool's part of the daemon's status file.
func (e *Environment) Status(pool string) (daemon.PoolStatus, error) {
	s, err := daemon.ReadStatus(e.Daemon.Path("run"))
	if err != nil {
		return daemon.PoolStatus{}, err
	}
	i := slices.IndexFunc(s.Pools, func(p daemon.PoolStatus) bool { return p.Name == pool })
	if i < 0 {
		return daemon.PoolStatus{}, fmt.Errorf("the status has no pool %s", pool)
	}
	return s.Pools[i], nil
}

// WaitPool waits until a pool's status is as wanted.
func (e *Environment) WaitPool(ctx context.Context, pool string, is func(daemon.PoolStatus) bool) (s daemon.PoolStatus, err error) {
	err = Eventually(ctx, func() bool {
		s, err = e.Status(pool)
		return err == nil && is(s)
	})
	if err != nil {
		return s, fmt.Errorf("pool %s: %w, its status is %+v", pool, err, s)
	}
	return s, nil
}

// Open is for WaitPool.
func Open(s daemon.PoolStatus) bool { return s.Open }

// Metrics are the series that the daemon serves, by name and labels as they are written there.
func (e *Environment) Metrics() (map[string]float64, error) {
	response, err := plain.Get("http://" + e.metrics + "/metrics")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body) // all of it, or the connection is not used again
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the metrics: %s, %w", response.Status, err)
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if at := strings.LastIndexByte(line, ' '); at > 0 && line[0] != '#' {
			all[line[:at]], _ = strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		}
	}
	return all, nil
}

// plain asks for no compression, whose tables are two thirds of a megabyte of the daemon's heap and
// come and go with its pools.
var plain = &http.Client{Transport: &http.Transport{DisableCompression: true}}

// Metric is the value of one series; 0 if there is none.
func (e *Environment) Metric(series string) (float64, error) {
	all, err := e.Metrics()
	return all[series], err
}

// CheckRunning adds a finding if a daemon has ended by itself.
func (e *Environment) CheckRunning() {
	if !e.Running() {
		e.Fault(DaemonEnded, "its log ends with: %s", Tail(e.Log(), 2000))
	}
}

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
