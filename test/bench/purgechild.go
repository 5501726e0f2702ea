package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
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
)

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

// purgeChild is one call of it.
type purgeChild struct {
	*volume.Pool
	path, do       string
	files, creates int
	id             mounts.Identity
}

func purgeMain(args []string) int {
	var c purgeChild
	flags := flag.NewFlagSet(purgeCommand, flag.ContinueOnError)
	flags.StringVar(&c.path, "pool", "", "the pool's directory")
	flags.StringVar(&c.do, "do", "", "what to do")
	flags.IntVar(&c.files, "files", 0, "how many files to make")
	flags.IntVar(&c.creates, "creates", 0, "how many volumes to make meanwhile")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	result, err := c.run(context.Background())
	if err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(result)); err != nil {
		fmt.Fprintln(os.Stderr, "purge:", err)
		return 1
	}
	return 0
}

func (c *purgeChild) run(ctx context.Context) (result purged, err error) {
	c.Pool = volume.New(volume.Options{Name: poolName, Path: c.path})
	fd, err := unix.Open(c.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return result, err
	}
	defer unix.Close(fd)
	if c.id, err = mounts.IdentityOf(fd); err != nil {
		return result, err
	}
	if c.do == doFill {
		return result, c.fill(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	removed := make(chan error, 1)
	began := time.Now()
	go func() { removed <- c.remove(ctx) }()
	if c.creates == 0 {
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
	if err := c.InitMarker(ctx, c.id, []byte("{\"version\": 1}\n")); err != nil {
		return err
	}
	top, err := c.Create(ctx, c.id, c.spec(benchVolume))
	if err != nil {
		return err
	}
	dir := ""
	for i := range c.files {
		if i%1000 == 0 {
			dir = filepath.Join(top, strconv.Itoa(i/1000))
			if err := os.Mkdir(dir, 0o777); err != nil {
				return err
			}
		}
		var data []byte
		if i%10 == 0 {
			data = []byte("data")
		}
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), data, 0o600); err != nil {
			return err
		}
	}
	unix.Sync()
	if err := c.Trash(ctx, c.id, benchVolume); err != nil {
		return err
	}
	return c.Discard(ctx, c.id, benchVolume)
}

func (c *purgeChild) remove(ctx context.Context) error {
	command := []string{"rm", "-rf", filepath.Join(c.path, ".hostpath-provisioner", "trash", benchVolume+"~")}
	switch c.do {
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
	for i := range c.creates {
		began := time.Now()
		if _, err := c.Create(ctx, c.id, c.spec(fmt.Sprintf("pvc-%s-%d", c.do, i))); err != nil {
			return took, err
		}
		select {
		case err := <-removed:
			return took, err
		default:
			took = append(took, time.Since(began))
		}
	}
	return took, nil
}
