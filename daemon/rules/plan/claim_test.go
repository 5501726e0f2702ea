package plan

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
)

const (
	us   = "node-a"
	them = "node-b"
)

// ready is a claim that this node can provision at once: the scheduler chose it, the pool is open.
// Each case changes what it is about.
var self = Self{Provisioner: DefaultProvisioner, Node: us}

func ready() ClaimFacts {
	class, wait := "fast", storagev1.VolumeBindingWaitForFirstConsumer
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "u-1", Annotations: map[string]string{
			StorageProvisioner: DefaultProvisioner, SelectedNode: us,
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
	}
	ask(claim, "1Gi")
	return ClaimFacts{
		Claim: claim,
		Class: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: DefaultProvisioner, VolumeBindingMode: &wait},
		RequestFacts: RequestFacts{
			Self: self, NodeLabels: map[string]string{HostnameLabel: "host-a"}, Pool: testPool("fast"), Room: capacity.Room{Free: 10 << 30, Available: 12 << 30, Promised: 3 << 30},
		},
	}
}

func testPool(name string) Pool {
	return Pool{Name: name, Path: "/srv/" + name, Scope: "node", Source: SourceHostPath, Mode: 0o777, OnDelete: OnDeleteDelete,
		Directory: func(pv, _, _ string) (string, error) { return pv, nil }}
}

func ask(c *corev1.PersistentVolumeClaim, size string) {
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

func immediate(f *ClaimFacts) {
	mode := storagev1.VolumeBindingImmediate
	f.Class.VolumeBindingMode = &mode
	delete(f.Claim.Annotations, SelectedNode)
}

func block(f *ClaimFacts) {
	mode := corev1.PersistentVolumeBlock
	f.Claim.Spec.VolumeMode = &mode
}

func held(f *ClaimFacts)   { f.Held = true }
func closed(f *ClaimFacts) { f.Closed = "/srv/fast is not mounted" }
func others(f *ClaimFacts) { f.Nodes = 2 }
func large(f *ClaimFacts)  { ask(f.Claim, "11Gi") }

// theirs is a claim that another node was given long ago; told is what the API server says of it.
func theirs(f *ClaimFacts) {
	f.Nodes, f.Age = 2, 10*time.Minute
	f.Claim.Annotations[SelectedNode] = them
}

func told(i Inquiry) func(*ClaimFacts) { return func(f *ClaimFacts) { f.Inquiry = &i } }

func namesThem(f *ClaimFacts) { f.Claim.Annotations[ProvisionOnNode] = them }

func many(f *ClaimFacts) {
	f.Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
}

// from has the claim filled from an object.
func from(group, kind string) func(*ClaimFacts) {
	return func(f *ClaimFacts) {
		f.Claim.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: kind, Name: "other"}
		if group == "" {
			f.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kind, Name: "other"}
		} else {
			f.Claim.Spec.DataSourceRef.APIGroup = &group
		}
	}
}

