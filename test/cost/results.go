package cost

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// The contenders' names, as they are in tables and in JSON.
const (
	daemonIndexed = "hostpath-provisioner, claim index"
	daemonFirst   = "hostpath-provisioner, claim index, first start" // it does not know yet that the index is whole
	daemonAll     = "hostpath-provisioner"
	library       = "usual library"
	plain         = "client-go's informers"
)

// results are what a run measured.
type results struct {
	Machine string  `json:"machine"`
	Rows    []row   `json:"rows,omitempty"`
	Storms  []storm `json:"storms,omitempty"`
	Looks   []look  `json:"looks,omitempty"`
}

// row is what one contender needed at one size of the cluster.
type row struct {
	Foreign    int           `json:"foreign"` // claims of other nodes, with a volume each
	Contender  string        `json:"contender"`
	Resident   float64       `json:"residentMiB"`                   // at rest after the start; the median of several starts, as all others
	Peak       float64       `json:"peakMiB"`                       // at most until then
	StartBytes int64         `json:"startBytes"`                    // received until then
	PlaneCPU   time.Duration `json:"planeCPUNanoseconds,omitempty"` // of the control plane until then
	First      time.Duration `json:"firstClaimNanoseconds,omitempty"`
	Changed    int           `json:"changed,omitempty"`     // foreign claims that changed while it ran
	ChangeByte int64         `json:"changeBytes,omitempty"` // received meanwhile
}

// The limits of what is measured.
const (
	indexedMore  = 2.0   // MiB above the empty cluster
	indexedMost  = 40.0  // MiB
	allTimes     = 1.5   // of the memory in the empty cluster
	indexedShare = 0.001 // of the bytes of client-go's informers at the start
	allShare     = 0.05
	indexedEach  = 1.0 // bytes for each foreign claim that changes: pings and bookmarks come in any case, and an event has hundreds
	indexedFirst = time.Second
)

// of returns the row of a contender at a size.
func (r results) of(contender string, foreign int) (row, bool) {
	for _, one := range r.Rows {
		if one.Contender == contender && one.Foreign == foreign {
			return one, true
		}
	}
	return row{}, false
}

// sizes are those of the run, in its order.
func (r results) sizes() (all []int) {
	for _, one := range r.Rows {
		if len(all) == 0 || all[len(all)-1] != one.Foreign {
			all = append(all, one.Foreign)
		}
	}
	return all
}

// missed returns a sentence for each limit that was missed. Bytes at the start are compared in the
// largest cluster: what a connection itself takes is most of them in a small one.
func (r results) missed() (all []string) {
	limit := func(foreign int, what string, got, most float64) {
		if got > most {
			all = append(all, fmt.Sprintf("%d foreign claims: %s is %.4g, want %.4g at most", foreign, what, got, most))
		}
	}
	sizes := r.sizes()
	if len(sizes) == 0 {
		return nil
	}
	largest := sizes[len(sizes)-1]
	indexedEmpty, _ := r.of(daemonIndexed, sizes[0])
	allEmpty, _ := r.of(daemonAll, sizes[0])
	for _, size := range sizes {
		indexed, _ := r.of(daemonIndexed, size)
		unindexed, _ := r.of(daemonAll, size)
		limit(size, "MiB resident with the index", indexed.Resident, min(indexedMost, indexedEmpty.Resident+indexedMore))
		limit(size, "MiB resident without the index", unindexed.Resident, allTimes*allEmpty.Resident)
		if indexed.Changed > 0 {
			limit(size, "bytes received with the index, for each foreign claim that changed,", float64(indexed.ChangeByte)/float64(indexed.Changed), indexedEach)
		}
		if informers, known := r.of(plain, size); known && size == largest && size > 0 {
			limit(size, "share of the informers' bytes with the index", float64(indexed.StartBytes)/float64(informers.StartBytes), indexedShare)
			limit(size, "share of the informers' bytes without the index", float64(unindexed.StartBytes)/float64(informers.StartBytes), allShare)
		}
		limit(size, "seconds to the first volume with the index", indexed.First.Seconds(), indexedFirst.Seconds())
	}
	return all
}

// table is the rows for the eyes.
func (r results) table() string {
	var text strings.Builder
	fmt.Fprintln(&text, r.Machine)
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "foreign claims\tcontender\tMiB resident\tat most\tMB received at start\tseconds to the first volume\tcontrol plane's seconds\tMB received while claims change\tclaims that changed\t")
	for _, one := range r.Rows {
		first, changed := "-", "-"
		if one.First > 0 {
			first = fmt.Sprintf("%.2f", one.First.Seconds())
		}
		if one.Changed > 0 {
			changed = fmt.Sprintf("%.4f", float64(one.ChangeByte)/1e6)
		}
		fmt.Fprintf(w, "%d\t%s\t%.1f\t%.1f\t%.4f\t%s\t%.2f\t%s\t%d\t\n", one.Foreign, one.Contender, one.Resident, one.Peak, float64(one.StartBytes)/1e6, first, one.PlaneCPU.Seconds(), changed, one.Changed)
	}
	w.Flush()
	for _, one := range r.Storms {
		fmt.Fprintln(&text, one)
	}
	for _, one := range r.Looks {
		fmt.Fprintln(&text, one)
	}
	return text.String()
}
