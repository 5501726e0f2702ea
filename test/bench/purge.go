package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// casePurge is the removal of one large volume, without a cluster.
const casePurge = "purge"

// What is to be reached.
const (
	wantPurge   = 1.0 // the time of rm -rf
	wantMemory  = 1.1 // resident memory with all files, of that with a tenth of them
	wantCreates = 1.3 // the median time of a creation beside a purge, of one without
)

// purgeCreates is how many volumes are made beside a removal.
const purgeCreates = 1000

// measurePurge removes the same volume by a purge and by rm -rf, in turn, and makes volumes beside
// both.
func (b *bench) measurePurge(ctx context.Context) error {
	fmt.Fprintf(b.out, "\n%s, a volume of %d files on loop %s in %s\n\n", harness.Machine(), b.files, b.fs, b.place())
	var ratios, work []float64
	for repeat := range b.purgeRepeats {
		took := map[string]purged{}
		order := []string{doRm, doPurge}
		if repeat%2 > 0 {
			slices.Reverse(order)
		}
		for _, do := range order {
			took[do] = harness.Got(b.removal(ctx, do, b.files, 0))
		}
		ratios = append(ratios, took[doPurge].Took.Seconds()/took[doRm].Took.Seconds())
		work = append(work, took[doPurge].CPU.Seconds()/took[doRm].CPU.Seconds())
		fmt.Fprintf(b.out, "#%d  purge %s, of the processors %s, resident at most %.1f MiB; rm -rf %s, of the processors %s\n", repeat+1,
			seconds(took[doPurge].Took), seconds(took[doPurge].CPU), mib(took[doPurge].Memory), seconds(took[doRm].Took), seconds(took[doRm].CPU))
		if repeat == 0 {
			harness.Check(b.purgeMemory(ctx, took[doPurge]))
		}
	}
	fmt.Fprintln(b.out, verdict(estimate{value: middle(ratios)}, wantPurge, false, casePurge+": %s of the time of rm -rf, %.2f or less wanted"))
	fmt.Fprintf(b.out, "        of the processors' time: %.2f of that of rm -rf, which other programs disturb less\n", middle(work))
	return b.purgeCreates(ctx)
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// purgeMemory compares a purge with that of a tenth of the files.
func (b *bench) purgeMemory(ctx context.Context, all purged) error {
	few := harness.Got(b.removal(ctx, doPurge, b.files/10, 0))
	fmt.Fprintf(b.out, "    a purge of %d files: resident at most %.1f MiB\n", b.files/10, mib(few.Memory))
	fmt.Fprintln(b.out, verdict(estimate{value: float64(all.Memory) / float64(few.Memory)}, wantMemory, false, casePurge+": %s of the memory for a tenth of the files, %.2f or less wanted"))
	return nil
}

// purgeCreates makes volumes beside each way of removal, and beside none.
func (b *bench) purgeCreates(ctx context.Context) error {
	took := map[string][]time.Duration{}
	for _, do := range []string{doNothing, doPurge, doRm, doIdle} {
		got := harness.Got(b.removal(ctx, do, b.files, purgeCreates))
		took[do] = got.Creates
		fmt.Fprintf(b.out, "a creation beside %-8s p50 %s  p99 %s\n", do+":", ms(quantile(got.Creates, 0.5)), ms(quantile(got.Creates, 0.99)))
	}
	ratio := float64(quantile(took[doPurge], 0.5)) / float64(quantile(took[doNothing], 0.5))
	fmt.Fprintln(b.out, verdict(estimate{value: ratio}, wantCreates, false, casePurge+": a creation beside it takes %s times as long, %.2f or less wanted"))
	return nil
}

// removal fills a volume on a new filesystem, and has it removed.
func (b *bench) removal(ctx context.Context, do string, files, creates int) (purged, error) {
	image := b.mkfs("-N", strconv.Itoa(files+files/10+2*purgeCreates+10_000))
	path := hosttest.PoolMount(b, image)
	defer func() {
		hosttest.Unmount(b, path)
		os.Remove(image.File)
	}()
	harness.Got(b.purgeChild(ctx, path, doFill, files, 0))
	return b.purgeChild(ctx, path, do, 0, creates)
}

// purgeChild runs one child, and returns what it printed.
func (b *bench) purgeChild(ctx context.Context, path, do string, files, creates int) (got purged, err error) {
	order := harness.Got(json.Marshal(purgeOrder{path, do, files, creates}))
	cmd := exec.CommandContext(ctx, "/proc/self/exe", purgeCommand, string(order))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return got, fmt.Errorf("%s: %w", do, err)
	}
	return got, json.Unmarshal(out, &got)
}