// TestClaimPrecedence tests the list, not the rules one by one: each case breaks two rules or more
// and says which one speaks.
func TestClaimPrecedence(t *testing.T) {
	now := metav1.Now()
	type change = func(*ClaimFacts)
	cases := []struct {
		name    string
		changes []change
		action  Action
		reason  string
		message string
	}{
		{"nothing in the way", nil, Provision, "", ""},
		{"being deleted before anything else", []change{closed, func(f *ClaimFacts) { f.Claim.DeletionTimestamp = &now }}, Ignore, "", ""},
		{"bound before closed", []change{closed, func(f *ClaimFacts) { f.Claim.Spec.VolumeName = "pv" }}, Ignore, "", ""},
		{"another provisioner before block mode", []change{block, func(f *ClaimFacts) { f.Claim.Annotations[StorageProvisioner] = "x.example/y" }}, Ignore, "", ""},
		{"the older annotation counts where the newer is absent", []change{func(f *ClaimFacts) {
			delete(f.Claim.Annotations, StorageProvisioner)
			f.Claim.Annotations[StorageProvisionerBeta] = DefaultProvisioner
		}}, Provision, "", ""},
		{"the newer annotation outranks the older", []change{func(f *ClaimFacts) {
			f.Claim.Annotations[StorageProvisioner] = "x.example/y"
			f.Claim.Annotations[StorageProvisionerBeta] = DefaultProvisioner
		}}, Ignore, "", ""},
		{"selected here, no provisioner asked yet", []change{unasked}, Provision, "", ""},
		{"another node before block mode", []change{block, func(f *ClaimFacts) { f.Claim.Annotations[SelectedNode] = them }}, Wait, "", ""},
		{"the named node outranks the selected one", []change{namesThem}, Wait, "", ""},
		{"another node's for long: ask", []change{theirs, block}, Inquire, "", ""},
		{"another node's, made and not bound yet", []change{immediate, theirs, told(Inquiry{Volume: true, Gone: true})}, Wait, "", ""},
		{"the scheduler chose a node that is gone: it chooses again", []change{theirs, told(Inquiry{Gone: true})}, Release, ReasonNodeNotFound,
			"node node-b was chosen for the claim, and the cluster has no node of this name any more; the scheduler may choose again"},
		{"the scheduler chose a node that does nothing: no node takes it from there", []change{theirs, told(Inquiry{})}, Remind, ReasonNodeSilent,
			"node node-b was chosen for the claim and has made no volume; unless another event here says why, its daemon does not run"},
		{"the author named a node that is not there", []change{theirs, namesThem, told(Inquiry{Gone: true})}, Remind, ReasonNodeNotFound,
			"the claim names node node-b in kubevirt.io/provisionOnNode, and the cluster has no node of this name"},
		{"the author named a node that does nothing: Immediate as well", []change{immediate, theirs, namesThem, told(Inquiry{})}, Remind, ReasonNodeSilent, "node node-b was chosen"},
		{"named, and no provisioner asked because nothing is selected", []change{theirs, told(Inquiry{Gone: true}), func(f *ClaimFacts) {
			f.Claim.Annotations = map[string]string{ProvisionOnNode: them}
		}}, Remind, ReasonNodeNotFound, "node-b"},
		{"named, and of a class that is another provisioner's", []change{theirs, told(Inquiry{Gone: true}), func(f *ClaimFacts) {
			f.Claim.Annotations, f.Class.Provisioner = map[string]string{ProvisionOnNode: them}, "x.example/y"
		}}, Ignore, "", ""},
		{"a name that no node can have is quoted and cut", []change{theirs, told(Inquiry{Gone: true}), func(f *ClaimFacts) {
			f.Claim.Annotations[SelectedNode] = "a\x1b[2J" + strings.Repeat("b", 300)
		}}, Release, ReasonNodeNotFound, `node "a\x1b[2J` + strings.Repeat("b", 55) + `" was chosen`},
		{"Immediate, taken by a node that does nothing: take it over", []change{immediate, theirs, told(Inquiry{})}, Assign, "", ""},
		{"Immediate, taken by a node that is gone", []change{immediate, theirs, told(Inquiry{Gone: true})}, Assign, "", ""},
		{"Immediate, taken, and this pool is closed: others look at it, too", []change{immediate, theirs, closed, told(Inquiry{}), func(f *ClaimFacts) { f.Age = 5 * time.Minute }}, Wait, "", ""},
		{"Immediate, taken, closed here, and no other node took it over", []change{immediate, theirs, closed, told(Inquiry{}), func(f *ClaimFacts) { f.Age = time.Hour }}, Wait, ReasonPoolClosed, "not mounted"},
		{"named here, selected elsewhere: write our name first", []change{func(f *ClaimFacts) {
			f.Claim.Annotations[ProvisionOnNode], f.Claim.Annotations[SelectedNode] = us, them
		}}, Assign, "", ""},
		{"named here, no provisioner asked because nothing is selected", []change{func(f *ClaimFacts) {
			f.Claim.Annotations = map[string]string{ProvisionOnNode: us}
		}}, Assign, "", ""},
		{"named here, Immediate: no need to write a name", []change{immediate, func(f *ClaimFacts) { f.Claim.Annotations[ProvisionOnNode] = us }}, Provision, "", ""},
		{"provisioned already, before closed", []change{closed, func(f *ClaimFacts) {
			f.Volume = &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: "u-1"}}}
		}}, Ignore, "", ""},
		{"a volume of another claim is not ours", []change{func(f *ClaimFacts) {
			f.Volume = &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: "u-2"}}}
		}}, Provision, "", ""},
		{"another provisioner's class", []change{func(f *ClaimFacts) { f.Class, f.ClassOf = nil, "example.com/other" }}, Wait, ReasonClassNotFound,
			`storage class "fast" belongs to provisioner "example.com/other" now, and the claim is for "hostpath-provisioner"`},
		{"no class before block mode", []change{block, func(f *ClaimFacts) { f.Class = nil }}, Wait, ReasonClassNotFound, `storage class "fast" does not exist`},
		{"block mode before closed", []change{block, closed}, Refuse, ReasonBlockMode, "volumeMode Block"},
		{"parameter before access mode", []change{others, many, func(f *ClaimFacts) { f.Refusal = &Refusal{Reason: ReasonUnknownParameter, Message: "class fast: p"} }}, Refuse, ReasonUnknownParameter, "class fast: p"},
		{"access mode on the only node: every pod is on it", []change{many}, Provision, "", ""},
		{"access mode before closed", []change{others, closed, func(f *ClaimFacts) {
			f.Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany}
		}}, Refuse, ReasonAccessMode, "ReadWriteMany"},
		{"data source before closed", []change{closed, func(f *ClaimFacts) {
			f.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
		}}, Refuse, ReasonDataSource, "dataSource"},
		{"a claim by reference", []change{from("", "PersistentVolumeClaim")}, Refuse, ReasonDataSource, "dataSource"},
		{"a snapshot by reference", []change{from("snapshot.storage.k8s.io", "VolumeSnapshot")}, Refuse, ReasonDataSource, "dataSource"},
		{"a populator's, before closed", []change{closed, from("example.com", "Populator")}, Wait, ReasonPopulator, `waits for the populator of "Populator" "other", which makes the volume and binds it`},
		{"a populator's on another node, which makes no volume either", []change{theirs, told(Inquiry{}), from("example.com", "Populator")}, Wait, "", ""},
		{"a claim of another group is a populator's", []change{from("example.com", "PersistentVolumeClaim")}, Wait, ReasonPopulator, "populator"},
		{"selector before closed", []change{closed, func(f *ClaimFacts) { f.Claim.Spec.Selector = &metav1.LabelSelector{} }}, Refuse, ReasonSelector, "selector"},
		{"attributes class before closed", []change{closed, func(f *ClaimFacts) { f.Claim.Spec.VolumeAttributesClassName = new("gold") }}, Refuse, ReasonAttributesClass,
			`volumeAttributesClassName "gold": only CSI volumes can have one, and Kubernetes would never bind this claim to another; use a claim without it`},
		{"attributes class of a volume that could have one",
			[]change{func(f *ClaimFacts) {
				f.Pool.Source,
					f.Claim.Spec.VolumeAttributesClassName = SourceCSI, new("gold")
			}},
			Refuse, ReasonAttributesClass,
			`volumeAttributesClassName "gold": volumes of this provisioner have no attributes that a VolumeAttributesClass changes; use a claim without it`},
		{"an empty attributes class is none", []change{func(f *ClaimFacts) { f.Claim.Spec.VolumeAttributesClassName = new("") }}, Provision, "", ""},
		{"100E is more than there is", []change{func(f *ClaimFacts) { ask(f.Claim, "100E") }}, Wait, ReasonNotEnoughSpace, "the claim requests 100E, and"},
		{"1e999999999 is, too, and is not written out", []change{func(f *ClaimFacts) { ask(f.Claim, "1e999999999") }}, Wait, ReasonNotEnoughSpace, "the claim requests 1e999999999, and"},
		{"less than nothing", []change{func(f *ClaimFacts) { ask(f.Claim, "-1") }}, Wait, ReasonNotEnoughSpace, "requests -1"},
		{"half a byte has room", []change{func(f *ClaimFacts) { ask(f.Claim, "0.5") }}, Provision, "", ""},
		{"a class name is quoted and cut", []change{func(f *ClaimFacts) {
			f.Class, f.Claim.Annotations[ClassBeta] = nil, "line\n"+strings.Repeat("x", 300)
		}}, Wait, ReasonClassNotFound, `storage class "line\nxxx`},
		{"unknown parameter before closed", []change{closed, func(f *ClaimFacts) { f.Refusal = &Refusal{Reason: ReasonUnknownParameter, Message: "class fast: p"} }}, Refuse, ReasonUnknownParameter, "class fast: p"},
		{"unknown pool on the only node waits", []change{func(f *ClaimFacts) { f.Refusal = &Refusal{Reason: ReasonUnknownPool, Message: "no pool", Help: ByNode} }}, Wait, ReasonUnknownPool, "node node-a: no pool"},
		{"unknown pool where others may have it", []change{others, func(f *ClaimFacts) { f.Refusal = &Refusal{Reason: ReasonUnknownPool, Message: "no pool", Help: ByNode} }}, Release, ReasonUnknownPool, "no pool"},
		{"topology before closed", []change{closed, func(f *ClaimFacts) {
			f.Class.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: HostnameLabel, Values: []string{"host-b"}}}}}
		}}, Wait, ReasonTopology, "allowedTopologies"},
		{"node unknown before closed", []change{closed, func(f *ClaimFacts) { f.NodeLabels = nil }}, Wait, ReasonNodeNotFound, "the cluster has no node of this name"},
		{"node without the label", []change{func(f *ClaimFacts) { f.NodeLabels = map[string]string{} }}, Wait, ReasonNodeNotFound, "has no label kubernetes.io/hostname"},
		{"bad directory name before closed", []change{closed, func(f *ClaimFacts) {
			f.Pool.Directory = func(_, _, _ string) (string, error) { return "", errors.New("too long") }
		}}, Wait, ReasonBadName, "pool fast: too long"},
		{"held by another daemon of this host, with other nodes: it is not given back", []change{others, closed, held}, Wait, ReasonPoolInUse, "node node-a: pool fast: "},
		{"closed before too large", []change{closed, large}, Wait, ReasonPoolClosed, "pool fast: /srv/fast is not mounted"},
		{"closed, with other nodes: give it back", []change{others, closed}, Release, ReasonPoolClosed, "not mounted"},
		{"closed, named here: no other node may", []change{others, closed, func(f *ClaimFacts) { f.Claim.Annotations[ProvisionOnNode] = us }}, Wait, ReasonPoolClosed, "not mounted"},
		{"too large", []change{large}, Wait, ReasonNotEnoughSpace, "pool fast: the claim requests 11Gi, and 10.0 GiB is available for new volumes: 12.0 GiB is free, and 3.0 GiB is promised to volumes"},
		{"exactly the free space fits", []change{func(f *ClaimFacts) { ask(f.Claim, "10Gi") }}, Provision, "", ""},
		{"too large, with other nodes: give it back", []change{others, large}, Release, ReasonNotEnoughSpace, "11Gi"},
		{"waiting for a consumer, given back by another program", []change{func(f *ClaimFacts) { delete(f.Claim.Annotations, SelectedNode) }}, Ignore, "", ""},
		{"Immediate on a single node: no waiting", []change{immediate}, Assign, "", ""},
		{"Immediate, others may have more room: wait silently", []change{immediate, others}, Wait, "", ""},
		{"Immediate, the head start is over", []change{immediate, others, func(f *ClaimFacts) { f.Age = 10 * time.Second }}, Assign, "", ""},
		{"Immediate, closed here: leave it to others silently", []change{immediate, others, closed}, Wait, "", ""},
		{"Immediate, closed here, and no node took it: report it", []change{immediate, others, closed, func(f *ClaimFacts) { f.Age = time.Minute }}, Wait, ReasonPoolClosed, "not mounted"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := changed(ready(), c.changes)
			got := ForClaim(f)
			if got.Action != c.action || got.Reason != c.reason || !strings.Contains(got.Message, c.message) {
				t.Errorf("got %s %s %q, want %s %s %q", got.Action, got.Reason, got.Message, c.action, c.reason, c.message)
			}
			if silentWait := got.Action == Wait && got.Reason == ""; silentWait && got.After <= 0 {
				t.Error("a silent wait without a time is a claim forgotten")
			}
		})
	}
}

