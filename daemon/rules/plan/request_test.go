package plan

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
)

// asked is a request that this node can have a volume for. It comes without a claim.
func asked() RequestFacts {
	return RequestFacts{
		Self: self, Nodes: 2, NodeLabels: map[string]string{HostnameLabel: "host-a"}, Pool: testPool("fast"), Room: capacity.Room{Free: 10 << 30},
		Request: Request{
			Volume: "pvc-1", Class: "fast", Size: resource.MustParse("1Gi"),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
	}
}

// TestRequestPrecedence breaks two rules or more in each case, and names the one that decides.
func TestRequestPrecedence(t *testing.T) {
	type change = func(*RequestFacts)
	closed := func(f *RequestFacts) { f.Closed = "/srv/fast is not mounted" }
	large := func(f *RequestFacts) { f.Request.Size = resource.MustParse("11Gi") }
	filled := func(group, kind string) change {
		return func(f *RequestFacts) {
			f.Request.Source = &corev1.TypedObjectReference{APIGroup: &group, Kind: kind, Name: "from"}
		}
	}
	block := func(f *RequestFacts) { f.Request.VolumeMode = corev1.PersistentVolumeBlock }
	many := func(f *RequestFacts) {
		f.Request.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	selector := func(f *RequestFacts) { f.Request.Selector = true }
	attributes := func(f *RequestFacts) { f.Request.AttributesClass = "gold" }
	elsewhere := func(f *RequestFacts) {
		f.Request.Topologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: HostnameLabel, Values: []string{"host-b"}}}}}
	}
	nodeless := func(f *RequestFacts) { f.NodeLabels = nil }
	driverless := func(f *RequestFacts) { f.Driver = "the cluster has no CSIDriver" }
	longName := func(f *RequestFacts) {
		f.Pool.Directory = func(_, _, _ string) (string, error) { return "", errors.New("too long") }
	}
	inUse := func(f *RequestFacts) { f.Held = true }
	noPool := func(f *RequestFacts) { _, f.Refusal = f.Resolve(storageClass("pool", "slow"), []Pool{f.Pool}) }
	noParameter := func(f *RequestFacts) { _, f.Refusal = f.Resolve(storageClass("quota", "1"), []Pool{f.Pool}) }
	cases := []struct {
		name    string
		changes []change
		reason  string
		help    Help
	}{
		{"nothing speaks against it", nil, "", 0},
		{"an unknown parameter before block mode", []change{noParameter, block}, ReasonUnknownParameter, ByRequest},
		{"an unknown pool before block mode", []change{noPool, block}, ReasonUnknownPool, ByNode},
		{"a populator before block mode", []change{filled("example.com", "Backup"), block}, ReasonPopulator, ByItself},
		{"block mode before the access mode", []change{block, many}, ReasonBlockMode, ByRequest},
		{"the access mode before the source", []change{many, filled("", "PersistentVolumeClaim")}, ReasonAccessMode, ByRequest},
		{"the access mode is any on a single node", []change{many, func(f *RequestFacts) { f.Nodes = 1 }}, "", 0},
		{"the source before the selector", []change{filled("snapshot.storage.k8s.io", "VolumeSnapshot"), selector}, ReasonDataSource, ByRequest},
		{"the selector before the attributes class", []change{selector, attributes}, ReasonSelector, ByRequest},
		{"the attributes class before the topology", []change{attributes, elsewhere}, ReasonAttributesClass, ByRequest},
		{"the topology before the name", []change{elsewhere, longName}, ReasonTopology, ByNode},
		{"the attributes class before the driver", []change{attributes, driverless}, ReasonAttributesClass, ByRequest},
		{"the driver before the topology", []change{driverless, elsewhere}, ReasonDriver, ByItself},
		{"an unknown node before the name", []change{nodeless, longName}, ReasonNodeNotFound, ByItself},
		{"the name before a pool in use", []change{longName, inUse}, ReasonBadName, ByNode},
		{"a pool in use before a closed pool", []change{inUse, closed}, ReasonPoolInUse, ByItself},
		{"a closed pool before the size", []change{closed, large}, ReasonPoolClosed, ByNode},
		{"the size", []change{large}, ReasonNotEnoughSpace, ByNode},
		{"a shared pool needs neither topology nor node", []change{elsewhere, nodeless, func(f *RequestFacts) { f.Pool.Scope = ScopeShared }}, "", 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := changed(asked(), c.changes)
			got, refused := ForRequest(f)
			if refused != (c.reason != "") || got.Reason != c.reason || got.Help != c.help {
				t.Errorf("refused %t: %+v, want reason %q, help %d", refused, got, c.reason, c.help)
			}
			if refused && (got.Message == "" || strings.Contains(got.Message, "%!")) {
				t.Errorf("message %q", got.Message)
			}
		})
	}
}

// storageClass is one of ours with this parameter.
func storageClass(key, value string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: DefaultProvisioner, Parameters: map[string]string{key: value},
	}
}
