package plan

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Systems whose place this daemon can take, by the provisioner name that their classes and volumes
// carry. The facts are read from their sources.
const (
	Torchbox    = "torchbox.com/hostpath"
	MaZderMind  = "hostpath"
	Kubevirt    = "kubevirt.io/hostpath-provisioner"
	KubevirtCSI = "kubevirt.io.hostpath-provisioner"
	Kubeboost   = "kubeboost.github.com/hostpath-multihost-provisioner"
	Microk8s    = "microk8s.io/hostpath"
	Rancher     = "rancher.io/local-path" // k3s ships it
)

// Identity annotations. HostPathIdentity has three meanings, told apart by ProvisionedBy: for
// MaZderMind and microk8s the node that the program itself ran on (with microk8s that need not be
// the volume's), for kubevirt the provisioner's name.
const (
	HostPathIdentity    = "hostPathProvisionerIdentity"
	TorchboxIdentity    = "torchbox.com/hostpath-provisioner-id"
	KubeboostIdentity   = Kubeboost + "-identity"
	RancherSelectedNode = "local.path.provisioner/selected-node"
)

// KubevirtNodeLabel is the key by which volumes of kubevirt's CSI driver name their node. kubelet
// puts the label on the node when a driver that has it registers.
const KubevirtNodeLabel = "topology.hostpath.csi/node"

// KubevirtPool is the parameter of its classes, and the attribute of its volumes, that names a
// pool.
const KubevirtPool = "storagePool"

// System is how one of them speaks.
type System struct {
	Name string // as people call it
	// Program is a part of its container images' names, without registry and tag.
	Program []string

	directory  func(pv, namespace, claim string) string
	params     map[string]string // its class parameters, and ours that mean the same
	impossible map[string]string // its class parameters that nothing here does, and why
	anyCase    bool              // the parameters' names are the same in capitals
	Outside    bool              // its documents run the program outside of the cluster, too
	Whole      bool              // it writes the filesystem's size as each volume's capacity
	marks      func(node string) map[string]string
}

func byVolume(pv, _, _ string) string            { return pv }
func byClaim(pv, namespace, claim string) string { return namespace + "-" + claim + "-" + pv }

var systems = map[string]System{
	Torchbox: {
		Name: "torchbox", Program: []string{"k8s-hostpath-provisioner"}, directory: byVolume,
		params: map[string]string{paramPvDir: paramPvDir, "cephFSQuota": "cephFSQuota"}, anyCase: true, Outside: true,
		// Its -id; it deletes only volumes that carry its own.
		marks: func(string) map[string]string { return map[string]string{TorchboxIdentity: Torchbox} },
	},
	MaZderMind: {
		Name: "MaZderMind", Program: []string{"hostpath-provisioner"}, directory: byClaim,
		marks: func(node string) map[string]string { return map[string]string{HostPathIdentity: node} },
	},
	Kubevirt: {
		Name: "kubevirt", Program: []string{"hostpath-provisioner"}, directory: byVolume,
		Whole: true,
		marks: func(node string) map[string]string {
			return map[string]string{HostPathIdentity: Kubevirt, ProvisionOnNode: node}
		},
	},
	KubevirtCSI: {
		Name: "kubevirt CSI", Program: []string{"hostpath-csi-driver",
			"hostpath-provisioner-operator"}, directory: byVolume, Whole: true,
		params: map[string]string{KubevirtPool: paramPool},
	},
	Kubeboost: {
		Name: "kubeboost", Program: []string{"hostpath-multihost-provisioner", "hostpath-multihost-manager"}, directory: byClaim,
		marks: func(string) map[string]string { return map[string]string{KubeboostIdentity: Kubeboost} },
	},
	Microk8s: {
		Name: "microk8s", Program: []string{"hostpath-provisioner"}, directory: byClaim,
		params: map[string]string{paramPvDir: paramPvDir},
		marks:  func(node string) map[string]string { return map[string]string{HostPathIdentity: node} },
	},
	Rancher: {
		Name: "rancher", Program: []string{"local-path-provisioner"},
		directory: func(pv, namespace, claim string) string { return pv + "_" + namespace + "_" + claim },
		params:    map[string]string{"nodePath": paramPvDir},
		impossible: map[string]string{
			"pathPattern":            "a volume's directory lies directly in the pool; the pool's directory key names it",
			"allowUnsafePathPattern": "a volume's directory lies directly in the pool; the pool's directory key names it",
		},
		marks: func(node string) map[string]string { return map[string]string{RancherSelectedNode: node} },
	},
}

// plain are the aliases that are no known system. torchbox's program can be given any name (-name),
// and takes its parameters in any case.
var plain = System{Name: "another provisioner", params: systems[Torchbox].params, anyCase: true}

// SystemOf is what is known of a provisioner's name. An unknown name is a plain one: classes
// of that name get our own behaviour, but for the spelling of torchbox's parameters.
func SystemOf(provisioner string) (System, bool) {
	s, known := systems[provisioner]
	return s, known
}

