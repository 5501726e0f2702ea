package plan

// Keys and names that other software reads or writes. The source of each is named, because a wrong
// letter here is a volume that is never deleted.
const (
	// StorageProvisioner is written on a claim by kube-controller-manager: at once for Immediate
	// binding, after selected-node for WaitForFirstConsumer
	// (pkg/controller/volume/persistentvolume), unless it finds the volume there by then.
	StorageProvisioner = "volume.kubernetes.io/storage-provisioner"
	// StorageProvisionerBeta is its older name, read when the first is absent.
	StorageProvisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
	// MigratedTo is written on a claim by kube-controller-manager: the CSI driver in whose hands it
	// put the claims of one of its own plugins (pkg/controller/volume/persistentvolume,
	// updateMigrationAnnotations).
	MigratedTo = "pv.kubernetes.io/migrated-to"
	// SelectedNode is the node name that the scheduler chose; the provisioner removes it where it
	// cannot provision.
	SelectedNode = "volume.kubernetes.io/selected-node"
	// ClassBeta names a claim's class before spec.storageClassName did.
	ClassBeta = "volume.beta.kubernetes.io/storage-class"
	// ProvisionOnNode is the node name that the claim's author asked for (kubevirt).
	ProvisionOnNode = "kubevirt.io/provisionOnNode"
	// ProvisionedBy is the class's provisioner name on a volume. Without it kube-controller-manager
	// runs its own hostPath deleter on the control plane's machine.
	ProvisionedBy = "pv.kubernetes.io/provisioned-by"
	// Finalizer keeps a volume object until its directory is gone.
	Finalizer = "external-provisioner.volume.kubernetes.io/finalizer"
	// PVProtection is the finalizer that Kubernetes itself puts on a volume object, and again
	// within a second where it was taken off one that is not being deleted.
	PVProtection = "kubernetes.io/pv-protection"
	// HostnameLabel is the node label that affinity is written with; its value may differ from the
	// node's name.
	HostnameLabel = "kubernetes.io/hostname"

	// NodeLabel and PoolLabel are ours, on volumes: a daemon watches the volumes of its node only.
	NodeLabel = "hostpath-provisioner/node"
	PoolLabel = "hostpath-provisioner/pool"
	// ScopeLabel is on volumes that are not one node's, in place of NodeLabel: every daemon that
	// has their pool watches them.
	ScopeLabel = "hostpath-provisioner/scope"
	// PathAnnotation is ours, on volumes of a CSI driver that were adopted as they are: the path of
	// the directory, which nothing else of the object says.
	PathAnnotation = "hostpath-provisioner/path"
	// SentAnnotation is ours: the UID of the last stream that the volume was written to, and the
	// only one that its object follows. A label of this name no node has (Parked).
	SentAnnotation = "hostpath-provisioner/sent"
	// AdoptedAnnotation is ours, on volumes that were adopted from another provisioner.
	AdoptedAnnotation = "hostpath-provisioner/adopted"
	// HeldAnnotation is ours, on an object that adopt is about to replace: its reclaim policy, which
	// is Retain meanwhile.
	HeldAnnotation = "hostpath-provisioner/reclaim-policy"
	// SizeAnnotation is ours, on adopted volumes whose capacity is not what their claims request:
	// see SizeOf.
	SizeAnnotation = "hostpath-provisioner/size"
)

// DefaultProvisioner is the StorageClass.provisioner that the daemon serves. It has no slash, so
// that a CSIDriver object of the same name can exist (the scheduler's capacity check looks it up).
const DefaultProvisioner = "hostpath-provisioner"
