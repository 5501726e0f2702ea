package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/mountpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/prober"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/confine"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
)

// checked is the output of check --json.
type checked struct {
	Schema int         `json:"schema"` // daemon.SchemaVersion
	Pools  []poolCheck `json:"pools"`
	Host   []finding   `json:"host"`
	// SELinux is "enforcing", "permissive" or "disabled".
	SELinux string `json:"selinux"`
	// Landlock is the ABI that the daemon can use here, 0 for none; absent where this process may
	// not ask.
	Landlock *int `json:"landlock,omitempty"`
	// Kernel is what the kernel may lack beside Landlock.
	Kernel []hostcheck.Feature `json:"kernel"`
}

// poolCheck is a report with a hint beside each finding.
type poolCheck struct {
	Open bool `json:"open"`
	hostcheck.Report
	Findings []finding `json:"findings"`    // in place of the report's
	Took     float64   `json:"tookSeconds"` // in place of the report's nanoseconds
	// Sizes in place of the report's: absent while the storage is.
	Size       *uint64 `json:"size,omitempty"`
	Available  *uint64 `json:"available,omitempty"`
	Reserve    *uint64 `json:"reserve,omitempty"`
	Free       *uint64 `json:"free,omitempty"`     // what one more volume can get
	Used       *uint64 `json:"used,omitempty"`     // what the volumes take, if that is known
	Promised   *uint64 `json:"promised,omitempty"` // what the pool keeps for them, once that was read
	Inodes     *uint64 `json:"inodes,omitempty"`
	InodesFree *uint64 `json:"inodesFree,omitempty"`
	Note       string  `json:"note,omitempty"`
}

func checkOf(of probed) poolCheck {
	r := of.Report
	one := poolCheck{Open: r.Open(), Report: r, Findings: []finding{}, Took: r.Took.Seconds(),
		Used: of.used, Promised: of.promised, Note: of.note}
	if r.Size > 0 {
		one.Size, one.Available, one.Reserve = &r.Size, &r.Available, &r.Reserve
		one.Inodes, one.InodesFree = &r.Inodes, &r.InodesFree
	}
	if r.Size > 0 && of.promised != nil {
		one.Free = &r.Free
	}
	return one
}

type finding struct {
	hostcheck.Finding
	Hint string `json:"hint,omitempty"`
}

