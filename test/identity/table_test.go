package identity

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	notOwn    = "the volume is another node's, or no node's"
	notUnder  = "the volume's path is right in no pool that the policies list for its scope"
	noVolumes = "the volume's path is no volume's"
)

// attempts is the table. The order is that of the documentation.
var attempts = []attempt{
	{"create a volume with the label of node-b", create(volume("1", "node-b")), notOwn,
		"the label has to be the node that the token is bound to"},
	{"create a volume with no node's label", create(volume("2", "node-a",
		func(pv *corev1.PersistentVolume) { pv.Labels = nil })), notOwn, "the same"},
	{"create a volume without node affinity", create(volume("3", "node-a",
		func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity = nil })), "the volume's affinity is not this node's", "a pod of another node would use that node's directory"},
	{"create a volume with node-b's affinity", create(volume("4", "node-a",
		func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity = affinity("host-of-node-b") })), "the volume's affinity is not this node's", "the same"},
	{"create a volume with a second term of affinity",
		create(volume("5", "node-a", func(pv *corev1.PersistentVolume) {
			r := pv.Spec.NodeAffinity.Required
			r.NodeSelectorTerms = append(r.NodeSelectorTerms,
				affinity("host-of-node-b").Required.NodeSelectorTerms...)
		})), "the volume's affinity is not this node's", "one term is enough for a pod"},
	{"create a volume on `/`", create(volume("6", "node-a", at("/"))), notUnder,
		"only what is listed"},
	{"create a volume on `/etc`", create(volume("7", "node-a", at("/etc"))), notUnder, "the same"},
	{"create a volume on `/srv/fast/../../etc`", create(volume("8", "node-a",
		at("/srv/fast/../../etc"))), "must not contain '..'", "the API server's own validation, and the policy's"},
	{"create a volume on `/srv/fast/./../x`", create(volume("9", "node-a", at("/srv/fast/./../x"))),
		"must not contain '..'", "the same"},
	{"create a volume beside the pool, `/srv/fast2/x`",
		create(volume("10", "node-a",
			at("/srv/fast2/x"))), notUnder, "a path is compared by its parts"},
	{"create a volume that is the pool itself", create(volume("11", "node-a", at("/srv/fast"))),
		notUnder, "the pool's directory is no volume"},
	{"create a volume that is the pool, `/srv/fast/.`",
		create(volume("12", "node-a", at("/srv/fast/."))), noVolumes, "the same"},
	{"create a volume on the records of the pool",
		create(volume("13", "node-a",
			at("/srv/fast/.hostpath-provisioner"))), noVolumes, "the daemon's own directory"},
	{"create a volume on `/srv/fast//x`", create(volume("14", "node-a", at("/srv/fast//x"))),
		notUnder, "no daemon writes that"},
	{"create a volume of another CSI driver with a Secret of kube-system",
		create(volume("15", "node-a", func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "other.example",
				VolumeHandle: "x", NodePublishSecretRef: &corev1.SecretReference{Namespace: "kube-system",
					Name: "s"}}}
		})), "the volume's source is no directory of a pool", "hostPath, local and its own CSI driver are what the daemon writes"},
	{"create a CSI volume of the own driver with a Secret",
		create(volume("15a", "node-a", ofCSI(func(csi *corev1.CSIPersistentVolumeSource) {
			csi.NodePublishSecretRef = &corev1.SecretReference{Namespace: "kube-system", Name: "s"}
		}))), "the volume's source is no directory of a pool", "the driver wants none"},
	{"create a CSI volume with another volume's handle",
		create(volume("15b", "node-a",
			ofCSI(func(csi *corev1.CSIPersistentVolumeSource) { csi.VolumeHandle = "pvc-other" }))),
		"the volume's source is no directory of a pool", "it would be mounted with the other one's data"},
	{"create a CSI volume with a path elsewhere", create(volume("15c", "node-a",
		ofCSI(func(csi *corev1.CSIPersistentVolumeSource) { csi.VolumeAttributes["path"] = "/etc" }))), notUnder, "only what is listed"},
	{"create a volume on NFS", create(volume("16", "node-a", func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "files",
			Path: "/"}}
	})), "the volume's source is no directory of a pool", "the same"},
	{"create a hostPath volume that makes its directory",
		create(volume("17", "node-a", func(pv *corev1.PersistentVolume) {
			kind := corev1.HostPathDirectoryOrCreate
			pv.Spec.HostPath.Type = &kind
		})), "a hostPath volume has the type Directory", "kubelet would make a missing directory on the root disk"},
	{"create a volume in another provisioner's name",
		create(volume("18", "node-a", func(pv *corev1.PersistentVolume) {
			pv.Annotations["pv.kubernetes.io/provisioned-by"] = "other.example"
		})), "the volume's provisioner is not in the policies' list", "the other provisioner would delete it in its way"},
	{"create a volume that no provisioner made", create(volume("19", "node-a",
		func(pv *corev1.PersistentVolume) { pv.Annotations = nil })), "the volume's provisioner is not in the policies' list", "kube-controller-manager would delete it on its own host"},
	{"create a volume for a claim under another name",
		create(volume("20", "node-a",
			func(pv *corev1.PersistentVolume) { pv.Name = "mine" })), "the volume's name is not that of its claim's volume", "one volume for one claim"},
	{"create a volume for no claim", create(volume("21", "node-a",
		func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil })), "the volume's name is not that of its claim's volume", "any claim would be bound to it"},
	{"create a volume with an owner", create(volume("22", "node-a",
		func(pv *corev1.PersistentVolume) {
			pv.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node",
				Name: "node-b", UID: "x"}}
		})), "a volume has no owner", "the garbage collector would delete it"},
	{"create a volume of scope shared outside of shared pools",
		create(volume("23", "node-a", scoped("shared",
			"/srv/fast/x"))), notUnder, "each scope has its own list of paths"},
	{"create a volume of scope every-node outside of its pools",
		create(volume("24", "node-a", scoped("every-node",
			"/srv/shared/x"))), notUnder, "the same"},
	{"create a volume of a class that is not listed",
		create(volume("25", "node-a",
			ofClass("other"))), "the volume's class is not in the policies' list", "`--class`"},
	{"create a volume of a class that begins as one that is listed",
		create(volume("26", "node-a",
			ofClass("listed-2"))), "the volume's class is not in the policies' list", "the same"},
	{"create a volume that is recycled", create(volume("27", "node-a",
		func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRecycle
		})), "a volume is deleted or retained", "kube-controller-manager would empty the path, on any node"},
	{"create a volume below another one", create(volume("28", "node-a",
		at("/srv/fast/pvc-of-a/"+pvc("28")))), notUnder, "a tenant can have a link there"},
	{"create a local volume below another one", create(volume("29", "node-a",
		ofLocal("/srv/fast/pvc-of-a/"+pvc("29")))), notUnder, "the same"},
	{"create a CSI volume below another one", create(volume("30", "node-a",
		ofCSI(func(csi *corev1.CSIPersistentVolumeSource) {
			csi.VolumeAttributes["path"] = "/srv/fast/pvc-of-a/" + pvc("30")
		}))), notUnder, "the same"},
	{"create a shared volume below another one", create(volume("31", "", scoped("shared",
		"/srv/shared/pvc-of-b/"+pvc("31")))), notUnder, "it would be root on each node"},
	{"create a volume that is a pool, where pools are listed by their directory",
		create(volume("32", "node-a", at("/data/"+pvc("32")))), notUnder, "a volume is in a pool"},
	{"create a volume below another one, where pools are listed by their directory",
		create(volume("33", "node-a",
			at("/data/fast/pvc-of-a/"+pvc("33")))), notUnder, "a tenant can have a link there"},
	{"create a volume on another volume of the node",
		create(volume("34", "node-a",
			at("/srv/fast/"+pvc("of-a")))), "the volume's directory has not the volume's name", "its claim's user would have the other one's data"},
	{"create a volume whose name another volume's begins with",
		create(volume("35", "node-a", func(pv *corev1.PersistentVolume) {
			pv.Name, pv.Spec.ClaimRef.UID, pv.Spec.HostPath.Path = pvc("of-a")[:8], claimUID("of-a")[:4], "/srv/fast/"+pvc("of-a")
		})), "the volume's name is not that of its claim's volume", "a claim has a whole UID"},
	{"create a volume on what the daemon hides", create(volume("36", "node-a",
		at("/srv/fast/."+pvc("36")))), "the volume's directory has not the volume's name", "no volume's name begins with a dot"},
	{"create a volume on a path with a slash at its end",
		create(volume("37", "node-a",
			at("/srv/fast/"+pvc("37")+"/"))), notUnder, "no daemon writes that"},
	{"create a volume that is a block device", create(volume("38", "node-a",
		ofLocal("/srv/fast/"+pvc("38")), func(pv *corev1.PersistentVolume) {
			block := corev1.PersistentVolumeBlock
			pv.Spec.VolumeMode = &block
		})), "a volume is no block device", "no daemon makes one"},
	{"create a volume with mount options for hostPath",
		create(volume("39", "node-a",
			withOptions("ro"))), "a mount option that is not a bind mount's own", "kubelet refuses them"},
	{"create a volume with mount options that mount(8) follows",
		create(volume("40", "node-a", ofLocal("/srv/fast/"+pvc("40")),
			withOptions("noatime",
				"X-mount.mode=0777"))), "a mount option that is not a bind mount's own", "`X-mount.mode`"},
	{"create a volume with a field that no daemon writes",
		create(volume("41", "node-a", ofCSI(func(*corev1.CSIPersistentVolumeSource) {}),
			func(pv *corev1.PersistentVolume) {
				class := "some"
				pv.Spec.VolumeAttributesClassName = &class
			})), "the volume has a field that no daemon writes", "what is not known is refused"},
	{"create a local volume with a filesystem type",
		create(volume("42", "node-a", ofLocal("/srv/fast/"+pvc("42")),
			func(pv *corev1.PersistentVolume) {
				ext4 := "ext4"
				pv.Spec.Local.FSType = &ext4
			})), "a local volume has a path alone", "kubelet would format a device"},
	{"create a CSI volume with another attribute",
		create(volume("43", "node-a",
			ofCSI(func(csi *corev1.CSIPersistentVolumeSource) { csi.VolumeAttributes["storagePool"] = "x" }))),
		"a CSI volume has the attributes pool and path alone", "no daemon writes that"},
	{"create a CSI volume with a filesystem type",
		create(volume("44", "node-a",
			ofCSI(func(csi *corev1.CSIPersistentVolumeSource) { csi.FSType = "ext4" }))), "the volume's source is no directory of a pool", "the same"},
	{"create a volume for something that is no claim",
		create(volume("45", "node-a",
			func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.Kind = "Secret" })), "the volume's name is not that of its claim's volume", "the same"},
	{"create a volume with the identity of another provisioner",
		create(volume("46", "node-a", annotated("hostPathProvisionerIdentity",
			"node-b"))), "the volume has an annotation that no daemon writes", "the other provisioner would delete it in its way"},
	{"create a volume with an older class", create(volume("47", "node-a",
		annotated("volume.beta.kubernetes.io/storage-class",
			"other"))), "the volume has an annotation that no daemon writes", "it counts before the class"},
	{"create a volume with a Secret for another provisioner",
		create(volume("48", "node-a",
			annotated("volume.kubernetes.io/provisioner-deletion-secret-name",
				"s"))), "the volume has an annotation that no daemon writes", "external-provisioner would use it"},
	{"create a volume that the binder gives away",
		create(volume("49", "node-a", annotated("pv.kubernetes.io/bound-by-controller",
			"yes"))), "the volume has an annotation that no daemon writes", "any claim would be bound to it"},
	{"create a volume with a label of Kubernetes",
		create(volume("50", "node-a",
			func(pv *corev1.PersistentVolume) { pv.Labels["topology.kubernetes.io/zone"] = "x" })), "the volume has a label of Kubernetes", "the scheduler compares it"},
	{"create a shared volume with an affinity", create(volume("51", "", scoped("shared",
		"/srv/shared/"+pvc("51")), func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity = affinity("host-of-node-b") })), "the volume's affinity is not this node's", "no daemon writes that"},
	{"delete a volume of node-b", func(w *world) error {
		return w.a.CoreV1().PersistentVolumes().Delete(w.ctx, pvc("of-b"), metav1.DeleteOptions{})
	}, notOwn, "the label has to be the node that the token is bound to"},
	{"delete a volume of another driver", func(w *world) error {
		return w.a.CoreV1().PersistentVolumes().Delete(w.ctx, "others", metav1.DeleteOptions{})
	}, notOwn, "the same"},
	{"delete a volume of kubevirt's driver that was adopted elsewhere", func(w *world) error {
		return w.a.CoreV1().PersistentVolumes().Delete(w.ctx, pvc("elsewhere"),
			metav1.DeleteOptions{})
	}, notUnder, "its path is an annotation, which has to be a pool's"},
	{"lead an adopted volume of kubevirt's driver elsewhere",
		patchVolume(pvc("adopted"),
			`{"metadata":{"annotations":{"hostpath-provisioner/path":"/srv/fast/pvc-of-a"}}}`), "annotations stay as they are", "adopt writes it, by an administrator's right"},
	{"delete all volumes at once", func(w *world) error {
		return w.a.CoreV1().PersistentVolumes().DeleteCollection(w.ctx, metav1.DeleteOptions{},
			metav1.ListOptions{})
	}, byRBAC, "the verb is not given"},
	{"take the finalizer off a volume of node-b", patchVolume(pvc("of-b"),
		`{"metadata":{"finalizers":null}}`), notOwn, "the label has to be the node that the token is bound to"},
	{"take another program's finalizer off an own volume",
		patchVolume(pvc("of-a"),
			`{"metadata":{"finalizers":null}}`), "no finalizer but the provisioner's goes or comes",
		"only the provisioner's is the daemon's"},
	{"put another program's finalizer on an own volume",
		patchVolume(pvc("of-a"), `{"metadata":{"finalizers":["`+finalizer+`",
			"kubernetes.io/pv-protection","example.com/another"]}}`),
		"no finalizer but the provisioner's goes or comes", "it could never be deleted"},
	{"relabel a volume of node-b as an own one", patchVolume(pvc("of-b"),
		`{"metadata":{"labels":{"hostpath-provisioner/node":"node-a"}}}`), notOwn, "the label that it had counts"},
	{"relabel an own volume as node-b's", patchVolume(pvc("of-a"),
		`{"metadata":{"labels":{"hostpath-provisioner/node":"node-b"}}}`), "labels stay as they are", "the daemon writes labels at the creation alone"},
	{"give an own volume an owner", patchVolume(pvc("of-a"),
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"x","uid":"x"}]}}`), "owner references stay as they are", "the same"},
	{"give an own volume another claim", patchVolume(pvc("of-a"),
		`{"spec":{"claimRef":{"name":"pending","uid":"x"}}}`), "nothing but a volume's size changes", "the claim is written at the creation"},
	{"have an own volume's data deleted", patchVolume(pvc("of-a"),
		`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`), "nothing but a volume's size changes", "the policy is an administrator's"},
	{"make an own volume smaller", patchVolume(pvc("of-a"),
		`{"spec":{"capacity":{"storage":"1Mi"}}}`), "a volume becomes no smaller", "volumes grow"},
	{"set a volume's phase", func(w *world) error {
		_, err := w.a.CoreV1().PersistentVolumes().Patch(w.ctx, pvc("of-a"), types.MergePatchType,
			[]byte(`{"status":{"phase":"Released"}}`), metav1.PatchOptions{}, "status")
		return err
	}, byRBAC, "the subresource is not given"},
	{"delete a claim", func(w *world) error {
		return w.a.CoreV1().PersistentVolumeClaims("default").Delete(w.ctx, "pending",
			metav1.DeleteOptions{})
	}, byRBAC, "the verb is not given"},
	{"have the garbage collector delete a claim", patchClaim("pending",
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"gone"}]}}`), "owner references stay as they are", "an owner that does not exist is deleted with what it owns"},
	{"put a finalizer on a claim", patchClaim("pending",
		`{"metadata":{"finalizers":["example.com/forever"]}}`), "finalizers stay as they are", "it could never be deleted"},
	{"take the finalizer off a claim", patchClaim("pending", `{"metadata":{"finalizers":null}}`),
		"finalizers stay as they are", "it protects claims that pods use"},
	{"bind a pending claim to a volume", patchClaim("pending", `{"spec":{"volumeName":"others"}}`),
		"a claim's spec stays as it is", "the binder writes that"},
	{"send a claim to node-b", patchClaim("pending",
		`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"node-b"}}}`), "the selected node is another one", "the own name, or none"},
	{"send a bound claim to node-a", patchClaim("bound",
		`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"node-a"}}}`), "the claim has a volume", "a node is chosen before there is a volume"},
	{"annotate a claim", patchClaim("pending",
		`{"metadata":{"annotations":{"kubevirt.io/provisionOnNode":"node-a"}}}`), "annotations stay as they are", "one annotation is the daemon's"},
	{"label a claim", patchClaim("pending", `{"metadata":{"labels":{"app":"x"}}}`),
		"labels stay as they are", "the daemon writes none"},
	{"write the status of node-b's claim, where no pool is of several nodes",
		statusWithoutSharedPools, "the claim's node is another one", "what the scheduler chose is on the claim"},
	{"write the status of another driver's claim",
		patchClaim("elsewhere", `{"status":{"capacity":{"storage":"1Gi"}}}`,
			"status"), "the claim is another provisioner's", "kube-controller-manager writes whose it is"},
	{"write the status of a claim of a class that is not listed",
		patchClaim("bound", `{"status":{"capacity":{"storage":"1Gi"}}}`,
			"status"), "the claim is another provisioner's", "where no provisioner was asked, its class says whose it is"},
	{"write that a claim has more than it requests",
		patchClaim("to-grow", `{"status":{"capacity":{"storage":"9Ti"}}}`,
			"status"), "the claim requests less than that", "a quota counts it"},
	{"write that a claim was given more than it requests",
		patchClaim("to-grow", `{"status":{"allocatedResources":{"storage":"9Ti"}}}`,
			"status"), "the claim requests less than that", "the same"},
	{"set a claim's phase", patchClaim("to-grow", `{"status":{"phase":"Lost"}}`, "status"),
		"nothing but an expansion is written in a claim's status", "the binder writes that"},
	{"get a token bound to node-b", token(account, boundTo("node-b")),
		"the token is not bound to this node", "a node renews its own"},
	{"get a token bound to nothing", token(account, nil), "the token is not bound to this node",
		"the same"},
	{"get a token for another audience, where audiences are listed", tokenForAnotherAudience,
		"the token's audience is not in the policies' list", "another service would take it for this ServiceAccount's"},
	{"get a token of another ServiceAccount", token("default", boundTo("node-a")), byRBAC,
		"the right names one ServiceAccount"},
	{"report in node-b's name", createEvent(event("1", "node-b", "PersistentVolumeClaim",
		"pending")), "the event is another node's", "an event names the node that reports"},
	{"report in kubelet's name", createEvent(func() *corev1.Event {
		e := event("2", "node-a", "PersistentVolumeClaim", "pending")
		e.Source.Component, e.ReportingController = "kubelet", "kubelet"
		return e
	}()), "the event is another program's", "and the program"},
	{"report about node-b", createEvent(event("3", "node-a", "Node", "node-b")),
		"the event is about another node", "its own Node alone"},
	{"report about a Secret", createEvent(event("4", "node-a", "Secret", "s")),
		"the event is about another kind of object", "claims, volumes, snapshots and its own Node"},
	{"report a page", createEvent(func() *corev1.Event {
		e := event("6", "node-a", "PersistentVolumeClaim", "pending")
		e.Message = strings.Repeat("x", 1025)
		return e
	}()), "the event's message is too long", "etcd would keep it"},
	{"rewrite an event of kubelet", patchEvent("foreign", `{"message":"all is well"}`),
		"the event is another program's", "only events of the daemons are counted on"},
	{"rewrite the reason of a daemon's event", patchEvent("of-b", `{"reason":"Other"}`),
		"nothing but its count, time and message of an event changes", "the same event of two nodes is one object"},
	{"report about a pod", createEvent(event("5", "node-a", "Pod", "some")),
		"the event is about another kind of object", "claims and volumes alone"},
	{"rewrite the words of node-b's event", patchEvent("of-b", `{"message":"all is well"}`),
		"the words of another node's event stay as they are", "its numbers are those of the last node that reports it"},
	{"take the lease of a shared pool in node-b's name", createLease(lease("new", "node-b")),
		"the lease is taken in another node's name", "a holder is named with its node"},
	{"make node-b the holder of node-a's lease", updateLease(lease("free", "node-b")),
		"the lease is taken in another node's name", "the same"},
	{"give up node-b's lease", updateLease(func() *coordinationv1.Lease {
		l := lease("held",
			"node-b")
		l.Spec.HolderIdentity = nil
		return l
	}()), "or taken from it", "a holder gives up its own"},
	{"delete the lease of a shared pool", func(w *world) error {
		return w.a.CoordinationV1().Leases(account).Delete(w.ctx, "held.hostpath-provisioner",
			metav1.DeleteOptions{})
	}, "the lease of a pool is not deleted", "only tombstones are collected"},
	{"call a pool's lease a tombstone", updateLease(func() *coordinationv1.Lease {
		l := lease("free", "node-a")
		l.Labels["hostpath-provisioner/tombstone"] = "delete"
		return l
	}()), "the lease of a pool or node is no tombstone", "no daemon could write it any more"},
	{"write a tombstone that is named as a pool's lease",
		createLease(tombstone("later.hostpath-provisioner",
			"node-a")), "the lease of a pool or node is no tombstone", "the pool would have no lease"},
	{"write a tombstone that is named as a node's lease",
		createLease(tombstone("hostpath-provisioner-node.node-c", "node-a")),
		"the lease of a pool or node is no tombstone", "that node's daemon could not write it"},
	{"take the lease of another node", createLease(ofNode("node-c", "node-a")),
		"and not this node's own", "that node's daemon would stop its work"},
	{"take the lease of another node in its name", createLease(ofNode("node-c", "node-c")),
		"and not this node's own", "the same"},
	{"renew the lease of another node", updateLease(ofNode("node-b", "node-a")),
		"and not this node's own", "the same"},
	{"delete the lease of another node", func(w *world) error {
		return w.a.CoordinationV1().Leases(account).Delete(w.ctx, ofNode("node-b", "").Name,
			metav1.DeleteOptions{})
	}, "the lease is of no pool", "another host could take its name"},
	{"fill the own node's lease", createLease(filled(ofNode("node-a", "node-a"))),
		"a lease has at most 8 annotations of 4 KiB", "who reads all leases is not flooded"},
	{"hold the own node's lease in another node's name", createLease(ofNode("node-a", "node-b")),
		"the lease is taken in another node's name", "it would be that node's fault"},
	{"delete a pool's lease that is called a tombstone", func(w *world) error {
		return w.a.CoordinationV1().Leases(account).Delete(w.ctx, "called.hostpath-provisioner",
			metav1.DeleteOptions{})
	}, "the lease of a pool or node is no tombstone", "its name says what it is"},
	{"write a lease that is no pool's", updateLease(anotherLease(nil)), "the lease is of no pool",
		"another program's election"},
	{"call another program's lease a pool's",
		updateLease(anotherLease(map[string]string{poolLabel: "another"})), "the lease is of no pool", "a pool's lease has pool and provisioner in its name"},
	{"write a lease of kube-system", func(w *world) error {
		l := lease("new", "node-a")
		l.Namespace = "kube-system"
		_, err := w.a.CoordinationV1().Leases("kube-system").Create(w.ctx, l,
			metav1.CreateOptions{})
		return err
	}, byRBAC, "the right is of one namespace"},
	{"write a tombstone in node-b's name", createLease(tombstone("pvc-x", "node-b")),
		"the tombstone is in another node's name", "a tombstone names its node"},
	{"publish a capacity of node-b", createCapacity(capacity("new-b", "node-b")),
		"the capacity is another node's", "the label has to be the node that the token is bound to"},
	{"publish a capacity for node-b under the own label",
		createCapacity(func() *storagev1.CSIStorageCapacity {
			c := capacity("new-a", "node-b")
			c.Labels[nodeLabel] = "node-a"
			return c
		}()), "the capacity is for another node", "the topology has to be its own"},
	{"change a capacity of node-b", patchCapacity("of-b", `{"maximumVolumeSize":"0"}`),
		"the capacity is another node's", "no pod would be scheduled there"},
	{"delete a capacity of node-b", func(w *world) error {
		return w.a.StorageV1().CSIStorageCapacities(account).Delete(w.ctx, "of-b",
			metav1.DeleteOptions{})
	}, "the capacity is another node's", "the same"},
	{"publish a capacity of another driver", createCapacity(func() *storagev1.CSIStorageCapacity {
		c := capacity("other", "node-a")
		c.Labels["csi.storage.k8s.io/drivername"] = "other.example"
		return c
	}()), "the capacity is another program's", "the driver is the provisioner"},
	{"publish a capacity for a class of another driver",
		createCapacity(func() *storagev1.CSIStorageCapacity {
			c := capacity("class", "node-a")
			c.StorageClassName = "other"
			return c
		}()),
		"the capacity's class is not in the policies' list", "the scheduler compares it whichever driver the class has"},
	{"publish that nodes which publish nothing have no room",
		createCapacity(ofSilent("none", "0",
			"0")), "the capacity for nodes that publish nothing is no hint to wait", "no pod would be scheduled there"},
	{"publish that nodes which publish nothing have the most room",
		createCapacity(ofSilent("most", "9Ti",
			"9223372036854775807")), "the capacity for nodes that publish nothing is no hint to wait", "a scheduler that scores takes them last"},
	{"have nodes that publish nothing have no room",
		patchCapacity("of-others",
			`{"maximumVolumeSize":"1"}`), "the capacity for nodes that publish nothing is no hint to wait", "the same"},
	{"publish a capacity for all nodes", createCapacity(func() *storagev1.CSIStorageCapacity {
		c := ofSilent("all", "0", "9223372036854775807")
		c.NodeTopology = &metav1.LabelSelector{}
		return c
	}()), "the capacity is for another node", "it names nodes"},
	{"have the capacity of all others deleted with node-b",
		createCapacity(func() *storagev1.CSIStorageCapacity {
			c := ofSilent("owned", "0", "9223372036854775807")
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-b",
				UID: "x"}}
			return c
		}()), "the capacity has another owner", "the CSIDriver owns it"},
	{"have the CSIDriver deleted with an owner",
		patchDriver(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"gone"}]}}`), "owner references stay as they are", "the garbage collector would do it"},
	{"change the CSIDriver's fields",
		patchDriver(`{"spec":{"fsGroupPolicy":"File","requiresRepublish":true}}`), "nothing but storageCapacity of a CSIDriver changes", "one field is the daemons'"},
	{"read Secrets", func(w *world) error {
		_, err := w.a.CoreV1().Secrets("kube-system").List(w.ctx, metav1.ListOptions{})
		return err
	}, byRBAC, "no right"},
	{"relabel its own Node", func(w *world) error {
		_, err := w.a.CoreV1().Nodes().Patch(w.ctx, "node-a", types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		return err
	}, byRBAC, "no right"},
	{"create a pod", func(w *world) error {
		_, err := w.a.CoreV1().Pods("default").Create(w.ctx,
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x",
					Image: "x"}}}}, metav1.CreateOptions{})
		return err
	}, byRBAC, "no right"},
	{"change what the policies allow", func(w *world) error {
		_, err := w.a.AdmissionregistrationV1().ValidatingAdmissionPolicies().Patch(w.ctx,
			"volumes.hostpath-provisioner.hostpath-provisioner", types.MergePatchType, []byte(`{"spec":{"variables":[]}}`), metav1.PatchOptions{})
		return err
	}, byRBAC, "no right"},
	{"remove a policy", func(w *world) error {
		return w.a.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(w.ctx,
			"volumes.hostpath-provisioner.hostpath-provisioner", metav1.DeleteOptions{})
	}, byRBAC, "no right"},
	{"give itself rights", func(w *world) error {
		_, err := w.a.RbacV1().ClusterRoles().Patch(w.ctx,
			"hostpath-provisioner:hostpath-provisioner", types.MergePatchType, []byte(`{"rules":[]}`), metav1.PatchOptions{})
		return err
	}, byRBAC, "no right"},
}
