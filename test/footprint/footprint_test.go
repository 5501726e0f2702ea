// Package footprint measures what watching costs on a node of a large cluster: resident memory and
// bytes received, with claims and volumes of other nodes in a real API server.
//
//	go test ./test/footprint -run '^$' -bench . -args -pairs 20000
//
// With 20,000 pairs on Kubernetes 1.36: our filtered informers 18 to 20 MiB resident (23 at most) and 1.24 MB received,
// the same with the typed clientset linked in 25 to 30 (31), client-go's shared informers 225 to 250 and 51 to 53 MB.
//
// It judges nothing but the limit of the filtered informers, and it is a benchmark, so that it runs only when asked.
package footprint

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

var (
	pairs    = flag.Int("pairs", 20000, "claims with a volume each, all of other nodes")
	programs = flag.String("programs", "filtered,indexed,shared", "directories of the programs to measure; indexed is filtered, by the label of the claim index")
)

// limit is the resident memory at which the benchmark fails, in MiB.
const limit = 30

func BenchmarkFootprint(b *testing.B) {
	c, err := cluster.Start(b.Context(), cluster.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Stop(); err != nil {
			b.Error(err)
		}
	})
	if err := c.Apply(b.Context(), []byte(claimindex.Manifest)); err != nil {
		b.Fatal(err)
	}
	fill(b, c.Client())
	for _, program := range strings.Split(*programs, ",") {
		b.Run(program, func(b *testing.B) {
			for range b.N {
				measure(b, c, program)
			}
		})
	}
}

// fill makes the pairs as kube-controller-manager leaves them: bound to each other.
func fill(b *testing.B, client kubernetes.Interface) {
	b.Helper()
	began, next := time.Now(), atomic.Int64{}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(*pairs); i = next.Add(1) {
				if err := pair(b.Context(), client, int(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
	b.Logf("%d pairs made in %s", *pairs, time.Since(began).Round(time.Second))
}

func pair(ctx context.Context, client kubernetes.Interface, i int) error {
	node := fmt.Sprintf("other-%d", i%100)
	claim := cluster.Claim("default", fmt.Sprintf("data-application-%d", i), "fast", "1Gi")
	claim.Annotations = map[string]string{
		plan.StorageProvisioner: plan.DefaultProvisioner, plan.StorageProvisionerBeta: plan.DefaultProvisioner,
		plan.SelectedNode: node, "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
	}
	claim.Labels = map[string]string{"app.kubernetes.io/name": "application", "app.kubernetes.io/instance": fmt.Sprint(i)}
	claim.Spec.VolumeName = fmt.Sprintf("pvc-of-%d", i)
	made, err := client.CoreV1().PersistentVolumeClaims("default").Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	directory := corev1.HostPathDirectory
	_, err = client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: claim.Spec.VolumeName, Finalizers: []string{plan.Finalizer},
			Labels:      map[string]string{plan.NodeLabel: node, plan.PoolLabel: "fast"},
			Annotations: map[string]string{plan.ProvisionedBy: plan.DefaultProvisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, StorageClassName: "fast",
			AccessModes: claim.Spec.AccessModes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "default", Name: made.Name, UID: made.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/fast/" + claim.Spec.VolumeName, Type: &directory}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: plan.HostnameLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	return err
}

// measure runs one program until its memory is at rest.
func measure(b *testing.B, c *cluster.Cluster, program string) {
	b.Helper()
	meter := newMeter(b, strings.TrimPrefix(c.Config().Host, "https://"))
	cmd := exec.Command(build(b, strings.Replace(program, "indexed", "filtered", 1)), meter.kubeconfig(b, c.Kubeconfig()), program)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatalf("%s ended: %v", program, err)
	}
	took, received := time.Since(began), meter.received.Load()
	rss, peak := status(b, cmd.Process.Pid, "VmRSS"), status(b, cmd.Process.Pid, "VmHWM")
	b.Logf("%s: %s: %.1f MiB resident, %.1f at most, %.2f MB received, %s",
		program, strings.TrimSpace(line), rss, peak, float64(received)/1e6, took.Round(time.Millisecond))
	b.ReportMetric(rss, "MiB-resident")
	b.ReportMetric(peak, "MiB-peak")
	b.ReportMetric(float64(received)/1e6, "MB-received")
	b.ReportMetric(0, "ns/op")
	if program != "shared" && peak > limit {
		b.Errorf("%.1f MiB at most, want %d", peak, limit)
	}
}

func build(b *testing.B, program string) string {
	b.Helper()
	binary := filepath.Join(b.TempDir(), program)
	cmd := exec.Command("go", "build", "-trimpath", "-o", binary, "./"+program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return binary
}

// status is a field of /proc/PID/status (proc(5)) in MiB.
func status(b *testing.B, pid int, field string) float64 {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == field+":" {
			kib, err := strconv.Atoi(words[1])
			if err != nil {
				b.Fatal(err)
			}
			return float64(kib) / 1024
		}
	}
	b.Fatalf("no %s in %s", field, data)
	return 0
}

// meter is a TCP proxy that counts what the server sends, TLS included.
type meter struct {
	net.Listener
	server   string
	received atomic.Int64
}

func newMeter(b *testing.B, server string) *meter {
	b.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	m := &meter{Listener: lis, server: server}
	go m.serve()
	b.Cleanup(func() { _ = lis.Close() })
	return m
}

func (m *meter) serve() {
	for {
		client, err := m.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		server, err := net.Dial("tcp", m.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
		go func() { _, _ = io.Copy(countingWriter{client, &m.received}, server); _ = client.Close() }()
	}
}

type countingWriter struct {
	io.Writer
	n *atomic.Int64
}

func (w countingWriter) Write(data []byte) (int, error) {
	w.n.Add(int64(len(data)))
	return w.Writer.Write(data)
}

// kubeconfig is a copy of a kubeconfig that leads through the meter.
func (m *meter) kubeconfig(b *testing.B, of string) string {
	b.Helper()
	config, err := clientcmd.LoadFromFile(of)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range config.Clusters {
		c.Server = "https://" + m.Addr().String()
	}
	path := filepath.Join(b.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		b.Fatal(err)
	}
	return path
}