func (p *program) checkCommand() *cobra.Command {
	var asJSON, configOnly, cluster bool
	var deadline time.Duration
	c := &cobra.Command{
		Use:               "check [POOL]",
		ValidArgsFunction: p.completePools,
		Short:             "Check that this host is what its pools need; works without a cluster",
		Args:              args(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, pools, err := p.loadPools(args)
			if err != nil {
				return err
			}
			if deadline <= 0 {
				return usageError{fmt.Errorf("--deadline: %s is not positive", deadline)}
			}
			if configOnly && cluster {
				return usageError{errors.New("--config-only and --cluster exclude each other")}
			}
			if configOnly {
				if err := cmp.Or(cfg.WebError, p.reloadable(cfg)); err != nil {
					return err
				}
				_, err := fmt.Fprintf(p.stdout, "%s: configuration is valid\n", p.config)
				return err
			}
			if cluster {
				if len(args) > 0 || c.Flags().Changed("deadline") {
					return usageError{errors.New("--cluster looks at no pool")}
				}
				return p.checkCluster(c.Context(), cfg, asJSON)
			}
			if cfg.WebError != nil { // which is no reason to keep kubelet from starting
				p.warn("no metrics will be served: " + cfg.WebError.Error())
			}
			return p.check(c.Context(), pools, deadline, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&configOnly, "config-only", false, "read the configuration and look at nothing else")
	c.Flags().BoolVar(&cluster, "cluster", false, "look at the cluster in place of the pools, with the daemon's credential: what it may do, when it ends, what confines it")
	c.Flags().DurationVar(&deadline, "deadline", 5*time.Second, "how long a pool may take to respond")
	return c
}

// reloadable reports, to `systemctl reload`, why the running daemon would refuse this
// configuration. systemd names the daemon to the commands of ExecReload= (systemd.service(5),
// MAINPID).
func (p *program) reloadable(cfg config.Config) error {
	if os.Getenv("MAINPID") == "" {
		return nil
	}
	s, err := daemon.ReadStatus(p.runtimeDir)
	if err != nil || strconv.Itoa(s.PID) != os.Getenv("MAINPID") {
		return nil // it has not told yet, and will refuse by itself
	}
	cfg.Kubeconfig = cmp.Or(p.kubeconfig, systemd.Credential(systemd.CredentialKubeconfig), cfg.Kubeconfig)
	return daemon.Fits(daemon.Options{Config: p.config, StateDir: p.stateDir, RuntimeDir: p.runtimeDir}, s.Confined, cfg)
}

func (p *program) check(ctx context.Context, pools []config.Pool, deadline time.Duration, asJSON bool) error {
	all := checked{Schema: daemon.SchemaVersion, Pools: p.checkAll(ctx, pools, deadline),
		Host: []finding{}, SELinux: selinux.Mode(), Kernel: hostcheck.Kernel(os.DirFS("/"))}
	p.addTrouble(all.Pools)
	if abi, known := confine.ABI(); known {
		all.Landlock = &abi
	}
	selinuxFindings := hostcheck.CheckSELinux(all.SELinux, !selinux.Lacks(selinux.PoolType))
	host := hostcheck.Report{Findings: append(hostcheck.CheckHost(os.DirFS("/")), selinuxFindings...)}
	host.Add(p.notInForce())
	for _, f := range host.Findings {
		all.Host = append(all.Host, finding{f, reasonHints[f.Reason]})
	}
	if asJSON {
		return cmp.Or(writeJSON(p.stdout, all), worst(all.Pools))
	}
	return cmp.Or(p.writeChecked(all), worst(all.Pools))
}

// notInForce finds that the running daemon works with another configuration than this one.
func (p *program) notInForce() (hostcheck.Finding, bool) {
	s, err := p.status()
	return hostcheck.Finding{
		Reason: plan.ReasonNotInForce, Severity: hostcheck.Warn,
		Message: fmt.Sprintf("the running daemon (pid %d) has an older configuration: %s", s.PID, s.Config),
	}, err == nil && s.Config != ""
}

// addTrouble adds what the running daemon knows of volumes whose data is lost: to warn, since other
// volumes' pods are to run.
func (p *program) addTrouble(pools []poolCheck) {
	s, err := p.status()
	if err != nil {
		return
	}
	for i := range pools {
		for _, told := range s.Pools {
			if told.Name != pools[i].Pool || told.Trouble() == "" {
				continue
			}
			lost := hostcheck.Finding{Reason: plan.ReasonVolumeLost, Severity: hostcheck.Warn,
				Message: told.Trouble()}
			if told.States["missing"] == 0 {
				lost.Reason = plan.ReasonRecordDamaged
			}
			hint := "which, says: hostpath-provisioner volumes " + told.Name
			pools[i].Findings = append(pools[i].Findings, finding{lost, hint})
		}
	}
}

// worst tells storage that is missing or wrong, which has to keep kubelet from starting, from
// storage that is full, on which pods run and make room.
func worst(pools []poolCheck) (err error) {
	for _, one := range pools {
		switch {
		case !one.Removable():
			return errNot
		case !one.Open:
			err = errFull
		}
	}
	return err
}

// checkAll looks at all pools.
func (p *program) checkAll(ctx context.Context, pools []config.Pool,
	deadline time.Duration) []poolCheck {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	all := make([]poolCheck, len(pools))
	for i, one := range p.probeAll(ctx, pools) {
		all[i] = checkOf(one)
		for _, f := range one.Findings {
			all[i].Findings = append(all[i].Findings, finding{f, poolHint(f.Reason, pools[i])})
		}
	}
	return all
}

// probe looks at a pool once, with what is remembered of it and what its records say.
func (p *program) probe(ctx context.Context, pool config.Pool) hostcheck.Report {
	r, _ := p.look(ctx, pool)
	return r
}

// look is probe with what is in the pool, nil where that was not read.
func (p *program) look(ctx context.Context, pool config.Pool) (
	hostcheck.Report, *volume.Inventory) {
	remembered, err := state.Remembered(p.stateDir, pool.Name)
	r := hostcheck.NewProber(p.expect(pool, remembered)).Asking(mountpoint.Service, mountpoint.Under).Probe(ctx)
	inventory := inventoryOf(ctx, pool, r)
	r.Findings = append(r.Findings, p.foreignRecords(pool, r, inventory)...)
	r.Add(wrongLabels(ctx, pool, r))
	r.Add(laxMount(pool, r))
	r.Add(p.notServed(pool))
	r.Add(prober.Cordoned(p.stateDir, pool.Name))
	r.Add(inMemory(pool, r))
	if err != nil {
		r.AddFirst(hostcheck.Finding{
			Reason: plan.ReasonStateUnreadable, Message: err.Error(), Severity: hostcheck.Close})
	}
	p.explain(pool, &r)
	return r.Without(pool.Accepts), inventory
}

// explain compares the pool with the unit that this process is, or else with the daemon's.
func (p *program) explain(pool config.Pool, r *hostcheck.Report) {
	if own := daemon.OwnUnit(p.host); own.Name != "" {
		own.Explain(pool, true, r)
		return
	}
	daemon.UnitOf(p.host, name+".service").Explain(pool, false, r)
}

// expect is what the host must be for a pool of the configuration that was loaded.
func (p *program) expect(pool config.Pool, remembered string) hostcheck.Expect {
	return prober.Expect(p.node, pool, remembered, p.loaded.Before(pool.Name)...)
}

// writeChecked prints a line for each pool and, below, everything that was found.
func (p *program) writeChecked(c checked) error {
	w := p.stdout
	table := newTable(w, "POOL", "PATH", "STATUS", "USED", "PROMISED", "FREE")
	for _, one := range c.Pools {
		table.row(one.Pool, one.Path, verdict(one.Report), known(one.Used), known(one.Promised),
			freeOf(one.Free, one.Report.Size))
	}
	if err := table.flush(); err != nil {
		return err
	}
	for _, one := range c.Pools {
		for _, f := range one.Findings {
			p.writeFinding("pool "+one.Pool, f)
		}
		if one.Note != "" {
			fmt.Fprintf(w, "\nnote: pool %s: %s\n", one.Pool, one.Note)
		}
	}
	for _, f := range c.Host {
		p.writeFinding("host", f)
	}
	fmt.Fprintf(w, "\nSELinux is %s\n%s\n", c.SELinux, landlockOf(c.Landlock))
	for _, line := range hostcheck.Lacking(c.Kernel) {
		fmt.Fprintln(w, line)
	}
	return nil
}

func landlockOf(abi *int) string {
	switch {
	case abi == nil:
		return "whether Landlock is available is not known: " +
			"this process's filter of system calls refuses the question"
	case *abi == 0:
		return "Landlock (ABI 2, Linux 5.19) is not available on this kernel, " +
			"so that the daemon reaches every file that its capabilities allow"
	case *abi < confine.ScopingABI:
		return fmt.Sprintf("Landlock is available (ABI %d); before ABI %d (Linux 6.12) it denies "+
			"neither signals nor abstract sockets of other processes", *abi, confine.ScopingABI)
	}
	return fmt.Sprintf("Landlock is available (ABI %d)", *abi)
}

func verdict(r hostcheck.Report) string {
	f, closed := r.Closed()
	switch {
	case !closed:
		return "open"
	case f.Reason == plan.ReasonCordoned:
		return "cordoned"
	case f.Severity == hostcheck.Full:
		return "full: " + f.Reason
	default:
		return "closed: " + f.Reason
	}
}

func (p *program) writeFinding(of string, f finding) {
	what, mark := f.Reason, p.mark(slog.LevelError)
	if f.Severity != hostcheck.Close {
		mark = p.mark(slog.LevelWarn)
	}
	if f.Severity == hostcheck.Warn {
		what = "warning " + what
	}
	fmt.Fprintf(p.stdout, "\n%s%s: %s: %s\n", mark, of, what, f.Message)
	if f.Hint != "" {
		fmt.Fprintf(p.stdout, "%shint: %s\n", mark, f.Hint)
	}
}

// freeOf is what one more volume can get, "" before that is known.
func freeOf(free *uint64, size uint64) string {
	if free == nil || size == 0 {
		return ""
	}
	return words.Size(*free) + " of " + words.Size(size)
}

func writeJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(v)
}

// laxMount looks for mount options that keep what a tenant writes from counting on the host: a
// set-uid file, or a device, that a container's root made in its volume is there for every user of
// the host who gets at it. Only a pool that has a filesystem of its own can have them.
func laxMount(pool config.Pool, r hostcheck.Report) (hostcheck.Finding, bool) {
	on, found := mountOf(pool, r)
	if lacks := lacking(on.Options); found && len(lacks) > 0 {
		return hostcheck.Finding{Reason: plan.ReasonLaxMount, Severity: hostcheck.Warn,
			Message: fmt.Sprintf("%s is mounted without %s, so that set-uid files and devices in volumes count on this host", on.Point, strings.Join(lacks, ","))}, true
	}
	return hostcheck.Finding{}, false
}

// inMemory looks for a filesystem whose volumes, and the marker and the records with them, a reboot
// takes away. It may be meant.
func inMemory(pool config.Pool, r hostcheck.Report) (hostcheck.Finding, bool) {
	on, found := mountOf(pool, r)
	return hostcheck.Finding{Reason: plan.ReasonInMemory, Severity: hostcheck.Warn,
		Message: fmt.Sprintf("%s is in memory (%s): its volumes are gone after a reboot, and the pool is closed then", on.Point, on.FSType)}, found && slices.Contains([]string{"tmpfs", "ramfs"}, on.FSType)
}

// mountOf is the filesystem of a pool that has one of its own. What cannot be seen the report says.
func mountOf(pool config.Pool, r hostcheck.Report) (on mounts.Mount, found bool) {
	if !pool.RequireMount || !r.Removable() {
		return on, false
	}
	return coveringMount(pool.Path)
}

func lacking(options string) []string {
	has := strings.Split(options, ",")
	return slices.DeleteFunc([]string{"nosuid", "nodev"}, func(option string) bool { return slices.Contains(has, option) })
}

// sourceNote is what check says of a pool whose default source was hostPath before it was local,
// "" once the configuration says the source or the volumes of that time are gone. Those of aliases
// have the source of their own programs.
func (p *program) sourceNote(pool config.Pool, inventory *volume.Inventory) string {
	if pool.SourceSet || pool.Source != plan.SourceLocal || inventory == nil {
		return ""
	}
	before := 0
	for _, r := range inventory.Volumes {
		own := r.Kind == record.Volume && r.Provisioner == p.loaded.Provisioner
		if own && r.Source == plan.SourceHostPath {
			before++
		}
	}
	if before == 0 {
		return ""
	}
	return fmt.Sprintf("new volumes have source %q; %s of source %q, the default before, "+
		"stay as they are. Write source = %q, or %q for new ones as before, to end this note",
		plan.SourceLocal, words.Count(before, "volume"), plan.SourceHostPath,
		plan.SourceLocal, plan.SourceHostPath)
}
