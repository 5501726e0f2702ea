package plan

import (
	"reflect"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func classOfKubevirt() *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "c", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
		Provisioner: KubevirtCSI, Parameters: map[string]string{"storagePool": "fast"}, MountOptions: []string{"noatime"},
	}
}

// The class is the one object that the watch keeps, for all workers: what is read of it is never
// written.
func TestResolveLeavesTheClass(t *testing.T) {
	self, pools := Self{Provisioner: DefaultProvisioner, Aliases: []string{KubevirtCSI}, Node: us}, []Pool{{Name: "fast"}, {Name: "legacy"}}
	class := classOfKubevirt()
	if pool, refusal := self.Resolve(class, pools); refusal != nil || pool.Name != "fast" {
		t.Errorf("resolved to %q, %v", pool.Name, refusal)
	}
	if !reflect.DeepEqual(class, classOfKubevirt()) {
		t.Errorf("the class became %+v", class)
	}
	class.Parameters = nil // the pool "legacy" is put in its place
	if pool, refusal := self.Resolve(class, pools); refusal != nil || pool.Name != "legacy" || class.Parameters != nil {
		t.Errorf("resolved to %q, %v; parameters %v", pool.Name, refusal, class.Parameters)
	}
}

// A class of another system is resolved for each claim, several times: it is not copied as a whole.
func TestResolveCopiesLittle(t *testing.T) {
	self, pools := Self{Provisioner: DefaultProvisioner, Aliases: []string{KubevirtCSI}, Node: us}, []Pool{{Name: "fast"}}
	class := classOfKubevirt()
	few := testing.AllocsPerRun(10, func() { self.Resolve(class, pools) })
	class.Labels = map[string]string{}
	for i := range 100 {
		class.Labels[string(rune('a'+i))] = "x"
		class.MountOptions = append(class.MountOptions, "x")
	}
	if many := testing.AllocsPerRun(10, func() { self.Resolve(class, pools) }); many > few {
		t.Errorf("%g allocations for a large class, %g for a small one", many, few)
	}
}
