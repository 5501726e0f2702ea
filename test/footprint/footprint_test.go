package footprint

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
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
	began := time.Now()
	if err := Fill(b.Context(), c.Client(), 0, *pairs); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d pairs made in %s", *pairs, time.Since(began).Round(time.Second))
	for _, program := range strings.Split(*programs, ",") {
		b.Run(program, func(b *testing.B) {
			for range b.N {
				measure(b, c, program)
			}
		})
	}
}

// measure runs one program until its memory is at rest.
func measure(b *testing.B, c *cluster.Cluster, program string) {
	b.Helper()
	meter, err := NewMeter(c.Config().Host)
	if err != nil {
		b.Fatal(err)
	}
	defer meter.Close()
	kubeconfig := filepath.Join(b.TempDir(), "kubeconfig")
	if err := meter.Kubeconfig(c.Kubeconfig(), kubeconfig); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(build(b, strings.Replace(program, "indexed", "filtered", 1)), kubeconfig, program)
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
	took, received := time.Since(began), meter.Received()
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
