package main

import "testing"

// Only what is whole in a pool's trash may be kept there.
func TestLeft(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		want leftError
	}{
		"whole in the trash":  {"fast/.hostpath-provisioner/trash/pvc-1", leftError{"fast/.hostpath-provisioner/trash/pvc-1", "fast", "pvc-1"}},
		"its files are going": {"fast/.hostpath-provisioner/trash/pvc-1~", leftError{path: "fast/.hostpath-provisioner/trash/pvc-1~"}},
		"half made":           {"big/.hostpath-provisioner/staging/pvc-1", leftError{path: "big/.hostpath-provisioner/staging/pvc-1"}},
	} {
		if got := newLeftError(c.path); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
