package model

import (
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// labelEdited edits a label as the model does, or sets it right.
func (st *stage) labelEdited(before state, cell int) error {
	v := before.api.volumes[cell]
	key, value := plan.NodeLabel, anotherNode
	switch {
	case int(v.in) == sharedPool && v.astray:
		key, value = plan.ScopeLabel, plan.ScopeShared
	case int(v.in) == sharedPool:
		return patched(fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, plan.ScopeLabel))(st, before, cell)
	case v.astray:
		value = plan.NodeLabelValue(st.machines[0].name)
	}
	return patched(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value))(st, before, cell)
}
