package model

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// What the stage has for configurations that change, and for what the scheduler does.

// choosesAgain is what the scheduler does for a pod whose claim was given back because the pool was
// closed, as it is where a call to the disk is held for long.
func (st *stage) choosesAgain(s state) {
	claims := st.Client().CoreV1().PersistentVolumeClaims(st.Namespace)
	for slot, c := range s.api.claims {
		if !c.exists || s.daemons[0].peer {
			continue
		}
		real, err := claims.Get(st.Ctx, slotName(slot), metav1.GetOptions{})
		if err != nil || real.Spec.VolumeName != "" || real.Annotations[plan.SelectedNode] != "" {
			continue
		}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, plan.SelectedNode, st.machines[chosen].name)
		_, _ = claims.Patch(st.Ctx, real.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}) // it looks again soon
	}
}

func (st *stage) reconfigured(before state, node int) error {
	return st.machines[node].configure(before, func(d *setting) { d.archive = !d.archive })
}

func (st *stage) patternChanged(before state, node int) error {
	return st.machines[node].configure(before, func(d *setting) { d.pattern = !d.pattern })
}

func (st *stage) renamed(before state, node int) error {
	return st.machines[node].configure(before, func(d *setting) { d.names++ })
}

func (st *stage) aliasSet(before state, node int) error {
	on := st.machines[node]
	on.daemon.Kill()
	if err := on.configure(before, func(d *setting) { d.names = aliased }); err != nil {
		return err
	}
	return on.start()
}

// configure changes the configuration.
func (on *machine) configure(before state, change func(*setting)) error {
	d := before.daemons[on.number].setting
	change(&d)
	return on.daemon.Configure(on.config(on.daemon.Path(), d))
}
