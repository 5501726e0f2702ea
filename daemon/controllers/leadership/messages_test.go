package leadership

import (
	"strings"
	"testing"
)

func TestMessages(t *testing.T) {
	f := lease()
	for _, change := range []func(*Facts){mine, worked, damaged, func(f *Facts) { f.Lease.Marker = "x\x1b[2J" + strings.Repeat("y", 100) }} {
		change(&f)
	}
	other := lease()
	forged(&other)
	for got, want := range map[string]string{
		repaired("fast.p", f.Repair()): `lease fast.p is not as a daemon writes it, and is corrected: its marker is "x\x1b[2J` + strings.Repeat("y", 59) +
			`...", and the storage that has the pool's volumes has m; it has a label`,
		overwritten("fast.p", nil): "lease fast.p was overwritten while this node held it: it was deleted; another program wrote it, " +
			"or the cluster's data was restored; this node stops work until it holds the lease again",
		overwritten("fast.p", &Lease{}): "lease fast.p was overwritten while this node held it: it has no holder; another program wrote it, " +
			"or the cluster's data was restored; this node stops work until it holds the lease again",
		overwritten("fast.p", &Lease{Holder: "node-b_boot", Term: Term{Number: 7}}): "lease fast.p was overwritten while this node held it: its holder is node-b_boot in term 7; " +
			"another program wrote it, or the cluster's data was restored; this node stops work until it holds the lease again",
		other.StorageMismatch(): "the storage here has the marker m, and the other nodes work in forged (annotation of lease fast.p)",
		other.Repair():          "",
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
