package expansion

import (
	"errors"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
)

// A record that says less than its volume object gets that size, and no other is touched.
func TestMend(t *testing.T) {
	for name, c := range map[string]struct {
		recorded int64
		fails    bool
		did      string
		after    int64
	}{
		"smaller":        {1 << 20, false, "disk 1Gi", 1 << 30},
		"as the object":  {1 << 30, false, "", 1 << 30},
		"larger":         {3 << 30, false, "", 3 << 30},
		"the disk fails": {1 << 20, true, "", 1 << 20},
		"without a size": {0, false, "", 0},
	} {
		e, p := growing()
		e.record.Requested = c.recorded
		if c.fails {
			e.fails["disk 1Gi"] = errors.New("broken")
		}
		h, _ := p.Disk.Open(t.Context())
		if err := e.Mend(h, p, []record.Record{*e.record}); (err != nil) != c.fails || e.did() != c.did || e.record.Requested != c.after {
			t.Errorf("%s: %v, recorded are %d bytes", name, err, e.record.Requested)
		}
	}
}
