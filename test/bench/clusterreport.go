package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// What is to be reached on a control plane with its own limits, beside the tuned library.
const (
	wantPods    = 1.5  // pods a second that get their node, and claims a second that are bound
	wantOrdered = 1.05 // the time of a StatefulSet: no worse, as far as three runs can tell
	wantRemoved = 0.95 // volumes a second that go: the same
)

func (s sample) clusterLine(verbose bool) string {
	line := fmt.Sprintf("%-24s %-8s #%d  %5.2f pods/s  %5.2f claims/s  p50 %s  p99 %s  StatefulSet %s  %5.2f volumes/s removed  %.1f requests of the binder/claim  others used %2.0f%%",
		titles[s.contender], s.kase, s.repeat+1, s.rate, s.bound, seconds(s.p50()), seconds(s.p99()), seconds(s.ordered), s.removed, binderOf(s), 100*s.others)
	if !verbose {
		return line
	}
	return line + "\n    the binder: " + s.byBinder.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// clusterReport is the table of medians, and what they say about the daemon.
func (b *bench) clusterReport() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d pods at once, each with a claim: from the first pod's creation to the last one's node; then a StatefulSet of %d; then the claims of the pods are deleted\n", b.pods, b.replicas)
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\tpods/s\tof tuned\tclaims Bound/s\tpod p50\tpod p99\tStatefulSet\tvolumes gone/s\tbinder requests/claim\trequests/claim\truns\tothers used\t\n")
	var out []string
	for _, contender := range b.inCluster() {
		mine := b.samples.of(contender, caseCluster)
		if err := b.samples.failure(contender); err != nil || len(mine) == 0 {
			out = append(out, fmt.Sprintf("  %s  FAILED: %s\n", b.title(contender), firstLine(fmt.Sprint(err))))
			continue
		}
		fmt.Fprintf(w, "%s\t%s\n", b.title(contender), b.clusterRow(mine))
	}
	w.Flush()
	return text.String() + strings.Join(out, "") + "\n" + strings.Join(b.clusterVerdicts(), "\n") + "\n"
}

func (b *bench) clusterRow(mine samples) string {
	tuned := b.samples.of(nameTuned, caseCluster)
	return fmt.Sprintf("%.2f\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f\t%.1f\t%d\t%.0f%%\t", median(mine, rateOf), times(ratio(mine, tuned, rateOf)),
		orNone(median(mine, boundOf)), seconds(median(mine, sample.p50)), seconds(median(mine, sample.p99)), seconds(median(mine, orderedOf)),
		orNone(median(mine, removedOf)), median(mine, binderOf), median(mine, perClaimOf), len(mine), 100*median(mine, strangers))
}

func orNone(rate float64) string {
	if rate == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", rate)
}

func (b *bench) clusterVerdicts() []string {
	mine, tuned := b.samples.of(nameDaemon, caseCluster), b.samples.of(nameTuned, caseCluster)
	if err := b.samples.failure(nameDaemon); err != nil {
		return []string{"FAILED  hostpath-provisioner: " + firstLine(err.Error())}
	}
	return []string{
		verdict(ratio(mine, tuned, rateOf), wantPods, true, caseCluster+": %s of the tuned library's pods a second, %.2f or more wanted"),
		verdict(ratio(mine, tuned, boundOf), wantPods, true, caseCluster+": %s of the tuned library's claims bound a second, %.2f or more wanted"),
		verdict(ratio(mine, tuned, func(s sample) float64 { return s.ordered.Seconds() }), wantOrdered, false, caseCluster+": %s of the tuned library's time for a StatefulSet, %.2f or less wanted"),
		verdict(ratio(mine, tuned, removedOf), wantRemoved, true, caseCluster+": %s of the tuned library's volumes removed a second, %.2f or more wanted"),
	}
}

func boundOf(s sample) float64         { return s.bound }
func removedOf(s sample) float64       { return s.removed }
func binderOf(s sample) float64        { return float64(s.byBinder.Total()) / float64(s.claims) }
func orderedOf(s sample) time.Duration { return s.ordered }