// translate gives a class of another system our words for its parameters. What it does not know,
// our own rules judge.
func (s Self) translate(class *storagev1.StorageClass, pools []Pool) (*storagev1.StorageClass, *Refusal) {
	system, known := SystemOf(class.Provisioner)
	switch {
	case known:
	case slices.Contains(s.Aliases, class.Provisioner):
		system = plain
	default:
		return class, nil
	}
	copied := *class // all but the parameters is read alone, and this is asked several times for each claim
	ours := &copied
	ours.Parameters = map[string]string{}
	for _, theirs := range slices.Sorted(maps.Keys(class.Parameters)) {
		key, why := system.parameter(theirs)
		if why != "" {
			return nil, refuse(ReasonBadParameter, "class %s: parameter %q of %s: %s", class.Name, theirs, system.Name, why)
		}
		if _, twice := ours.Parameters[key]; twice {
			return nil, refuse(ReasonBadParameter, "class %s: parameter %q says again what another one says", class.Name, theirs)
		}
		ours.Parameters[key] = class.Parameters[theirs]
	}
	if dir, placed := ours.Parameters[paramPvDir]; placed {
		ours.Parameters[paramPvDir] = path.Clean(dir) // they joined it with a name, so that a slash at the end did not matter
	}
	if kind := class.Annotations[defaultVolumeType]; class.Provisioner == Rancher && kind != "" {
		// in any case, as there
		source := map[string]string{"local": SourceLocal,
			"hostpath": SourceHostPath}[strings.ToLower(kind)]
		if source == "" {
			return nil, refuse(ReasonBadParameter,
				"class %s: volumeType %q is neither local nor hostPath", class.Name, kind)
		}
		ours.Parameters[paramSource] = source
	}
	legacy := func(p Pool) bool { return p.Name == "legacy" } // the CSI driver's default
	if _, named := ours.Parameters[paramPool]; class.Provisioner == KubevirtCSI && !named && slices.ContainsFunc(pools, legacy) {
		ours.Parameters[paramPool] = "legacy"
	}
	return ours, nil
}

// Annotations of rancher's: the kind of its volumes that a claim, or else its class, has.
const (
	volumeType        = "volumeType"
	defaultVolumeType = "defaultVolumeType"
)

// ClassFor is a claim's class as the claim has it: rancher's claims may name the kind of their
// volume.
func ClassFor(c *corev1.PersistentVolumeClaim,
	class *storagev1.StorageClass) *storagev1.StorageClass {
	kind := c.Annotations[volumeType]
	if kind == "" || class.Provisioner != Rancher {
		return class
	}
	copied := *class
	copied.Annotations = map[string]string{defaultVolumeType: kind}
	return &copied
}

// parameter is our word for a parameter of the system, or why there is none. One that the system
// does not know stays as it is.
func (s System) parameter(theirs string) (ours, why string) {
	if why := s.impossible[theirs]; why != "" {
		return "", why
	}
	for name, ours := range s.params {
		if name == theirs || s.anyCase && strings.EqualFold(name, theirs) {
			return ours, ""
		}
	}
	return theirs, ""
}

// sourced gives a pool the source of the volumes of a class's own system, unless the configuration
// says which: hostPath, but for the CSI driver.
func (s Self) sourced(provisioner string, pool Pool) Pool {
	_, known := SystemOf(provisioner)
	theirs := known || slices.Contains(s.Aliases, provisioner)
	if theirs && provisioner != KubevirtCSI && !pool.Sourced {
		pool.Source = SourceHostPath
	}
	return pool
}

// named gives a pool the directory names of a class's own system, unless the configuration says how
// they are made.
func named(provisioner string, pool Pool) Pool {
	system, known := SystemOf(provisioner)
	if !known || pool.Named {
		return pool
	}
	pool.Directory = func(pv, namespace, claim string) (string, error) {
		name := system.directory(pv, namespace, claim)
		if len(name) > nameMax {
			return "", fmt.Errorf("directory %q has %d bytes, a name has at most %d", name, len(name), nameMax)
		}
		return name, nil
	}
	return pool
}

// nameMax is the length of a path element in bytes (limits.h, NAME_MAX).
const nameMax = 255

// mark puts on a volume what its class's own system puts there, so that it would know the volume.
// An alias that is no known system and whose class says pvDir is the -name of a torchbox program.
func mark(annotations map[string]string, f ClaimFacts) {
	by := f.Class.Provisioner
	annotations[ProvisionedBy] = by
	system, known := SystemOf(by)
	if !known && by != f.Provisioner && placed(f.Class) {
		system = systems[Torchbox]
	}
	if system.marks != nil {
		maps.Copy(annotations, system.marks(f.Node))
	}
}

func placed(class *storagev1.StorageClass) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(class.Parameters)), func(key string) bool { return strings.EqualFold(key, paramPvDir) })
}
