package expansion

import (
	"errors"
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// A record that says another size than its volume object gets that size: a larger one if the pool
// has the room, which is told where it has not, and a smaller one if nothing is being expanded.
func TestMend(t *testing.T) {
	const told = "counted NotEnoughSpace"
	for name, c := range map[string]struct {
		recorded int64
		object   string
		request  string
		fails    string
		did      string
		after    int64
	}{
		"smaller":                            {1 << 20, "1Gi", "1Gi", "", "disk 1Gi", 1 << 30},
		"as the object":                      {1 << 30, "1Gi", "1Gi", "", "", 1 << 30},
		"more than there is":                 {1 << 30, "100Gi", "1Gi", "", told, 1 << 30},
		"more than there is, being expanded": {1 << 30, "100Gi", "2Gi", "", told, 1 << 30},
		"larger":                             {3 << 30, "1Gi", "1Gi", "", "disk 1Gi", 1 << 30},
		"larger, by a fraction":              {3 << 30, "2500Mi", "1Gi", "", "disk 2Gi", 2500 << 20},
		"larger, being expanded":             {3 << 30, "1Gi", "3Gi", "", "", 3 << 30},
		"larger, less being requested":       {3 << 30, "1Gi", "2Gi", "", "", 3 << 30},
		"larger, the volume cannot be read":  {3 << 30, "1Gi", "1Gi", "read volume", "", 3 << 30},
		"larger, the claim cannot be read":   {3 << 30, "1Gi", "1Gi", "read claim", "", 3 << 30},
		"the disk fails":                     {1 << 20, "1Gi", "1Gi", "disk 1Gi", "", 1 << 20},
		"without a size":                     {0, "1Gi", "1Gi", "", "", 0},
	} {
		e, p := growing()
		e.record.Requested, e.pv.Spec.Capacity = c.recorded, sizeOf(c.object)
		e.request(c.request)
		if c.fails != "" {
			e.fails[c.fails] = errors.New("broken")
		}
		for again := range 2 { // what is told is told once
			h, _ := p.Disk.Open(t.Context())
			err := e.Mend(t.Context(), h, p, []record.Record{*e.record})
			if again > 0 {
				c.did = ""
			}
			did, fails := e.did(), c.fails != ""
			if (err != nil) != fails || did != c.did || e.record.Requested != c.after {
				t.Errorf("%s: %v, did %q, recorded: %d", name, err, did, e.record.Requested)
			}
		}
		var want []string
		if c.object == "100Gi" {
			want = []string{"pvc-u Warning NotEnoughSpace"}
		}
		if !slices.Equal(e.events, want) {
			t.Errorf("%s: events %q", name, e.events)
		}
	}
}
