package leadership

import (
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Terms count on, also from a number that cannot grow.
func TestNextTerm(t *testing.T) {
	for number, want := range map[int32]int32{0: 1, 7: 8, math.MaxInt32: 1, -5: 1} {
		if got := (Term{"u", number, "old"}).Next("new"); got != (Term{"u", want, "new"}) {
			t.Errorf("after %d: %+v", number, got)
		}
	}
}

// A holder stops trusting its lease before another daemon may take it.
func TestTimes(t *testing.T) {
	if Trust+Renewal >= Duration || Renewal*2 >= Trust {
		t.Errorf("renewed every %s, trusted for %s, taken after %s", Renewal, Trust, Duration)
	}
}

func TestName(t *testing.T) {
	if got := Name("hostpath-provisioner", "shared"); got != "shared.hostpath-provisioner" {
		t.Errorf("got %s", got)
	}
	seen := map[string]string{}
	for _, provisioner := range []string{"a/b", "a.b", "A/b", "a/B", "a_b/c", "a-b/c", strings.Repeat("p", 253) + "/x", strings.Repeat("p", 253) + "/y"} {
		got := Name(provisioner, strings.Repeat("n", 63))
		if bad := validation.IsDNS1123Subdomain(got); len(bad) > 0 {
			t.Errorf("%s: %q: %v", provisioner, got, bad)
		}
		if two, taken := seen[got]; taken {
			t.Errorf("%s and %s have the same lease", provisioner, two)
		}
		seen[got] = provisioner
	}
}
