package identity

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	notOwn    = "the volume is another node's, or no node's"
	notUnder  = "the volume's path is under none of the paths for its scope"
	noVolumes = "the volume's path is no volume's"
)

// attempts is the table. The order is that of the documentation.
var attempts = []attempt{
	{"create a volume with the label of node-b", create(volume("1", "node-b")), notOwn, "the label has to be the node that the token is bound to"},
	{"create a volume with no node's label", create(volume("2", "node-a", func(pv *corev1.PersistentVolume) { pv.Labels = nil })), notOwn, "the same"},
	{"create a volume without node affinity", create(volume("3", "node-a", func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity = nil })), "the volume's affinity is not this node's", "a pod of another node would use that node's directory"},
	{"create a volume with node-b's affinity", create(volume("4", "node-a", func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity = affinity("host-of-node-b") })), "the volume's affinity is not this node's", "the same"},
	{"create a volume with a second term of affinity", create(volume("5", "node-a", func(pv *corev1.PersistentVolume) {
		r := pv.Spec.NodeAffinity.Required
		r.NodeSelectorTerms = append(r.NodeSelectorTerms, affinity("host-of-node-b").Required.NodeSelectorTerms...)
	})), "the volume's affinity is not this node's", "one term is enough for a pod"},
	{"create a volume on `/`", create(volume("6", "node-a", at("/"))), notUnder, "only what the ConfigMap lists"},
	{"create a volume on `/etc`", create(volume("7", "node-a", at("/etc"))), notUnder, "the same"},
	{"create a volume on `/srv/fast/../../etc`", create(volume("8", "node-a", at("/srv/fast/../../etc"))), "must not contain '..'", "the API server's own validation, and the policy's"},
	{"create a volume on `/srv/fast/./../x`", create(volume("9", "node-a", at("/srv/fast/./../x"))), "must not contain '..'", "the same"},
	{"create a volume beside the pool, `/srv/fast2/x`", create(volume("10", "node-a", at("/srv/fast2/x"))), notUnder, "a path is compared by its parts"},
	{"create a volume that is the pool itself", create(volume("11", "node-a", at("/srv/fast"))), notUnder, "the pool's directory is no volume"},
	{"create a volume that is the pool, `/srv/fast/.`", create(volume("12", "node-a", at("/srv/fast/."))), noVolumes, "the same"},
	{"create a volume on the records of the pool", create(volume("13", "node-a", at("/srv/fast/.hostpath-provisioner/volumes"))), noVolumes, "the daemon's own directory"},
	{"create a volume on `/srv/fast//x`", create(volume("14", "node-a", at("/srv/fast//x"))), noVolumes, "no daemon writes that"},
	{"create a volume of another CSI driver with a Secret of kube-system", create(volume("15", "node-a", func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "other.example", VolumeHandle: "x", NodePublishSecretRef: &corev1.SecretReference{Namespace: "kube-system", Name: "s"}}}
	})), "the volume's source is no directory of a pool", "hostPath, local and its own CSI driver are what the daemon writes"},
	{"create a CSI volume of the own driver with a Secret", create(volume("15a", "node-a", ofCSI(func(csi *corev1.CSIPersistentVolumeSource) {
		csi.NodePublishSecretRef = &corev1.SecretReference{Namespace: "kube-system", Name: "s"}
	}))), "the volume's source is no directory of a pool", "the driver wants none"},
	{"create a CSI volume with another volume's handle", create(volume("15b", "node-a", ofCSI(func(csi *corev1.CSIPersistentVolumeSource) { csi.VolumeHandle = "pvc-other" }))),
		"the volume's source is no directory of a pool", "it would be mounted with the other one's data"},
	{"create a CSI volume with a path elsewhere", create(volume("15c", "node-a", ofCSI(func(csi *corev1.CSIPersistentVolumeSource) { csi.VolumeAttributes["path"] = "/etc" }))), notUnder, "only what the ConfigMap lists"},
	{"create a volume on NFS", create(volume("16", "node-a", func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "files", Path: "/"}}
	})), "the volume's source is no directory of a pool", "the same"},
	{"create a hostPath volume that makes its directory", create(volume("17", "node-a", func(pv *corev1.PersistentVolume) {
		kind := corev1.HostPathDirectoryOrCreate
		pv.Spec.HostPath.Type = &kind
	})), "a hostPath volume has the type Directory", "kubelet would make a missing directory on the root disk"},
	{"create a volume in another provisioner's name", create(volume("18", "node-a", func(pv *corev1.PersistentVolume) {
		pv.Annotations["pv.kubernetes.io/provisioned-by"] = "other.example"
	})), "the volume's provisioner is not in the list", "the other provisioner would delete it in its way"},
	{"create a volume that no provisioner made", create(volume("19", "node-a", func(pv *corev1.PersistentVolume) { pv.Annotations = nil })), "the volume's provisioner is not in the list", "kube-controller-manager would delete it on its own host"},
	{"create a volume for a claim under another name", create(volume("20", "node-a", func(pv *corev1.PersistentVolume) { pv.Name = "mine" })), "the volume's name is not that of its claim's volume", "one volume for one claim"},
	{"create a volume for no claim", create(volume("21", "node-a", func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil })), "the volume's name is not that of its claim's volume", "any claim would be bound to it"},
	{"create a volume with an owner", create(volume("22", "node-a", func(pv *corev1.PersistentVolume) {
		pv.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-b", UID: "x"}}
	})), "a volume has no owner", "the garbage collector would delete it"},
	{"create a volume of scope shared outside of shared pools", create(volume("23", "node-a", scoped("shared", "/srv/fast/x"))), notUnder, "each scope has its own list of paths"},
	{"create a volume of scope every-node outside of its pools", create(volume("24", "node-a", scoped("every-node", "/srv/shared/x"))), notUnder, "the same"},
	{"create a volume of a class that is not listed, where classes are", volumeOfAnotherClass, "the volume's class is not in the list", "the key `classes` of the ConfigMap"},
	{"delete a volume of node-b", func(w *world) error {
		return w.a.CoreV1().PersistentVolumes().Delete(w.ctx, "pvc-of-b", metav1.DeleteOptions{})
	}, notOwn, "the label has to be the node that the token is bound to"},
	{"delete a volume of another driver", func(w *world) error {
		return w.a.CoreV1().PersistentVolumes().Delete(w.ctx, "others", metav1.DeleteOptions{})
	}, notOwn, "the same"},
	{"delete a volume of kubevirt's driver that was adopted elsewhere", func(w *world) error {
		return w.a.CoreV1().PersistentVolumes().Delete(w.ctx, "pvc-elsewhere", metav1.DeleteOptions{})
	}, notUnder, "its path is an annotation, which has to be a pool's"},
	{"lead an adopted volume of kubevirt's driver elsewhere", patchVolume("pvc-adopted", `{"metadata":{"annotations":{"hostpath-provisioner/path":"/srv/fast/pvc-of-a"}}}`), "annotations stay as they are", "adopt writes it, by an administrator's right"},
	{"delete all volumes at once", func(w *world) error {
		return w.a.CoreV1().PersistentVolumes().DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}, byRBAC, "the verb is not given"},
	{"take the finalizer off a volume of node-b", patchVolume("pvc-of-b", `{"metadata":{"finalizers":null}}`), notOwn, "the label has to be the node that the token is bound to"},
	{"take another program's finalizer off an own volume", patchVolume("pvc-of-a", `{"metadata":{"finalizers":null}}`), "no finalizer but the provisioner's goes", "only the provisioner's is the daemon's"},
	{"relabel a volume of node-b as an own one", patchVolume("pvc-of-b", `{"metadata":{"labels":{"hostpath-provisioner/node":"node-a"}}}`), notOwn, "the label that it had counts"},
	{"relabel an own volume as node-b's", patchVolume("pvc-of-a", `{"metadata":{"labels":{"hostpath-provisioner/node":"node-b"}}}`), "labels stay as they are", "the daemon writes labels at the creation alone"},
	{"give an own volume an owner", patchVolume("pvc-of-a", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"x","uid":"x"}]}}`), "owner references stay as they are", "the same"},
	{"give an own volume another claim", patchVolume("pvc-of-a", `{"spec":{"claimRef":{"name":"pending","uid":"x"}}}`), "nothing but a volume's size changes", "the claim is written at the creation"},
	{"have an own volume's data deleted", patchVolume("pvc-of-a", `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`), "nothing but a volume's size changes", "the policy is an administrator's"},
	{"make an own volume smaller", patchVolume("pvc-of-a", `{"spec":{"capacity":{"storage":"1Mi"}}}`), "a volume becomes no smaller", "volumes grow"},
	{"set a volume's phase", func(w *world) error {
		_, err := w.a.CoreV1().PersistentVolumes().Patch(w.ctx, "pvc-of-a", types.MergePatchType, []byte(`{"status":{"phase":"Released"}}`), metav1.PatchOptions{}, "status")
		return err
	}, byRBAC, "the subresource is not given"},
	{"delete a claim", func(w *world) error {
		return w.a.CoreV1().PersistentVolumeClaims("default").Delete(w.ctx, "pending", metav1.DeleteOptions{})
	}, byRBAC, "the verb is not given"},
	{"have the garbage collector delete a claim", patchClaim("pending", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"gone"}]}}`), "owner references stay as they are", "an owner that does not exist is deleted with what it owns"},
	{"put a finalizer on a claim", patchClaim("pending", `{"metadata":{"finalizers":["example.com/forever"]}}`), "finalizers stay as they are", "it could never be deleted"},
	{"take the finalizer off a claim", patchClaim("pending", `{"metadata":{"finalizers":null}}`), "finalizers stay as they are", "it protects claims that pods use"},
	{"bind a pending claim to a volume", patchClaim("pending", `{"spec":{"volumeName":"others"}}`), "a claim's spec stays as it is", "the binder writes that"},
	{"send a claim to node-b", patchClaim("pending", `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"node-b"}}}`), "the selected node is another one", "the own name, or none"},
	{"send a bound claim to node-a", patchClaim("bound", `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"node-a"}}}`), "the claim has a volume", "a node is chosen before there is a volume"},
	{"annotate a claim", patchClaim("pending", `{"metadata":{"annotations":{"kubevirt.io/provisionOnNode":"node-a"}}}`), "annotations stay as they are", "one annotation is the daemon's"},
	{"label a claim", patchClaim("pending", `{"metadata":{"labels":{"app":"x"}}}`), "labels stay as they are", "the daemon writes none"},
	{"write the status of node-b's claim, where no pool is of several nodes", statusWithoutSharedPools, "the claim's node is another one", "what the scheduler chose is on the claim"},
	{"set a claim's phase", patchClaim("to-grow", `{"status":{"phase":"Lost"}}`, "status"), "nothing but an expansion is written in a claim's status", "the binder writes that"},
	{"get a token bound to node-b", token(account, boundTo("node-b")), "the token is not bound to this node", "a node renews its own"},
	{"get a token bound to nothing", token(account, nil), "the token is not bound to this node", "the same"},
	{"get a token for another audience, where audiences are listed", tokenForAnotherAudience, "the token's audience is not in the list", "another service would take it for this ServiceAccount's"},
	{"get a token of another ServiceAccount", token("default", boundTo("node-a")), byRBAC, "the right names one ServiceAccount"},
	{"report in node-b's name", createEvent(event("1", "node-b", "PersistentVolumeClaim", "pending")), "the event is another node's", "an event names the node that reports"},
	{"report in kubelet's name", createEvent(func() *corev1.Event {
		e := event("2", "node-a", "PersistentVolumeClaim", "pending")
		e.Source.Component, e.ReportingController = "kubelet", "kubelet"
		return e
	}()), "the event is another program's", "and the program"},
	{"report about node-b", createEvent(event("3", "node-a", "Node", "node-b")), "the event is about another node", "its own Node alone"},
	{"report about a Secret", createEvent(event("4", "node-a", "Secret", "s")), "the event is about another kind of object", "claims, volumes, pods and its own Node"},
	{"rewrite an event of kubelet", patchEvent("foreign", `{"message":"all is well"}`), "the event is another program's", "only events of the daemons are counted on"},
	{"rewrite the reason of a daemon's event", patchEvent("of-b", `{"reason":"Other"}`), "nothing but its count, time and message of an event changes", "the same event of two nodes is one object"},
	{"take the lease of a shared pool in node-b's name", createLease(lease("new", "node-b")), "the lease is taken in another node's name", "a holder is named with its node"},
	{"make node-b the holder of node-a's lease", updateLease(lease("free", "node-b")), "the lease is taken in another node's name", "the same"},
	{"give up node-b's lease", updateLease(func() *coordinationv1.Lease { l := lease("held", "node-b"); l.Spec.HolderIdentity = nil; return l }()), "or taken from it", "a holder gives up its own"},
	{"delete the lease of a shared pool", func(w *world) error {
		return w.a.CoordinationV1().Leases(account).Delete(w.ctx, "held.hostpath-provisioner", metav1.DeleteOptions{})
	}, "the lease of a pool is not deleted", "only tombstones are collected"},
	{"write a lease that is no pool's", updateLease(anotherLease(nil)), "the lease is of no pool", "another program's election"},
	{"call another program's lease a pool's", updateLease(anotherLease(map[string]string{poolLabel: "another"})), "the lease is of no pool", "a pool's lease has pool and provisioner in its name"},
	{"write a lease of kube-system", func(w *world) error {
		l := lease("new", "node-a")
		l.Namespace = "kube-system"
		_, err := w.a.CoordinationV1().Leases("kube-system").Create(w.ctx, l, metav1.CreateOptions{})
		return err
	}, byRBAC, "the right is of one namespace"},
	{"write a tombstone in node-b's name", createLease(tombstone("pvc-x", "node-b")), "the tombstone is in another node's name", "a tombstone names its node"},
	{"publish a capacity of node-b", createCapacity(capacity("new-b", "node-b")), "the capacity is another node's", "the label has to be the node that the token is bound to"},
	{"publish a capacity for node-b under the own label", createCapacity(func() *storagev1.CSIStorageCapacity {
		c := capacity("new-a", "node-b")
		c.Labels[nodeLabel] = "node-a"
		return c
	}()), "the capacity is for another node", "the topology has to be its own"},
	{"change a capacity of node-b", patchCapacity("of-b", `{"maximumVolumeSize":"0"}`), "the capacity is another node's", "no pod would be scheduled there"},
	{"delete a capacity of node-b", func(w *world) error {
		return w.a.StorageV1().CSIStorageCapacities(account).Delete(w.ctx, "of-b", metav1.DeleteOptions{})
	}, "the capacity is another node's", "the same"},
	{"publish a capacity of another driver", createCapacity(func() *storagev1.CSIStorageCapacity {
		c := capacity("other", "node-a")
		c.Labels["csi.storage.k8s.io/drivername"] = "other.example"
		return c
	}()), "the capacity is another program's", "the driver is the provisioner"},
	{"publish that nodes which publish nothing have no room", createCapacity(ofSilent("none", "0", "0")), "the capacity for nodes that publish nothing is no hint to wait", "no pod would be scheduled there"},
	{"publish that nodes which publish nothing have the most room", createCapacity(ofSilent("most", "9Ti", "9223372036854775807")), "the capacity for nodes that publish nothing is no hint to wait", "a scheduler that scores takes them last"},
	{"have nodes that publish nothing have no room", patchCapacity("of-others", `{"maximumVolumeSize":"1"}`), "the capacity for nodes that publish nothing is no hint to wait", "the same"},
	{"publish a capacity for all nodes", createCapacity(func() *storagev1.CSIStorageCapacity {
		c := ofSilent("all", "0", "9223372036854775807")
		c.NodeTopology = &metav1.LabelSelector{}
		return c
	}()), "the capacity is for another node", "it names nodes"},
	{"have the capacity of all others deleted with node-b", createCapacity(func() *storagev1.CSIStorageCapacity {
		c := ofSilent("owned", "0", "9223372036854775807")
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-b", UID: "x"}}
		return c
	}()), "the capacity has another owner", "the CSIDriver owns it"},
	{"have the CSIDriver deleted with an owner", patchDriver(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"gone"}]}}`), "owner references stay as they are", "the garbage collector would do it"},
	{"change the CSIDriver's fields", patchDriver(`{"spec":{"fsGroupPolicy":"File","requiresRepublish":true}}`), "nothing but storageCapacity of a CSIDriver changes", "one field is the daemons'"},
	{"read Secrets", func(w *world) error {
		_, err := w.a.CoreV1().Secrets("kube-system").List(w.ctx, metav1.ListOptions{})
		return err
	}, byRBAC, "no right"},
	{"relabel its own Node", func(w *world) error {
		_, err := w.a.CoreV1().Nodes().Patch(w.ctx, "node-a", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		return err
	}, byRBAC, "no right"},
	{"create a pod", func(w *world) error {
		_, err := w.a.CoreV1().Pods("default").Create(w.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}}}, metav1.CreateOptions{})
		return err
	}, byRBAC, "no right"},
	{"change what the policies allow", func(w *world) error {
		_, err := w.a.CoreV1().ConfigMaps(account).Patch(w.ctx, "hostpath-provisioner-confinement", types.MergePatchType, []byte(`{"data":{"paths":"/etc"}}`), metav1.PatchOptions{})
		return err
	}, byRBAC, "no right"},
	{"remove a policy", func(w *world) error {
		return w.a.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(w.ctx, "volumes.hostpath-provisioner.hostpath-provisioner", metav1.DeleteOptions{})
	}, byRBAC, "no right"},
	{"give itself rights", func(w *world) error {
		_, err := w.a.RbacV1().ClusterRoles().Patch(w.ctx, "hostpath-provisioner:hostpath-provisioner", types.MergePatchType, []byte(`{"rules":[]}`), metav1.PatchOptions{})
		return err
	}, byRBAC, "no right"},
}

// anotherLease is another program's, taken in the name of node-a.
func anotherLease(labels map[string]string) *coordinationv1.Lease {
	l := lease("another", "node-a")
	l.Name, l.Labels = "another.program", labels
	return l
}

// statusWithoutSharedPools tries it until the changed parameter object counts.
func statusWithoutSharedPools(w *world) error {
	set := func(paths string) {
		patch := fmt.Sprintf(`{"data":{"shared-paths":%q,"every-node-paths":%q}}`, paths, strings.Replace(paths, "shared", "every", 1))
		_, err := w.admin.CoreV1().ConfigMaps(account).Patch(w.ctx, "hostpath-provisioner-confinement", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		w.must(err)
	}
	set("")
	defer set("/srv/shared")
	for {
		err := patchClaim("bound-b", `{"status":{"capacity":{"storage":"9Ti"}}}`, "status")(w)
		if err != nil || w.ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// setParameter gives a key of the policies' ConfigMap a value, or takes it away with nil.
func (w *world) setParameter(key string, value *string) {
	w.Helper()
	patch, err := json.Marshal(map[string]any{"data": map[string]*string{key: value}})
	w.must(err)
	_, err = w.admin.CoreV1().ConfigMaps(account).Patch(w.ctx, parameters, types.MergePatchType, patch, metav1.PatchOptions{})
	w.must(err)
}

// whileSet tries it with a key of the ConfigMap until that counts.
func (w *world) whileSet(key, value string, try func() error) error {
	w.Helper()
	w.setParameter(key, &value)
	defer w.setParameter(key, nil)
	for {
		if err := try(); err != nil || w.ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// volumeOfAnotherClass also sees that a volume of a class that is listed is made.
func volumeOfAnotherClass(w *world) error {
	return w.whileSet("classes", "one\nlisted", func() error {
		listed := volume("25", "node-a", func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "listed" })
		_, another := w.a.CoreV1().PersistentVolumes().Create(w.ctx, volume("25", "node-a"), dryRun)
		if _, err := w.a.CoreV1().PersistentVolumes().Create(w.ctx, listed, dryRun); err != nil && another != nil {
			w.Errorf("of a class that is listed: %v", err)
		}
		return another
	})
}

// tokenForAnotherAudience also sees that the next token for the API server is given.
func tokenForAnotherAudience(w *world) error {
	request := func(audiences ...string) error {
		_, err := w.a.CoreV1().ServiceAccounts(account).CreateToken(w.ctx, account, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, BoundObjectRef: boundTo("node-a")}}, dryRun)
		return err
	}
	return w.whileSet("audiences", "https://kubernetes.default.svc", func() error {
		if err := request(); err != nil {
			w.Errorf("for the API server: %v", err)
		}
		return request("vault")
	})
}

// letGo takes the provisioner's finalizer off a volume, and deletes it.
func letGo(name string) func(*world) error {
	return func(w *world) error {
		_, err := w.a.CoreV1().PersistentVolumes().Patch(w.ctx, name, types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers/0"}]`), metav1.PatchOptions{})
		if err != nil {
			return err
		}
		return w.a.CoreV1().PersistentVolumes().Delete(w.ctx, name, metav1.DeleteOptions{})
	}
}

