// Package config turns TOML files into a Config, and says everything that is wrong with them at
// once.
//
// It reads the configuration files, that of the metrics' server, the user database and the
// permissions of the kubeconfig. It does not look at a pool's disk (hostcheck does), does not
// contact the API, does not log, and has no advice: an error is a fact with its file, line and key.
package config

import (
	"io/fs"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// Values of Pool.Immutable.
const (
	ImmutableRequire = "require" // the gate closes without the flag
	ImmutableWarn    = "warn"    // its absence is reported
	ImmutableOff     = "off"     // it is not looked at
)

// Projects of volumes where the configuration has no range: 0x48500000 to 0x4850ffff. kubelet takes
// projects from 1048577 upwards (fsquota/project.go), containers-storage from 1 or 10000.
const (
	QuotaFirst = 1213202432
	QuotaLast  = 1213267967
)

// Values of Pool.ReclaimPolicy, as Kubernetes spells them.
const (
	PolicyDelete = "Delete"
	PolicyRetain = "Retain"
)

// Config is a whole, valid configuration.
type Config struct {
	Provisioner string   // StorageClass.provisioner that the daemon serves
	Aliases     []string // further ones that it serves, nil for none
	Node        string   // name of this host's Node object
	Kubeconfig  string   // absolute path; whether it is there is found out at run time
	Namespace   string   // of the daemon's own objects, its Leases
	Metrics     string   // host:port to listen on, "" for none
	// MetricsWebConfig is the web configuration file of the metrics, "" for none.
	MetricsWebConfig string
	// WebError is why that file cannot be used, nil if it can or there is none. Without it
	// everything but the metrics works.
	WebError error
	// VolumeMetrics is how many volumes have metrics of their own at most. 0: none, and volumes
	// without a quota are not measured.
	VolumeMetrics int
	// PublishCapacity: the scheduler is told what each class can still get on this node.
	PublishCapacity bool
	// ActOnSelectedNode: a claim is provisioned as soon as the scheduler chose this node for it,
	// before kube-controller-manager asks a provisioner, if no volume is kept for it.
	ActOnSelectedNode bool
	// KubeletRoot is kubelet's --root-dir, absolute and clean. Its own configuration is not read.
	KubeletRoot string
	// CSIDrivers are other provisioners' CSI drivers, each one of Aliases, in whose place the node
	// service mounts their volumes.
	CSIDrivers []string
	Confine    bool   // take from the daemon what it does not need
	Pools      []Pool // at least one, sorted by name
	// Warnings are findings that do not stop the daemon, in the form of an error's line.
	Warnings []string
}

// Pool is one [pool.NAME] table. Pools compare with ==.
type Pool struct {
	Name       string // a DNS label, because it becomes a label's value
	Set        string // the table of several paths that this is one of; "" is a table of its own
	Path       string // absolute and clean; at or below MountPoint
	MountPoint string // absolute and clean; Path where the file does not say
	// RequireMount false means a plain directory on the host's own filesystem.
	RequireMount bool
	Immutable    string // ImmutableRequire, ImmutableWarn or ImmutableOff
	Filesystem   string // type as in mountinfo, "" for any
	Device       string // "UUID=..", "PARTUUID=..", "LABEL=..", "PARTLABEL=..", "/dev/..", "server:/export", "" for any
	Scope        string // plan.ScopeNode, plan.ScopeShared or plan.ScopeEveryNode
	Exclusive    bool   // a filesystem of the network is mounted on this node and no other
	// Source is plan.SourceHostPath, plan.SourceLocal or plan.SourceCSI; where the file does not say
	// (SourceSet), it is the second with plan.ScopeNode, and else the first.
	Source    string
	SourceSet bool

	Mode  fs.FileMode // of a volume's directory; setgid and sticky are fs.ModeSetgid, fs.ModeSticky
	Owner string      // as written; UID is what it means
	Group string      // as written; GID is what it means
	UID   int
	GID   int

	Directory Pattern // name of a volume's directory
	OnDelete  string  // plan.OnDeleteDelete or plan.OnDeleteArchive
	// ReclaimPolicy of the pool's volumes, in place of the class's: PolicyDelete, PolicyRetain, or
	// "" for the class's.
	ReclaimPolicy string
	// SELinuxType is what volumes are labelled with where SELinux is on; "" leaves it to the
	// policy.
	SELinuxType string
	// Clones is how claims are made from other claims: plan.ClonesReflink, plan.ClonesCopy or
	// plan.ClonesOff.
	Clones string
	// Snapshots is how snapshots of volumes are made: plan.SnapshotsLive and its like.
	Snapshots string
	// PauseLimit is how long pods may stand still with plan.SnapshotsPaused.
	PauseLimit time.Duration
	// SnapshotSpace is how many bytes the snapshots of one namespace may be promised together; 0:
	// any.
	SnapshotSpace uint64
	// InlineVolumes is how many bytes the volumes that are written in pods may be promised
	// together; 0: there are none.
	InlineVolumes uint64
	// Quota is how each volume is limited to its claim's size: plan.QuotaProject, plan.QuotaCeph or
	// plan.QuotaOff.
	Quota string
	// QuotaFirst and QuotaLast are the projects that volumes get with QuotaProject.
	QuotaFirst, QuotaLast uint32
	// InodesPerGiB limits the inodes of a volume with QuotaProject; 0 does not.
	InodesPerGiB uint64

	// ReservePercent (of the filesystem's size) or ReserveBytes is kept free; one of them is zero.
	ReservePercent float64
	ReserveBytes   uint64
	// Overcommit is how many times what the reserve leaves of the filesystem may be promised to
	// volumes.
	Overcommit float64
	// Accept are reasons of warnings that are not given, sorted, with commas between them.
	Accept string
	// Default: the pool of classes that name none. The only pool is the default one unless its
	// table says default = false.
	Default bool
}

// Default is the configuration of an empty file: everything but the node's name, which is the
// host's, and the pools, for which there is no default.
func Default() Config {
	return Config{
		Provisioner:       "hostpath-provisioner",
		Kubeconfig:        "/etc/hostpath-provisioner/kubeconfig",
		Namespace:         "hostpath-provisioner",
		Metrics:           "127.0.0.1:9812",
		Confine:           true,
		KubeletRoot:       "/var/lib/kubelet",
		VolumeMetrics:     1000,
		PublishCapacity:   true,
		ActOnSelectedNode: true,
	}
}

// DefaultPool is a pool of which the file says nothing but its name. It has no path.
func DefaultPool(name string) Pool {
	return Pool{
		Name:           name,
		RequireMount:   true,
		Immutable:      ImmutableRequire,
		Scope:          plan.ScopeNode,
		Source:         plan.SourceLocal,
		Mode:           0o777,
		Owner:          "root",
		Group:          "root",
		Directory:      Pattern{"{{.PV}}"},
		OnDelete:       plan.OnDeleteDelete,
		SELinuxType:    "container_file_t",
		ReservePercent: 5,
		Clones:         plan.ClonesOff,
		Snapshots:      plan.SnapshotsOff,
		PauseLimit:     5 * time.Second,
		Quota:          plan.QuotaOff,
		QuotaFirst:     QuotaFirst,
		QuotaLast:      QuotaLast,
		Overcommit:     1,
	}
}

// TakesSnapshots reports whether snapshots are made of the pool's volumes.
func (p Pool) TakesSnapshots() bool { return plan.Pool{Snapshots: p.Snapshots}.TakesSnapshots() }

// MakesInline reports whether volumes that are written in pods are made in the pool.
func (p Pool) MakesInline() bool { return p.InlineVolumes > 0 }

// Pauses reports whether pods are stopped for snapshots of their volumes.
func (p Pool) Pauses() bool { return p.Snapshots == plan.SnapshotsPaused }

// MakesCopies reports whether volumes of the pool are copied, for clones or for snapshots.
func (p Pool) MakesCopies() bool { return p.MakesClones() || p.TakesSnapshots() }

// MakesClones reports whether claims can be made from claims in the pool.
func (p Pool) MakesClones() bool { return plan.Pool{Clones: p.Clones}.ClonesVolumes() }

// Pool finds a pool by its name.
func (c Config) Pool(name string) (Pool, bool) {
	for _, p := range c.Pools {
		if p.Name == name {
			return p, true
		}
	}
	return Pool{}, false
}

// Before are the pools that come before this one.
func (c Config) Before(name string) []Pool {
	i := slices.IndexFunc(c.Pools, func(p Pool) bool { return p.Name == name })
	return c.Pools[:max(i, 0)]
}
