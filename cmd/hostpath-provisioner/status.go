package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/presence"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// errNoDaemon says that there is no daemon whose status could be printed.
var errNoDaemon = errors.New("the daemon is not running")

// statusEvery is between two looks with --watch.
const statusEvery = 2 * time.Second

func (p *program) statusCommand() *cobra.Command {
	var asJSON, watch bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Print the status of the running daemon",
		Args:  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.repeated(c.Context(), watch, statusEvery, nil, func(w, _ io.Writer) error {
				s, err := p.status()
				if err != nil {
					return err
				}
				if asJSON {
					err = writeJSON(w, toldOf(s))
				} else {
					err = writeStatus(w, s, p.now())
				}
				return cmp.Or(err, wellOf(s))
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print it again when something changed")
	return c
}

// status reads the daemon's file, which one that was killed leaves behind.
func (p *program) status() (daemon.Status, error) {
	s, err := daemon.ReadStatus(p.runtimeDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, fmt.Errorf("%w: %s has no %s", errNoDaemon, p.runtimeDir, daemon.StatusFile)
	case err != nil:
		return s, err
	case errors.Is(unix.Kill(s.PID, 0), unix.ESRCH):
		return s, fmt.Errorf("%w: pid %d has exited; its last status is of %s", errNoDaemon, s.PID, s.Time.UTC().Format(time.RFC3339))
	}
	return s, nil
}

// wellOf is nil if everything works: the API, all requests that something waits for, all pools, and
// the next start with the configuration on disk.
// As for check it is errFull if pools are full and nothing else is wrong.
func wellOf(s daemon.Status) error {
	var err error
	if !s.Ready || s.API != "" || s.Stalled != "" || s.Refuses() != nil || s.OldConfig {
		return errNot
	}
	for _, pool := range s.Pools {
		switch {
		case pool.Trouble() != "":
			return errNot
		case pool.Full:
			err = errFull
		case !pool.Open:
			return errNot
		}
	}
	return err
}

// told is the output of status --json: the daemon's file, and for each pool what is not in that.
type told struct {
	daemon.Status
	Pools []toldPool `json:"pools"` // in place of the status's
}

type toldPool struct {
	daemon.PoolStatus
	Hint  string     `json:"hint,omitempty"`  // what helps against the reason
	Mount *toldMount `json:"mount,omitempty"` // that the path lies on, as this process sees it
}

type toldMount struct {
	Point   string `json:"point"`
	Source  string `json:"source"` // "/dev/sda1", "server:/export"; may be empty
	FSType  string `json:"fsType"`
	Options string `json:"options"`
}

func toldOf(s daemon.Status) told {
	all := told{Status: s, Pools: []toldPool{}}
	for _, pool := range s.Pools {
		one := toldPool{PoolStatus: pool, Hint: hintOf(pool)}
		if on, found := coveringMount(pool.Path); found {
			one.Mount = &toldMount{on.Point, on.Source, on.FSType, on.Options}
		}
		all.Pools = append(all.Pools, one)
	}
	return all
}

// hintOf is what helps against the reason of a pool that is not open, "" where nothing is known.
func hintOf(pool daemon.PoolStatus) string {
	if pool.Open {
		return ""
	}
	mount := cmp.Or(pool.MountPoint, pool.Path)
	return poolHint(pool.Reason, config.Pool{Name: pool.Name, Path: pool.Path, MountPoint: mount})
}

func writeStatus(w io.Writer, s daemon.Status, now time.Time) error {
	ready := "ready"
	if !s.Ready || s.Stalled != "" {
		ready = "not ready"
	}
	fmt.Fprintf(w, "%s %s, pid %d, %s as of %s ago\n", name, s.Version, s.PID, ready, age(s.Time, now))
	fmt.Fprintf(w, "node %s, provisioner %s\n%s\n", s.Node, s.Provisioner, s.Sentence)
	if s.Confined != nil {
		fmt.Fprintln(w, s.Confined)
	}
	if s.CredentialExpires != nil && !s.CredentialRefused {
		fmt.Fprintf(w, "credential for the API server until %s\n", s.CredentialExpires.UTC().Format(time.RFC3339))
	}
	fmt.Fprintln(w)
	table := newTable(w, "POOL", "PATH", "STATUS", "SINCE", "VOLUMES", "USED", "PROMISED", "FREE")
	for _, pool := range s.Pools {
		table.row(pool.Name, pool.Path, verdictOf(pool), age(pool.Since, now), volumesOf(s, pool),
			taken(pool.Used, pool.UsedEstimate), known(pool.Promised), freeOf(pool.Free, pool.Size))
	}
	if err := table.flush(); err != nil {
		return err
	}
	writeWork(w, s.Work)
	if s.Config != "" {
		fmt.Fprintf(w, "\nconfiguration: %s: %s\nhint: %s\n",
			plan.ReasonNotInForce, s.Config, reasonHints[plan.ReasonNotInForce])
	}
	for _, refused := range s.Refused {
		fmt.Fprintf(w, "\n%s: %s: %s\n", refused.What, plan.ReasonAPIRefused, refused.Message)
	}
	if more := s.RefusedRequests - len(s.Refused); more > 0 {
		fmt.Fprintf(w, "\nand %s more\n", words.Count(more, "refused request"))
	}
	for _, pool := range slices.Sorted(maps.Keys(s.Left)) {
		fmt.Fprintf(w, "\npool %s: warning %s: it is not configured, and this node has volumes in it: %d\n",
			printable(pool), plan.ReasonUnknownPool, s.Left[pool])
		fmt.Fprintln(w, "hint: add the pool again as it was, "+
			"or see \"A pool that is no longer configured\" in docs/operation.md")
	}
	for _, pool := range s.Pools {
		writePoolStatus(w, pool)
	}
	return nil
}

// workMost is how many of the purges and copies under way the status shows.
const workMost = 10

func writeWork(w io.Writer, all []daemon.Work) {
	for i, one := range all {
		if i == 0 {
			fmt.Fprintln(w)
		}
		if i == workMost {
			fmt.Fprintf(w, "and %d more under way\n", len(all)-i)
			return
		}
		fmt.Fprintf(w, "pool %s: %s of %s: %s\n", one.Pool, one.Kind, one.Volume, one.Sentence)
	}
}

// writePoolStatus is what there is to say of a pool besides its line in the table.
func writePoolStatus(w io.Writer, pool daemon.PoolStatus) {
	if !pool.Open {
		fmt.Fprintf(w, "\npool %s: %s: %s\n", pool.Name, pool.Reason, pool.Message)
		if hint := hintOf(pool); hint != "" {
			fmt.Fprintf(w, "hint: %s\n", hint)
		}
	}
	if trouble := pool.Trouble(); trouble != "" {
		fmt.Fprintf(w, "\npool %s: %s\nhint: which, says: hostpath-provisioner volumes %s\n",
			pool.Name, trouble, pool.Name)
	}
	for _, f := range pool.Findings {
		if f.Reason == pool.Reason {
			continue
		}
		what := f.Reason
		if f.Severity == hostcheck.Warn {
			what = "warning " + what
		}
		fmt.Fprintf(w, "\npool %s: %s: %s\n", pool.Name, what, f.Message)
	}
}

// volumesOf is how many volume objects a pool has, "" before the API was read.
func volumesOf(s daemon.Status, pool daemon.PoolStatus) string {
	if !s.Ready {
		return ""
	}
	return strconv.Itoa(pool.Volumes)
}

// known is a size, "" if it is not known.
func known(bytes *uint64) string {
	if bytes == nil {
		return ""
	}
	return words.Size(*bytes)
}

// taken is known with a mark for an estimate.
func taken(bytes *uint64, estimate bool) string {
	if bytes == nil || !estimate {
		return known(bytes)
	}
	return "~" + known(bytes)
}

func verdictOf(pool daemon.PoolStatus) string {
	verdict := stateAndReason(pool.State(), pool.Reason)
	switch {
	case pool.Scope != plan.ScopeShared:
		return verdict
	case pool.Worker == "":
		return verdict + "; no leader"
	default:
		return verdict + "; leader " + pool.Worker
	}
}

// stateAndReason is a pool's state with its reason, where the one does not say the other.
func stateAndReason(state, reason string) string {
	if reason == "" || state == presence.PoolOpen || state == presence.PoolCordoned {
		return state
	}
	return state + ": " + reason
}

// age is how long ago something was, as people say it; "" for never.
func age(then, now time.Time) string {
	d := now.Sub(then)
	switch {
	case then.IsZero():
		return ""
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", max(d, 0)/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}
