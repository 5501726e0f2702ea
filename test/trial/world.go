package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// Node is the node's and the provisioner's name.
const Node = "trial"

const provisionOnNode = "kubevirt.io/provisionOnNode"

// Start starts the control plane with one node, and prepares the daemon without starting it: Pool
// adds pools.
func (t *Trial) Start(ctx context.Context) {
	t.Say("starting the control plane")
	c, err := cluster.Start(ctx, cluster.Options{Dir: hosttest.Dir(t)})
	t.Must(err, "starting the control plane")
	t.Cluster = c
	config := c.Config()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	t.Client, err = kubernetes.NewForConfig(config)
	t.Must(err, "making a client")
	t.Must(c.AddNode(ctx, Node, nil), "adding a node")
	t.Namespace, err = c.NewNamespace(ctx, "trial")
	t.Must(err, "making a namespace")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	t.Must(err, "finding a port")
	t.metrics = listener.Addr().String()
	t.Must(listener.Close(), "finding a port")
	dir := hosttest.Dir(t)
	t.config = fmt.Sprintf("provisioner = %q\nnode = %q\nkubeconfig = %q\nmetrics = %q\n", Node, Node, dir+"/kubeconfig", t.metrics)
	// The manifests need no pool, and no configuration is without one.
	t.Daemon, err = rig.New(rig.Options{Dir: dir, Config: t.config + "[pool.none]\npath = \"/none\"\n"})
	t.Must(err, "configuring the daemon")
	manifests, code := t.Daemon.Call("manifests")
	if code != 0 {
		t.Fatal(manifests)
	}
	t.Must(c.Apply(ctx, []byte(manifests)), "applying the manifests")
	t.Must(c.ServiceAccountKubeconfig(ctx, "hostpath-provisioner", "hostpath-provisioner", "", dir+"/kubeconfig"), "making its kubeconfig")
}

// Pool adds a pool to the configuration and a StorageClass of its name. mount is called between the
// two calls of prepare, and mounts the storage at path.
func (t *Trial) Pool(ctx context.Context, name, path string, mount func()) {
	t.config += fmt.Sprintf("[pool.%s]\npath = %q\n", name, path)
	t.Must(t.Daemon.Configure(t.config), "configuring the daemon")
	t.Prepare(name)
	mount()
	t.Prepare(name)
	class := cluster.StorageClass(name, Node, storagev1.VolumeBindingImmediate)
	class.Parameters = map[string]string{"pool": name}
	_, err := t.Client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	t.Must(err, "making a class")
}

// Prepare calls prepare.
func (t *Trial) Prepare(pool string) {
	if out, code := t.Daemon.Call("prepare", pool); code != 0 {
		t.Fatalf("prepare %s: %s", pool, out)
	}
}

// Claim creates a claim for a pool.
func (t *Trial) Claim(ctx context.Context, pool, name string) (*corev1.PersistentVolumeClaim, error) {
	claim := cluster.Claim(t.Namespace, name, pool, "1Mi")
	claim.Annotations = map[string]string{provisionOnNode: Node}
	return t.Client.CoreV1().PersistentVolumeClaims(t.Namespace).Create(ctx, claim, metav1.CreateOptions{})
}

// Bound creates a claim and answers the name of its volume.
func (t *Trial) Bound(ctx context.Context, pool, name string) (pv string, err error) {
	if _, err = t.Claim(ctx, pool, name); err != nil {
		return "", err
	}
	claim, err := t.Cluster.WaitClaimBound(ctx, t.Namespace, name)
	if err != nil {
		return "", err
	}
	return claim.Spec.VolumeName, nil
}

// Delete deletes a claim without waiting.
func (t *Trial) Delete(ctx context.Context, name string) error {
	return t.Client.CoreV1().PersistentVolumeClaims(t.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

// Batch creates n claims at once and waits until all are bound; it answers how long that took.
func (t *Trial) Batch(ctx context.Context, pool, prefix string, n int) (time.Duration, error) {
	began := time.Now()
	for i := range n {
		if _, err := t.Claim(ctx, pool, fmt.Sprintf("%s-%d", prefix, i)); err != nil {
			return 0, err
		}
	}
	for i := range n {
		if _, err := t.Cluster.WaitClaimBound(ctx, t.Namespace, fmt.Sprintf("%s-%d", prefix, i)); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// Status is what the daemon says of a pool in its status file.
func (t *Trial) Status(pool string) (daemon.PoolStatus, error) {
	s, err := daemon.ReadStatus(t.Daemon.Path("run"))
	if err != nil {
		return daemon.PoolStatus{}, err
	}
	i := slices.IndexFunc(s.Pools, func(p daemon.PoolStatus) bool { return p.Name == pool })
	if i < 0 {
		return daemon.PoolStatus{}, fmt.Errorf("the status has no pool %s", pool)
	}
	return s.Pools[i], nil
}

// WaitPool waits until what is said of a pool is as wanted.
func (t *Trial) WaitPool(ctx context.Context, pool string, is func(daemon.PoolStatus) bool) (s daemon.PoolStatus, err error) {
	err = Eventually(ctx, func() bool {
		s, err = t.Status(pool)
		return err == nil && is(s)
	})
	if err != nil {
		return s, fmt.Errorf("pool %s: %w, its status is %+v", pool, err, s)
	}
	return s, nil
}

// Open is for WaitPool.
func Open(s daemon.PoolStatus) bool { return s.Open }

// Eventually waits for a condition that nobody tells of, by looking again after short pauses.
func Eventually(ctx context.Context, is func() bool) error {
	for !is() {
		select {
		case <-ctx.Done():
			return errors.New("not in time")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// Metric is the value of one series as the daemon serves it, with its labels as they are written
// there; 0 if there is none.
func (t *Trial) Metric(series string) (float64, error) {
	response, err := http.Get("http://" + t.metrics + "/metrics")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body) // all of it, or the connection is not used again
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, err
}

// Compare says what a pool has too much (+) or too little (-): for each volume a directory and a
// record, and nothing else. It waits until that is so, or its context ends.
func (t *Trial) Compare(ctx context.Context, path string, volumes ...string) error {
	var want []string
	for _, pv := range volumes {
		want = append(want, pv, "volumes/"+pv+".json")
	}
	slices.Sort(want)
	var got []string
	var err error
	if Eventually(ctx, func() bool { got, err = tree(path); return err == nil && slices.Equal(got, want) }) == nil {
		return nil
	}
	if err != nil {
		return err
	}
	var difference []string
	for _, name := range got {
		if !slices.Contains(want, name) {
			difference = append(difference, "+"+name)
		}
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			difference = append(difference, "-"+name)
		}
	}
	return fmt.Errorf("%s: %s", path, strings.Join(difference, " "))
}

// tree is every name in a pool's directory and in the daemon's own.
func tree(path string) ([]string, error) {
	var all []string
	for _, dir := range []string{"", "staging/", "trash/", "volumes/", "archive/"} {
		at := path
		if dir != "" {
			at = filepath.Join(path, ".hostpath-provisioner", dir)
		}
		entries, err := os.ReadDir(at)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Name() != "lost+found" && e.Name() != ".hostpath-provisioner" {
				all = append(all, dir+e.Name())
			}
		}
	}
	slices.Sort(all)
	return all, nil
}
