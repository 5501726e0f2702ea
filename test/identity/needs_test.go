package identity

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// whileApplied tries it with other lists in force, until it is refused. Then the lists are
// restored, until restored is allowed.
func (w *world) whileApplied(flags []string, try, restored func() error) error {
	w.Helper()
	var refused error
	w.apply(flags...)
	w.Eventually("it is refused", func() bool { refused = try(); return refused != nil })
	w.apply(lists...)
	w.Eventually("the lists are restored", func() bool { return restored() == nil })
	return refused
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// statusWithoutSharedPools writes the status of another node's claim where no pool is of several
// nodes.
func statusWithoutSharedPools(w *world) error {
	return w.whileApplied([]string{"--claim-index", "--pool-path", "/srv/fast"}, func() error {
		return patch(claimsAt+"bound-b/status", `{"status":{"capacity":{"storage":"1Gi"}}}`)(w)
	}, func() error {
		return only(w.a.CoreV1().PersistentVolumes().Create(w.Ctx,
			volume("restored", "", scoped("every-node", "/srv/every/"+pvc("restored"))), dryRun))
	})
}

// tokenForAnotherAudience also sees that the next token for the API server is given.
func tokenForAnotherAudience(w *world) error {
	request := func(audiences ...string) error {
		return only(w.a.CoreV1().ServiceAccounts(account).CreateToken(w.Ctx, account,
			&authenticationv1.TokenRequest{
				Spec: authenticationv1.TokenRequestSpec{Audiences: audiences,
					BoundObjectRef: boundTo("node-a")}}, dryRun))
	}
	vault := func() error { return request("vault") }
	return w.whileApplied(append([]string{"--audience", "https://kubernetes.default.svc"},
		lists...), func() error {
		if err := request(); err != nil {
			w.Errorf("for the API server: %v", err)
		}
		return vault()
	}, vault)
}

// letGo takes the provisioner's finalizer off a volume, and deletes it.
func letGo(name string) func(*world) error {
	return func(w *world) error {
		_, err := w.a.CoreV1().PersistentVolumes().Patch(w.Ctx, name, types.JSONPatchType,
			[]byte(`[{"op":"remove","path":"/metadata/finalizers/0"}]`), metav1.PatchOptions{})
		if err != nil {
			return err
		}
		return w.a.CoreV1().PersistentVolumes().Delete(w.Ctx, name, metav1.DeleteOptions{})
	}
}

// inTurn does one after the other, as long as none is refused.
func inTurn(all ...func(*world) error) func(*world) error {
	return func(w *world) error {
		for _, try := range all {
			if err := try(w); err != nil {
				return err
			}
		}
		return nil
	}
}

// closedBy ends a patch of a capacity.
const closedBy = `"metadata":{"annotations":{"hostpath-provisioner/closed":"LowSpace"}}}`

// needs are what the daemon does, one of each kind.
var needs = map[string]func(*world) error{
	"label a volume of the index": patch(volumesAt+pvc("to-grow"),
		`{"metadata":{"labels":{"hostpath-provisioner/kept-for":"x"}}}`),
	"label a claim of the index": patch(claimsAt+"bound",
		`{"metadata":{"labels":{"hostpath-provisioner/claim":"x"}}}`),
	"an own volume": create(volume("n1", "node-a")),
	"a volume under a readable name": create(volume("n6", "node-a",
		at("/data/fast/default-claim-"+pvc("n6")))),
	"a volume of a class that is listed": create(volume("n7", "node-a",
		ofClass("listed"))),
	"a volume of a class of a prefix": create(volume("n8", "node-a",
		ofClass("some-class"))),
	"a volume in the place of another provisioner": create(volume("n10", "node-a",
		annotated("hostPathProvisionerIdentity", "node-a"), annotated("kubevirt.io/provisionOnNode",
			"node-a"))),
	"a lease is mended that another program called a tombstone": updateLease(lease("called",
		"node-a")),
	"a local volume": create(volume("n2", "node-a",
		ofLocal("/srv/fast/"+pvc("n2")), withOptions("noatime", "nosuid"))),
	"a CSI volume": create(volume("n5", "node-a",
		ofCSI(func(*corev1.CSIPersistentVolumeSource) {}))),
	"a shared volume": create(volume("n3", "",
		scoped("shared", "/srv/shared/"+pvc("n3")))),
	"one of all nodes": create(volume("n4", "",
		scoped("every-node", "/srv/every/"+pvc("n4")))),
	"a larger volume": patch(volumesAt+pvc("to-grow"),
		`{"spec":{"capacity":{"storage":"2Gi"}}}`),
	"a volume goes": letGo(pvc("to-go")),
	"a volume that is labelled with that goes":            letGo("from-before"),
	"a shared volume goes":                                letGo(pvc("shared")),
	"a volume of kubevirt's driver that was adopted goes": letGo(pvc("adopted")),
	"a claim is taken and given back": inTurn(
		patch(claimsAt+"to-serve",
			`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"node-a"}}}`),
		patch(claimsAt+"to-serve",
			`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":null}}}`)),
	"a claim is taken over from a node that is gone": patch(claimsAt+"of-b",
		`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"node-a"}}}`),
	"an expansion": patch(claimsAt+"to-grow/status",
		`{"metadata":{"annotations":{"volume.kubernetes.io/storage-resizer":"hostpath-provisioner"}},"status":{"allocatedResources":{"storage":"1Gi"},"conditions":[{"type":"Resizing","status":"True"}]}}`),
	"events": inTurn(
		createEvent(event("need-0", "node-a", "PersistentVolumeClaim", "some")),
		createEvent(event("need-1", "node-a", "PersistentVolume", "some")),
		createEvent(event("need-2", "node-a", "Node", "node-a")),
		patch(eventsAt+"crowded",
			`{"count":2,"message":"other words of other nodes","lastTimestamp":"2026-01-01T00:00:00Z"}`),
		patch(eventsAt+"of-b",
			`{"count":2,"message":"1.5 GiB (98 %) are free","lastTimestamp":"2026-01-01T00:00:00Z"}`)),
	"a lease": inTurn(createLease(lease("needed", "node-a")),
		updateLease(lease("needed", "node-a")), updateLease(lease("needed", "node-a", givenUp))),
	"the lease of a pool called node": createLease(lease("node", "node-a")),
	"the node's own lease": inTurn(createLease(ofNode("node-a", "node-a")),
		updateLease(ofNode("node-a", "node-a")), remove(leasesAt+ofNode("node-a", "").Name)),
	"a tombstone": inTurn(createLease(tombstone("pvc-needed", "node-a")),
		remove(leasesAt+"pvc-gone")),
	"capacities": inTurn(
		createCapacity(capacity("need-a", "node-a")),
		patch(capacitiesAt+"need-a", `{"capacity":"2Gi","maximumVolumeSize":"2Gi",`+closedBy),
		remove(capacitiesAt+"need-a"),
		createCapacity(ofSilent("need-others", "0", "9223372036854775807")),
		patch(capacitiesAt+"need-others",
			`{"capacity":"0","maximumVolumeSize":"9223372036854775807",`+closedBy),
		remove(capacitiesAt+"need-others")),
	"the scheduler compares": patch(driverAt, `{"metadata":{"annotations":{"hostpath-provisioner/reviewed":"2026-01-01T00:00:00Z","hostpath-provisioner/publishing":"1"}},"spec":{"storageCapacity":true}}`),
	"the next token":         token(account, boundTo("node-a")),
	"adopt looks first": func(w *world) error {
		return only(w.a.CoreV1().PersistentVolumes().Create(w.Ctx, volume("n9", "node-a"), dryRun))
	},
}
