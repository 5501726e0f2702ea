package plan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Attributes of a volume with source csi. The service that publishes volumes compares them with the
// volume's record, and uses neither as a path: each user who can edit the object could write /etc
// there.
const (
	AttributePool = "pool" // the pool's name
	AttributePath = "path" // of the volume's directory, as a hostPath volume would have it
)

// DriverNamePossible reports whether a CSIDriver can have this name: storage.k8s.io validates it as
// a driver's name (pkg/apis/core/validation, ValidateCSIDriverName), and as an object's.
func DriverNamePossible(name string) bool {
	return len(name) <= 63 && len(validation.IsDNS1123Subdomain(name)) == 0
}

// csiSource is the source of a volume that kubelet has published by the daemon's own CSI driver.
func (f ClaimFacts) csiSource(pv, path string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: f.Provisioner, VolumeHandle: pv,
		VolumeAttributes: map[string]string{AttributePool: f.Pool.Name, AttributePath: path},
	}}
}

// csiPath is the path that a CSI volume of ours says, "" for one whose handle is not its own name:
// the record of another volume would be found by it.
func csiPath(v *corev1.PersistentVolume) string {
	switch {
	case v.Spec.CSI.VolumeHandle != v.Name:
		return ""
	case v.Spec.CSI.Driver == KubevirtCSI:
		return v.Annotations[PathAnnotation]
	}
	return v.Spec.CSI.VolumeAttributes[AttributePath]
}

// refuseCSI is why a class's volumes cannot have the source csi, nil if they can.
func (s Self) refuseCSI(class *storagev1.StorageClass, pool Pool) *Refusal {
	switch {
	case pool.Source != SourceCSI:
		return nil
	case pool.Scope == ScopeEveryNode:
		return refuse(ReasonBadParameter, "class %s: %s: pool %s has scope %s, whose volumes cannot have the source %s", class.Name, paramSource, pool.Name, pool.Scope, SourceCSI)
	case !DriverNamePossible(s.Provisioner):
		return refuse(ReasonBadParameter, "class %s: %s: %q cannot be a CSI driver's name", class.Name, paramSource, s.Provisioner)
	case len(class.MountOptions) > 0:
		return refuse(ReasonBadParameter, "class %s: mountOptions: a volume with source %s takes none; mount the pool's filesystem with them", class.Name, SourceCSI)
	}
	return nil
}

// LacksDriver is why pods would not start on volumes of a CSI driver, "" if they would. driver is
// nil if the cluster has no CSIDriver of the name: kube-controller-manager and kubelet then have
// the volumes attached first, for which there is no controller, and pods wait for ever
// (pkg/volume/csi, CanAttach).
func LacksDriver(name string, driver *storagev1.CSIDriver) string {
	const apply = "hostpath-provisioner manifests | kubectl apply -f -"
	switch {
	case driver == nil:
		return fmt.Sprintf("the cluster has no CSIDriver %s; an administrator runs: %s", name, apply)
	case driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired:
		return fmt.Sprintf("CSIDriver %s has attachRequired: true, which cannot be changed, and pods would wait for ever; an administrator deletes it, and runs: %s", name, apply)
	}
	return ""
}

// driverAfter is soon, because an administrator has just read the message.
const driverAfter = 5 * time.Second

// driverLacking: a volume with source csi is made when the cluster can use it.
func driverLacking(f RequestFacts) (Refusal, bool) {
	return Refusal{Help: ByItself, Reason: ReasonDriver, Message: "source " + SourceCSI + ": " + f.Driver, After: driverAfter}, f.Driver != ""
}