// needs are what the daemon does, one of each kind.
var needs = map[string]func(*world) error{
	"label a volume of the index": patchVolume("pvc-to-grow", `{"metadata":{"labels":{"hostpath-provisioner/kept-for":"x"}}}`),
	"label a claim of the index":  patchClaim("bound", `{"metadata":{"labels":{"hostpath-provisioner/claim":"x"}}}`),
	"an own volume":               create(volume("n1", "node-a")),
	"a local volume": create(volume("n2", "node-a", func(pv *corev1.PersistentVolume) {
		pv.Spec.HostPath = nil
		pv.Spec.Local = &corev1.LocalVolumeSource{Path: "/srv/fast/pvc-n2"}
	})),
	"a CSI volume":     create(volume("n5", "node-a", ofCSI(func(*corev1.CSIPersistentVolumeSource) {}))),
	"a shared volume":  create(volume("n3", "", scoped("shared", "/srv/shared/pvc-n3"))),
	"one of all nodes": create(volume("n4", "", scoped("every-node", "/srv/every/pvc-n4"))),
	"a larger volume":  patchVolume("pvc-to-grow", `{"spec":{"capacity":{"storage":"2Gi"}}}`),
	"a volume goes":    letGo("pvc-to-go"),
	"a volume that is labelled with that goes":            letGo("from-before"),
	"a shared volume goes":                                letGo("pvc-shared"),
	"a volume of kubevirt's driver that was adopted goes": letGo("pvc-adopted"),
	"a claim is taken and given back": func(w *world) error {
		if err := patchClaim("to-serve", `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"node-a"}}}`)(w); err != nil {
			return err
		}
		return patchClaim("to-serve", `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":null}}}`)(w)
	},
	"a claim is taken over from a node that is gone": patchClaim("of-b", `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"node-a"}}}`),
	"an expansion": patchClaim("to-grow", `{"metadata":{"annotations":{"volume.kubernetes.io/storage-resizer":"hostpath-provisioner"}},"status":{"allocatedResources":{"storage":"1Gi"},"conditions":[{"type":"Resizing","status":"True"}]}}`, "status"),
	"events": func(w *world) error {
		for i, kind := range []string{"PersistentVolumeClaim", "PersistentVolume", "Pod", "Node"} {
			name := map[bool]string{true: "node-a", false: "some"}[kind == "Node"]
			if err := createEvent(event(fmt.Sprint("need-", i), "node-a", kind, name))(w); err != nil {
				return err
			}
		}
		return patchEvent("of-b", `{"count":2,"message":"other words","lastTimestamp":"2026-01-01T00:00:00Z"}`)(w)
	},
	"a lease": func(w *world) error {
		l := lease("needed", "node-a")
		if err := createLease(l)(w); err != nil {
			return err
		}
		if err := updateLease(l)(w); err != nil {
			return err
		}
		l.Spec.HolderIdentity = nil
		return updateLease(l)(w)
	},
	"a tombstone": func(w *world) error {
		if err := createLease(tombstone("pvc-needed", "node-a"))(w); err != nil {
			return err
		}
		return w.a.CoordinationV1().Leases(account).Delete(w.ctx, "pvc-gone", metav1.DeleteOptions{})
	},
	"capacities": func(w *world) error {
		for _, c := range []*storagev1.CSIStorageCapacity{capacity("need-a", "node-a"), ofSilent("need-others", "0", "9223372036854775807")} {
			if err := createCapacity(c)(w); err != nil {
				return err
			}
			size := map[bool]string{true: `"capacity":"2Gi","maximumVolumeSize":"2Gi"`, false: `"capacity":"0","maximumVolumeSize":"9223372036854775807"`}[c.Labels[nodeLabel] != ""]
			if err := patchCapacity(c.Name, `{`+size+`,"metadata":{"annotations":{"hostpath-provisioner/closed":"LowSpace"}}}`)(w); err != nil {
				return err
			}
			if err := w.a.StorageV1().CSIStorageCapacities(account).Delete(w.ctx, c.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		return nil
	},
	"the scheduler compares": patchDriver(`{"metadata":{"annotations":{"hostpath-provisioner/reviewed":"2026-01-01T00:00:00Z","hostpath-provisioner/publishing":"1"}},"spec":{"storageCapacity":true}}`),
	"the next token":         token(account, boundTo("node-a")),
	"adopt looks first": func(w *world) error {
		_, err := w.a.CoreV1().PersistentVolumes().Create(w.ctx, volume("n9", "node-a"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	},
}
