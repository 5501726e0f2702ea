package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
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
			got, err := b.removal(ctx, do, b.files, 0)
			if err != nil {
				return err
			}
			took[do] = got
		}
		ratios = append(ratios, took[doPurge].Took.Seconds()/took[doRm].Took.Seconds())
		work = append(work, took[doPurge].CPU.Seconds()/took[doRm].CPU.Seconds())
		fmt.Fprintf(b.out, "#%d  purge %s, of the processors %s, resident at most %.1f MiB; rm -rf %s, of the processors %s\n", repeat+1,
			seconds(took[doPurge].Took), seconds(took[doPurge].CPU), mib(took[doPurge].Memory), seconds(took[doRm].Took), seconds(took[doRm].CPU))
		if repeat == 0 {
			if err := b.purgeMemory(ctx, took[doPurge]); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(b.out, verdict(estimate{value: middle(ratios)}, wantPurge, false, casePurge+": %s of the time of rm -rf, %.2f or less wanted"))
	fmt.Fprintf(b.out, "        of the processors' time: %.2f of that of rm -rf, which other programs disturb less\n", middle(work))
	return b.purgeCreates(ctx)
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// purgeMemory compares a purge with that of a tenth of the files.
func (b *bench) purgeMemory(ctx context.Context, all purged) error {
	few, err := b.removal(ctx, doPurge, b.files/10, 0)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "    a purge of %d files: resident at most %.1f MiB\n", b.files/10, mib(few.Memory))
	fmt.Fprintln(b.out, verdict(estimate{value: float64(all.Memory) / float64(few.Memory)}, wantMemory, false, casePurge+": %s of the memory for a tenth of the files, %.2f or less wanted"))
	return nil
}

// purgeCreates makes volumes beside each way of removal, and beside none.
func (b *bench) purgeCreates(ctx context.Context) error {
	took := map[string][]time.Duration{}
	for _, do := range []string{doNothing, doPurge, doRm, doIdle} {
		got, err := b.removal(ctx, do, b.files, purgeCreates)
		if err != nil {
			return err
		}
		took[do] = got.Creates
		fmt.Fprintf(b.out, "a creation beside %-8s p50 %s  p99 %s\n", do+":", ms(quantile(got.Creates, 0.5)), ms(quantile(got.Creates, 0.99)))
	}
	ratio := float64(quantile(took[doPurge], 0.5)) / float64(quantile(took[doNothing], 0.5))
	fmt.Fprintln(b.out, verdict(estimate{value: ratio}, wantCreates, false, casePurge+": a creation beside it takes %s times as long, %.2f or less wanted"))
	return nil
}

// removal fills a volume on a new filesystem, and has it removed.
func (b *bench) removal(ctx context.Context, do string, files, creates int) (purged, error) {
	image := b.mkfs(hosttest.Dir(b), "-N", strconv.Itoa(files+files/10+2*purgeCreates+10_000))
	path := hosttest.PoolMount(b, image)
	defer func() {
		hosttest.Unmount(b, path)
		os.Remove(image.File)
	}()
	if _, err := b.purgeChild(ctx, path, doFill, files, 0); err != nil {
		return purged{}, err
	}
	return b.purgeChild(ctx, path, do, 0, creates)
}

// purgeChild runs one child, and returns what it printed.
func (b *bench) purgeChild(ctx context.Context, path, do string, files, creates int) (got purged, err error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", purgeCommand, "-pool="+path, "-do="+do, "-files="+strconv.Itoa(files), "-creates="+strconv.Itoa(creates))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return got, fmt.Errorf("%s: %w", do, err)
	}
	return got, json.Unmarshal(out, &got)
}
