package hang

import (
	"fmt"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// report is everything that is told in the end.
type report struct {
	alone         time.Duration // for the claims of the other pool, without a hang
	rounds        []*round
	looks         int
	looked        time.Duration
	before, after usage
	yanked        time.Duration
	yankMessage   string
}

// round is what came of one.
type round struct {
	what    string
	closed  []closed
	beside  time.Duration
	beats   int
	pause   time.Duration
	end     time.Duration
	stuck   int // threads that the kernel held at the end
	back    time.Duration
	settled time.Duration

	threads    int           // that the node service has more after kubelet's calls
	serviceEnd time.Duration // of the node service
}

func (r *report) print(p *harness.Program) {
	fmt.Println("\nfrom the first request that got no response to the closed gate")
	fmt.Printf("  %-10s %8s %8s  %s\n", "call", "promised", "took", "what the pool says")
	for _, rd := range r.rounds {
		for _, c := range rd.closed {
			fmt.Printf("  %-10s %7.0fs %7.2fs  %.90s\n", c.call, c.within.Seconds(), c.took.Seconds(), c.message)
		}
	}
	fmt.Printf("\nbeside the hang; the other pool's claims took %.2f s without it\n", r.alone.Seconds())
	fmt.Printf("  %-52s %8s %6s %6s %7s %8s %6s %6s %8s %12s\n", "hangs", "claims", "ratio", "beats", "pause", "SIGTERM", "stuck", "back", "settled", "csi: threads")
	for _, rd := range r.rounds {
		fmt.Printf("  %-52s %7.2fs %6.2f %6d %6.1fs %7.2fs %6d %5.1fs %7.1fs %+12d\n", rd.what, rd.beside.Seconds(),
			rd.beside.Seconds()/r.alone.Seconds(), rd.beats, rd.pause.Seconds(), rd.end.Seconds(), rd.stuck, rd.back.Seconds(), rd.settled.Seconds(), rd.threads)
	}
	if r.looked > 0 {
		r.printLooks()
	}
	fmt.Printf("\na yanked disk that is read from its cache: closed after %.1f s\n  %s\n\n", r.yanked.Seconds(), r.yankMessage)
	p.Report(kinds...)
}

func (r *report) printLooks() {
	fmt.Printf("\n%d looks at each pool while all hang, in %.0f s: the most in the beginning and the least in the end\n", r.looks, r.looked.Seconds())
	fmt.Printf("  memory %d and %d KiB, threads %d and %d, descriptors %d and %d, goroutines %d and %d\n",
		r.before.kib, r.after.kib, r.before.threads, r.after.threads, r.before.descriptors, r.after.descriptors, r.before.goroutines, r.after.goroutines)
}
