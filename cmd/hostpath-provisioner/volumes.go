package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	volumeusage "github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// How long a pool, and the API, may take to respond.
const (
	poolDeadline = 10 * time.Second
	apiDeadline  = 10 * time.Second
)

var noResponse = fmt.Errorf("no response within %s", apiDeadline)

// listed is the output of volumes --json.
type listed struct {
	Schema  int         `json:"schema"`        // daemon.SchemaVersion
	API     string      `json:"api,omitempty"` // why it was not asked
	Pools   []poolList  `json:"pools"`
	Volumes []volumeRow `json:"volumes"`
}

type poolList struct {
	Name   string `json:"name"`
	Closed string `json:"closed,omitempty"` // why it was not looked at, or the objects were not
	// Promised is what the pool keeps for all its volumes, in bytes, whether or not they use it.
	Promised uint64 `json:"promised"`
}

// volumeRow is one thing in a pool, or one object that says so.
type volumeRow struct {
	Volume    string `json:"volume"`
	Claim     string `json:"claim,omitempty"`   // namespace/name, as the API has it
	MadeFor   string `json:"madeFor,omitempty"` // as the record has it, if that is another: a populator's, say
	Pool      string `json:"pool"`
	Directory string `json:"directory,omitempty"` // below the pool's path
	Size      int64  `json:"size,omitempty"`      // bytes that were asked for
	Promised  int64  `json:"promised,omitempty"`  // bytes that the pool keeps for it, if that is another number
	State     string `json:"state"`
	// As recorded: the StorageClass, when it was made, the kind where it is no volume ("snapshot",
	// "inline"), and the volume or snapshot that its data was copied from.
	Class     string      `json:"class,omitempty"`
	Created   time.Time   `json:"created,omitzero"`
	Kind      record.Kind `json:"kind,omitempty"`
	CopyOf    string      `json:"copyOf,omitempty"`
	Unwatched bool        `json:"unwatched,omitempty"` // no daemon here finds its object by labels
	Node      string      `json:"node,omitempty"`      // whose label it has, if that is another node
	// What the volume takes and may take, where its pool has project quotas and it has a limit.
	// Elsewhere it is what the daemon found in its directory, when, and if that is an estimate.
	Used        *uint64 `json:"used,omitempty"` // bytes
	Limit       uint64  `json:"limit,omitempty"`
	InodesUsed  *uint64 `json:"inodesUsed,omitempty"`
	InodesLimit uint64  `json:"inodesLimit,omitempty"`

	Measured *time.Time `json:"measured,omitempty"`
	Estimate bool       `json:"estimate,omitempty"`
}

