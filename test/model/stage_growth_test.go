package model

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sys/unix"
)

// What the stage has for claims that grow.

// mebibytes is how large a filesystem has to be for what a world's pool can promise.
func mebibytes(first state) int {
	if first.daemons[0].room == 0 {
		return 0
	}
	return 1024 * (2 + int(first.daemons[0].room))
}

// reserve is what the pool is to keep free, in MiB, so that so many units are left and half of one.
func (st *stage) reserve(room uint8) uint64 {
	var fs unix.Statfs_t
	st.Must(unix.Statfs(st.mount, &fs))
	return (fs.Bavail*uint64(fs.Bsize) - uint64(room)*unit - unit/2) >> 20
}

// volumeOf is the real name of the volume that a claim has now.
func (st *stage) volumeOf(claim string) (pv string) {
	for cell, name := range st.known() {
		if name != "" && slotName(cell/lives) == claim {
			pv = name
		}
	}
	return pv
}

func (st *stage) moreRequested(before state, slot int) error {
	return st.asksFor(slot, before.api.claims[slot].asks+1)
}

func (st *stage) lessRequested(before state, slot int) error {
	return st.asksFor(slot, before.api.claims[slot].asks-1)
}

func (st *stage) asksFor(slot int, to more) error {
	size := to.quantity()
	patch := fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size.String())
	_, err := st.Client().CoreV1().PersistentVolumeClaims(st.Namespace).Patch(st.Ctx, slotName(slot), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// claimSize is what a claim that is made requests: a unit, where the pool has room for so many of
// them.
func claimSize(s state) string {
	if s.daemons[0].room == 0 {
		return "1Mi"
	}
	return fmt.Sprint(unit)
}