func TestKeepClaim(t *testing.T) {
	cases := []struct {
		name   string
		change func(*corev1.PersistentVolumeClaim)
		keep   bool
	}{
		{"selected here", func(*corev1.PersistentVolumeClaim) {}, true},
		{"selected elsewhere", func(c *corev1.PersistentVolumeClaim) { c.Annotations[SelectedNode] = them }, false},
		{"named here, selected elsewhere", func(c *corev1.PersistentVolumeClaim) {
			c.Annotations[SelectedNode], c.Annotations[ProvisionOnNode] = them, us
		}, true},
		{"named here, no provisioner asked yet", func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{ProvisionOnNode: us} }, true},
		{"named elsewhere, selected here", func(c *corev1.PersistentVolumeClaim) { c.Annotations[ProvisionOnNode] = them }, false},
		{"asked of us, no node chosen", func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, SelectedNode) }, true},
		{"no provisioner asked", func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }, false},
		{"selected here, no provisioner asked", func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, StorageProvisioner) }, true},
		{"selected elsewhere, no provisioner asked", func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{SelectedNode: them} }, false},
		{"selected here, handed to a CSI driver", func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{SelectedNode: us, MigratedTo: "x.example/y"}
		}, false},
		{"asked of another", func(c *corev1.PersistentVolumeClaim) { c.Annotations[StorageProvisioner] = "x.example/y" }, false},
		{"bound", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }, false},
		{"being deleted", func(c *corev1.PersistentVolumeClaim) { now := metav1.Now(); c.DeletionTimestamp = &now }, false},
	}
	for _, c := range cases {
		claim := ready().Claim
		c.change(claim)
		if got := self.KeepClaim(claim); got != c.keep {
			t.Errorf("%s: keep is %v, want %v", c.name, got, c.keep)
		}
	}
}

// What KeepClaim forgets, ForClaim must ignore: else a claim would be forgotten that has to be
// decided.
func TestKeepAgreesWithDecision(t *testing.T) {
	values := []string{"", us, them}
	for _, asked := range []string{"", DefaultProvisioner, "x.example/y"} {
		for _, selected := range values {
			for _, named := range values {
				for _, wait := range []bool{true, false} {
					f := ready()
					if !wait {
						immediate(&f)
					}
					f.Claim.Annotations = map[string]string{StorageProvisioner: asked, SelectedNode: selected, ProvisionOnNode: named}
					keep, v := self.KeepClaim(f.Claim) || self.KeepClaimOfOther(f.Claim), ForClaim(f)
					if !keep && v.Action != Ignore {
						t.Errorf("asked %q, selected %q, named %q, waits %v: forgotten, yet the verdict is %s", asked, selected, named, wait, v.Action)
					}
				}
			}
		}
	}
}