func (p *program) volumesCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:               "volumes [POOL]",
		ValidArgsFunction: p.completePools,
		Short:             "List what is in the pools, with what the API has for it",
		Args:              args(0, 1),
		RunE: p.ofPools(func(ctx context.Context, cfg config.Config, pools []config.Pool) error {
			return p.volumes(ctx, cfg, pools, asJSON)
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (p *program) volumes(ctx context.Context, cfg config.Config, pools []config.Pool, asJSON bool) error {
	disks, objects, all := p.settled(ctx, cfg, pools)
	p.warnUnasked(objects)
	var err error
	for _, disk := range disks {
		for _, warning := range disk.warnings {
			fmt.Fprintf(p.stderr, "%s: warning: %s\n", name, warning)
		}
		if disk.err != nil {
			fmt.Fprintf(p.stderr, "%s: pool %q was not listed: %v\n", name, disk.pool, disk.err)
			err = errNot
		}
		if disk.stranger != nil {
			fmt.Fprintf(p.stderr, "%s: warning: pool %q was listed without its objects: %v\n",
				name, disk.pool, disk.stranger)
		}
	}
	p.warnUnwatched(all.Volumes)
	if p.warnLost(all.Volumes) {
		err = errNot
	}
	if asJSON {
		return errors.Join(writeJSON(p.stdout, all), err)
	}
	return errors.Join(p.writeVolumes(all.Volumes, pools), err)
}

// writeVolumes prints what volumes take where a pool has limits.
func (p *program) writeVolumes(volumes []volumeRow, pools []config.Pool) error {
	limited := slices.ContainsFunc(pools, func(p config.Pool) bool { return p.Quota == plan.QuotaProject })
	measured := slices.ContainsFunc(volumes, func(v volumeRow) bool { return v.Measured != nil })
	columns := []string{"VOLUME", "CLAIM", "POOL", "SIZE", "STATE"}
	if limited {
		columns = slices.Insert(columns, 4, "USED", "LIMIT")
	} else if measured {
		columns = slices.Insert(columns, 4, "USED")
	}
	table := newTable(p.stdout, columns...)
	for _, v := range volumes {
		size := sizeOf(uint64(max(v.Size, 0)))
		cells := []string{printable(v.Volume), v.claim(), v.Pool, size, v.state()}
		if limited {
			cells = slices.Insert(cells, 4, v.used(p.now), sizeOf(v.Limit))
		} else if measured {
			cells = slices.Insert(cells, 4, v.used(p.now))
		}
		table.row(cells...)
	}
	return table.flush()
}

func sizeOf(n uint64) string {
	if n == 0 {
		return ""
	}
	return words.Size(n)
}

// printable keeps a name that another user chose from moving the terminal's cursor.
func printable(name string) string {
	if len(name) > words.NameMax+1+words.NameMax { // namespace/name
		name = words.Name(name)
	}
	if quoted := fmt.Sprintf("%q", name); quoted != `"`+name+`"` || strings.Contains(name, " ") {
		return quoted
	}
	return name
}

// objects is what the API knows of this node, and of the pools that it shares.
type objects struct {
	client  *kube.Client
	volumes []*corev1.PersistentVolume
	others  []*corev1.PersistentVolume // that the daemon does not watch, and that the records of these pools may be of
	named   map[string]named           // of records that none of the others is of
	handles map[string]bool            // that VolumeSnapshotContents name, nil: not known
	node    string                     // the value of this node's label
	cluster string                     // its ID, "" if this kubeconfig may not know it
	err     error                      // why it was not asked
}

func (p *program) askAPI(ctx context.Context, cfg config.Config) objects {
	ctx, cancel := context.WithTimeoutCause(ctx, apiDeadline, noResponse)
	defer cancel()
	trouble := make(chan error, 1)
	options := p.asNodeOptions(cfg)
	options.OnHealth = func(err error) {
		select {
		case trouble <- err:
		default:
		}
	}
	client, err := kube.New(options)
	if err != nil {
		return objects{err: err}
	}
	all := objects{client: client}
	list := func(watches []*kube.Informer[*corev1.PersistentVolume], into *[]*corev1.PersistentVolume) error {
		for _, volumes := range watches {
			go volumes.Run(ctx)
			select {
			case <-volumes.Synced():
				*into = append(*into, volumes.List()...)
			case err := <-trouble:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}
	if err := list(watches(client, cfg), &all.volumes); err != nil {
		return objects{err: err}
	}
	if err := list(beyond(client, cfg), &all.others); err != nil {
		return objects{err: err}
	}
	if all.cluster, err = client.ClusterID(ctx); err != nil {
		return objects{err: err}
	}
	all.handles = handles(ctx, client, cfg)
	return all
}

// watches are of this node's volumes, and of those of all nodes in the pools that have such.
func watches(client *kube.Client, cfg config.Config) []*kube.Informer[*corev1.PersistentVolume] {
	all := []*kube.Informer[*corev1.PersistentVolume]{client.Volumes(plan.NodeLabelValue(cfg.Node), nil)}
	for _, p := range cfg.Pools {
		if p.Scope != plan.ScopeNode {
			all = append(all, client.VolumesOfScope(p.Scope, []string{p.Name}, nil))
		}
	}
	return all
}

// beyond are of volumes that were made when the pools had another scope. Of other nodes' pools of
// the same names they bring some, too.
func beyond(client *kube.Client, cfg config.Config) (all []*kube.Informer[*corev1.PersistentVolume]) {
	for _, p := range cfg.Pools {
		switch p.Scope {
		case plan.ScopeShared:
			all = append(all, client.VolumesOfPool(p.Name))
		case plan.ScopeEveryNode:
			all = append(all, client.VolumesOfScope(plan.ScopeShared, []string{p.Name}, nil))
		default:
			all = append(all, client.VolumesOfScope(plan.ScopeShared, []string{p.Name}, nil), client.VolumesOfScope(plan.ScopeEveryNode, []string{p.Name}, nil))
		}
	}
	return all
}

// disk is what is in one pool.
type disk struct {
	pool      string
	inventory volume.Inventory
	mark      hostcheck.Marker
	usage     map[uint32]quota.Usage          // by project
	measured  map[string]volumeusage.Measured // by volume
	err       error                           // why it was not looked at
	stranger  error                           // why the objects that were read are not this pool's
	warnings  []string                        // beside that
}

func (p *program) listPools(ctx context.Context, pools []config.Pool) []disk {
	disks := make([]disk, len(pools))
	var listing sync.WaitGroup
	for i, pool := range pools {
		listing.Go(func() { disks[i] = p.listPool(ctx, pool) })
	}
	listing.Wait()
	return disks
}

// listPool looks into a pool that responds and is the right one. Listing has its own goroutine,
// since a filesystem can stop responding between the two.
func (p *program) listPool(ctx context.Context, pool config.Pool) disk {
	ctx, cancel := context.WithTimeout(ctx, poolDeadline)
	defer cancel()
	var warnings []string
	report := p.probe(ctx, pool)
	for _, f := range report.Findings {
		switch {
		case f.Severity != hostcheck.Close:
		case !slices.Contains(listedThough, f.Reason):
			return disk{pool: pool.Name, err: errors.New(f.Message)}
		default:
			warnings = append(warnings, fmt.Sprintf("pool %q is closed: %s", pool.Name, f.Message))
		}
	}
	listed := make(chan disk, 1)
	go func() {
		store := storeOf(pool)
		inventory, err := store.List(ctx, report.Identity)
		taken, unread := projectsTaken(ctx, store, report.Identity)
		if unread != nil {
			warnings = append(warnings, unread.Error())
		}
		listed <- disk{
			pool: pool.Name, inventory: inventory, mark: report.Mark,
			usage: taken, err: err, warnings: warnings,
		}
	}()
	select {
	case d := <-listed:
		return d
	case <-ctx.Done():
		return disk{pool: pool.Name, err: fmt.Errorf("no response within %s", poolDeadline)}
	}
}

// join puts the disks beside the API: every record, every object of a pool that was asked for, and
// what is neither.
func join(disks []disk, api objects) listed {
	all := listed{Schema: daemon.SchemaVersion, Pools: []poolList{}, Volumes: []volumeRow{}}
	if api.err != nil {
		all.API = api.err.Error()
	}
	for _, d := range disks {
		one := poolList{Name: d.pool, Promised: d.inventory.Promised()}
		if why := cmp.Or(d.err, d.stranger); why != nil {
			one.Closed = why.Error()
		}
		all.Pools = append(all.Pools, one)
		all.Volumes = append(all.Volumes, rows(d, api)...)
	}
	return all
}

// rows are one pool's: volumes by name, then what is no volume.
func rows(d disk, api objects) []volumeRow {
	if d.stranger != nil {
		api = objects{err: d.stranger}
	}
	known, others := ofPool(d.pool, api.volumes), ofPool(d.pool, api.others)
	var volumes []volumeRow
	for _, v := range d.inventory.Volumes {
		row := recordRow(d.pool, v)
		row.takes(d.usage, v.ProjectID)
		row.took(d.measured)
		pv := cmp.Or(known[v.PV], others[v.PV])
		asked := api.err == nil
		if pv == nil && asked {
			found := api.named[v.PV]
			if pv, asked = found.objectOf(v), found.err == nil; pv != nil {
				of := pv.Labels[plan.NodeLabel]
				if row.Unwatched = true; of != api.node {
					row.Node = of
				}
				if v.Sent != "" && of != api.node && of != "" { // a copy
					v.Retained, pv = true, nil
					row.Unwatched, row.Node = false, ""
				}
			}
		}
		row.State = stateOf(v, pv, asked)
		if v.Kind == record.Snapshot {
			row.State = stateOfSnapshot(v, row.State, api.handles)
		}
		row.boundTo(pv)
		volumes = append(volumes, row)
		delete(known, v.PV)
	}
	for _, pv := range known {
		volumes = append(volumes, objectRow(d, pv))
	}
	slices.SortFunc(volumes, func(a, b volumeRow) int { return cmp.Compare(a.Volume, b.Volume) })
	for _, r := range d.inventory.Archived {
		row := recordRow(d.pool, r)
		row.takes(d.usage, r.ProjectID)
		row.State = string(record.InArchive)
		volumes = append(volumes, row)
	}
	for _, broken := range d.inventory.Damaged {
		volumes = append(volumes, volumeRow{Volume: broken.File, Pool: d.pool, State: stateDamaged})
	}
	for _, left := range d.inventory.Leftovers {
		volumes = append(volumes, volumeRow{Volume: left.Name, Pool: d.pool, Directory: string(left.Place) + "/" + left.Name, State: stateLeftover})
	}
	for _, foreign := range d.inventory.Foreign {
		if foreign == "lost+found" { // mkfs makes it
			continue
		}
		volumes = append(volumes, volumeRow{Volume: foreign, Pool: d.pool, Directory: foreign, State: stateForeign})
	}
	return volumes
}

func ofPool(pool string, volumes []*corev1.PersistentVolume) map[string]*corev1.PersistentVolume {
	known := map[string]*corev1.PersistentVolume{}
	for _, pv := range volumes {
		if pv.Labels[plan.PoolLabel] == pool {
			known[pv.Name] = pv
		}
	}
	return known
}

func recordRow(pool string, r record.Record) volumeRow {
	return volumeRow{Volume: r.PV, Claim: r.Namespace + "/" + r.Claim, Pool: pool,
		Directory: r.Directory, Size: r.Requested, Promised: r.Promised,
		Class: r.Class, Created: r.Created, Kind: r.Kind, CopyOf: r.Origin.Name}
}

// boundTo takes the claim of the volume's object. That is another than the record's after a volume
// populator, or people, bound the volume anew; the record keeps the claim that it was made for, and
// goes with that one's UID.
func (r *volumeRow) boundTo(pv *corev1.PersistentVolume) {
	if pv == nil || pv.Spec.ClaimRef == nil {
		return
	}
	if now := pv.Spec.ClaimRef.Namespace + "/" + pv.Spec.ClaimRef.Name; now != r.Claim {
		r.MadeFor, r.Claim = r.Claim, now
	}
}

// claim is what the table shows.
func (r volumeRow) claim() string {
	if r.MadeFor == "" {
		return printable(r.Claim)
	}
	return printable(r.Claim) + " (made for " + printable(r.MadeFor) + ")"
}

// objectRow is a volume of which only the API knows; in a pool that could not be looked at, that
// says nothing.
func objectRow(d disk, pv *corev1.PersistentVolume) volumeRow {
	size, _ := plan.Bytes(plan.SizeOf(pv))
	row := volumeRow{Volume: pv.Name, Pool: d.pool, Size: size, State: stateMissing}
	row.boundTo(pv)
	if d.err != nil {
		row.State = phase(pv)
	}
	return row
}