// purgeCommand makes this program one that fills, removes or creates volumes of a pool, without a
// cluster.
const purgeCommand = "purge"

// What it does.
const (
	doFill    = "fill"    // a volume with files, which is in the trash then
	doNothing = "nothing" // is removed
	doPurge   = "purge"   // the daemon's way
	doRm      = "rm"      // rm -rf
	doIdle    = "idle"    // the same, with I/O priority idle
)

// purged is what the child prints in JSON.
type purged struct {
	Took    time.Duration // of the removal
	CPU     time.Duration // of the processors, for it
	Memory  int64         // the most that this process had resident, in bytes
	Creates []time.Duration
}

// purgeOrder is what it is to do in a pool: the number of files to make, and of volumes meanwhile.
type purgeOrder struct {
	Path, Do       string
	Files, Creates int
}

// purgeChild is one call of it.
type purgeChild struct {
	*volume.Pool
	purgeOrder
	id mounts.Identity
}

func purgeMain(args []string) int {
	var c purgeChild
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &c.purgeOrder) != nil {
		return 2
	}
	var result purged
	err := harness.Outcome(func() (err error) {
		result, err = c.run(context.Background())
		return err
	})
	if err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(result)); err != nil {
		fmt.Fprintln(os.Stderr, "purge:", err)
		return 1
	}
	return 0
}

func (c *purgeChild) run(ctx context.Context) (result purged, err error) {
	c.Pool = volume.New(volume.Options{Name: poolName, Path: c.Path})
	c.id = harness.Got(pool.IdentityOf(c.Path))
	if c.Do == doFill {
		return result, c.fill(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	removed := make(chan error, 1)
	began := time.Now()
	go func() { removed <- c.remove(ctx) }()
	if c.Creates == 0 {
		err = <-removed
	} else {
		result.Creates, err = c.createBeside(ctx, removed)
	}
	result.Took, result.Memory = time.Since(began), peakMemory(os.Getpid())
	result.CPU = usedCPU(unix.RUSAGE_SELF) + usedCPU(unix.RUSAGE_CHILDREN)
	return result, err
}

// usedCPU is the processor time of this process, or of its children that ended.
func usedCPU(who int) time.Duration {
	var used unix.Rusage
	if unix.Getrusage(who, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// benchVolume is the volume that is removed.
const benchVolume = "pvc-removed"

func (c *purgeChild) spec(pv string) volume.Spec {
	return volume.Spec{Mode: 0o777, Record: record.Record{
		PV: pv, Namespace: "bench", Claim: pv, ClaimUID: pv, Directory: pv, OnDelete: "delete", Requested: 1 << 20,
	}}
}

// fill makes the volume with files in directories of a thousand, of which each tenth has a block,
// and gives it to the trash.
func (c *purgeChild) fill(ctx context.Context) error {
	harness.Check(c.InitMarker(ctx, c.id, []byte("{\"version\": 1}\n")))
	top := harness.Got(c.Create(ctx, c.id, c.spec(benchVolume)))
	dir := ""
	for i := range c.Files {
		if i%1000 == 0 {
			dir = filepath.Join(top, strconv.Itoa(i/1000))
			harness.Check(os.Mkdir(dir, 0o777))
		}
		var data []byte
		if i%10 == 0 {
			data = []byte("data")
		}
		harness.Check(os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), data, 0o600))
	}
	unix.Sync()
	harness.Check(c.Trash(ctx, c.id, benchVolume))
	return c.Discard(ctx, c.id, benchVolume)
}

func (c *purgeChild) remove(ctx context.Context) error {
	command := []string{"rm", "-rf", filepath.Join(c.Path, ".hostpath-provisioner", "trash", benchVolume+"~")}
	switch c.Do {
	case doPurge:
		_, err := c.Purge(ctx, c.id, benchVolume)
		return err
	case doNothing:
		<-ctx.Done()
		return nil
	case doIdle:
		command = append([]string{"ionice", "-c", "3"}, command...)
	}
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if len(out) > 0 {
		err = errors.Join(err, fmt.Errorf("%q", out))
	}
	return err
}

// createBeside makes volumes, one after the other, until they are enough or the removal is
// complete. It returns how long each took that was made before that, sorted.
func (c *purgeChild) createBeside(ctx context.Context, removed chan error) (took []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	defer func() { slices.Sort(took) }()
	for i := range c.Creates {
		began := time.Now()
		harness.Got(c.Create(ctx, c.id, c.spec(fmt.Sprintf("pvc-%s-%d", c.Do, i))))
		select {
		case err := <-removed:
			return took, err
		default:
			took = append(took, time.Since(began))
		}
	}
	return took, nil
}
