package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// What is to be reached with the defaults.
const (
	wantOfFloor  = 0.85 // volumes a second, of the floor's
	wantOfTuned  = 1.0  // volumes a second, of the tuned library's
	wantOfSingle = 1.2  // the median of one claim's latency, of the floor's
	wantRequests = 3.0  // API requests per claim, events included

	tolerable = 0.15 // part of the processors that strangers may use before the report warns
)

// report is the tables of medians, and what they say about the daemon.
func (b *bench) report() string {
	var out strings.Builder
	for _, kase := range allCases {
		if slices.Contains(b.ownCases(), kase) {
			out.WriteString(b.table(kase))
		}
	}
	out.WriteString("ratios are pseudomedians of the ratios within a repeat, in brackets with their 90 % confidence interval; others used: the part of the machine's processors that strangers had meanwhile\n\n")
	for _, line := range b.verdicts() {
		out.WriteString(line + "\n")
	}
	if others := median(b.samples, strangers); others > tolerable {
		fmt.Fprintf(&out, "NOTE    strangers used %.0f%% of the processors: repeat it on a quieter machine before believing a ratio near its limit\n", 100*others)
	}
	return out.String()
}

func (b *bench) heading(kase string) string {
	switch kase {
	case caseBacklog:
		return fmt.Sprintf("%d claims wait when the process starts: from its start to the last volume", b.claims)
	case caseSingle:
		return fmt.Sprintf("one claim at a time, %d of them in each run, the contenders side by side and in turn: annotation seen -> volume seen", b.single)
	default:
		return fmt.Sprintf("%d claims at once while the process runs: from the first annotation to the last volume (the driver's writes compete)", b.claims)
	}
}

// table is a case: a line for each contender, medians over its repeats.
func (b *bench) table(kase string) string {
	header := "\tPVs/s\tlowest\thighest\tof floor\tof tuned\tclaim p50\tclaim p99\trequests/claim\tCPU/claim\tMiB\truns\tothers used\t\n"
	switch kase {
	case caseSingle:
		header = "\tp50\tof floor\tp99\tof floor\trequests/claim\truns\tothers used\t\n"
	case caseBacklog:
		header = "\tPVs/s\tlowest\thighest\tof floor\tof tuned\tfirst PV\trequests/claim\tCPU/claim\tMiB\truns\tothers used\t\n"
	}
	return b.heading(kase) + "\n" + b.rows(kase, header, b.contenders, b.row)
}

// rows are a line for each contender that has samples, and below them why others have none.
func (b *bench) rows(kase, header string, contenders []string, row func(samples, string) string) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, header)
	out := ""
	for _, contender := range contenders {
		mine := b.samples.of(contender, kase)
		switch err := b.samples.failure(contender); {
		case err != nil:
			out += fmt.Sprintf("  %s  FAILED: %s\n", b.title(contender), firstLine(err.Error()))
		case len(mine) == 0:
			out += fmt.Sprintf("  %s  was not measured\n", b.title(contender))
		default:
			fmt.Fprintf(w, "%s\t%s\n", b.title(contender), row(mine, kase))
		}
	}
	w.Flush()
	return text.String() + out + "\n"
}

// title is a contender's, all of the same width.
func (b *bench) title(contender string) string {
	title := titles[contender]
	if contender == nameShipped {
		title = fmt.Sprintf("%s (%d claims)", title, b.slow)
	}
	return fmt.Sprintf("%-30s", title)
}

func (b *bench) row(mine samples, kase string) string {
	floor, lib := b.samples.of(nameFloor, kase), b.samples.of(nameTuned, kase)
	tail := fmt.Sprintf("%d\t%.0f%%\t", len(mine), 100*median(mine, strangers))
	requests := fmt.Sprintf("%.2f\t", median(mine, sample.perClaim))
	if kase == caseSingle {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t", ms(median(mine, sample.p50)), times(ratio(mine, floor, p50Of)),
			ms(median(mine, sample.p99)), times(ratio(mine, floor, func(s sample) float64 { return float64(s.p99()) }))) + requests + tail
	}
	lowest, highest := slices.MinFunc(mine, byRate), slices.MaxFunc(mine, byRate)
	when := ms(median(mine, first))
	if kase == caseBurst {
		when = ms(median(mine, sample.p50)) + "\t" + ms(median(mine, sample.p99))
	}
	return fmt.Sprintf("%.0f\t%.0f\t%.0f\t%s\t%s\t%s\t", median(mine, rateOf), lowest.rate, highest.rate,
		times(ratio(mine, floor, rateOf)), times(ratio(mine, lib, rateOf)), when) + requests +
		fmt.Sprintf("%s\t%d\t", ms(median(mine, cpuPerClaim)), median(mine, memory)) + tail
}

// verdicts compare the daemon with what is to be reached.
func (b *bench) verdicts() (lines []string) {
	if !slices.Contains(b.contenders, nameDaemon) {
		return nil
	}
	if err := b.samples.failure(nameDaemon); err != nil {
		return []string{"FAILED  hostpath-provisioner: " + firstLine(err.Error())}
	}
	for _, kase := range b.ownCases() {
		mine, floor, lib := b.samples.of(nameDaemon, kase), b.samples.of(nameFloor, kase), b.samples.of(nameTuned, kase)
		if kase == caseSingle {
			lines = append(lines, verdict(ratio(mine, floor, p50Of), wantOfSingle, false, kase+": p50 is %s times the bare client's, %.2f or less wanted"))
		} else {
			lines = append(lines,
				verdict(ratio(mine, floor, rateOf), wantOfFloor, true, kase+": %s of the bare client's volumes a second, %.2f or more wanted"),
				verdict(ratio(mine, lib, rateOf), wantOfTuned, true, kase+": %s of the tuned library's volumes a second, %.2f or more wanted"))
		}
		lines = append(lines, verdict(estimate{value: median(mine, sample.perClaim)}, wantRequests, false, kase+": %s API requests per claim, events included, %.2f or fewer wanted"))
	}
	return lines
}

// verdict returns whether a number is within its limit. None at all is neither, and so is one that
// misses what is wanted by less than the runs can tell: more repeats decide it.
func verdict(got estimate, want float64, atLeast bool, format string) string {
	good := func(value float64) bool { return value >= want && atLeast || value <= want && !atLeast }
	word := "MISS"
	switch {
	case got.value == 0:
		word = "NONE"
	case good(got.value):
		word = "PASS"
	case got.high > 0 && (good(got.low) || good(got.high)):
		word = "OPEN"
	}
	number := fmt.Sprintf("%.2f", got.value)
	if got.low != got.high {
		number += fmt.Sprintf(" (%.2f to %.2f)", got.low, got.high)
	}
	return fmt.Sprintf("%s    "+format, word, number, want)
}

func byRate(a, b sample) int { return cmp.Compare(a.rate, b.rate) }

func times(ratio estimate) string { return orNone(ratio.value) }

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// What is to be reached on a control plane with its own limits, beside the tuned library.
const (
	wantPods    = 1.5  // pods a second that get their node, and claims a second that are bound
	wantOrdered = 1.05 // the time of a StatefulSet: no worse, as far as three runs can tell
	wantRemoved = 0.95 // volumes a second that go: the same
)

func (s sample) clusterLine() string {
	return fmt.Sprintf("%-24s %-8s #%d  %5.2f pods/s  %5.2f claims/s  p50 %s  p99 %s  StatefulSet %s  %5.2f volumes/s removed  %.1f requests of the binder/claim  others used %2.0f%%",
		titles[s.contender], s.kase, s.repeat+1, s.rate, s.bound, seconds(s.p50()), seconds(s.p99()), seconds(s.ordered), s.removed, binderOf(s), 100*s.others)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// clusterReport is the table of medians, and what they say about the daemon.
func (b *bench) clusterReport() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d pods at once, each with a claim: from the first pod's creation to the last one's node; then a StatefulSet of %d; then the claims of the pods are deleted\n", b.pods, b.replicas)
	const header = "\tpods/s\tof tuned\tclaims Bound/s\tpod p50\tpod p99\tStatefulSet\tvolumes gone/s\tbinder requests/claim\trequests/claim\truns\tothers used\t\n"
	text.WriteString(b.rows(caseCluster, header, b.inCluster(), b.clusterRow))
	return text.String() + strings.Join(b.clusterVerdicts(), "\n") + "\n"
}

func (b *bench) clusterRow(mine samples, kase string) string {
	tuned := b.samples.of(nameTuned, kase)
	return fmt.Sprintf("%.2f\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f\t%.1f\t%d\t%.0f%%\t", median(mine, rateOf), times(ratio(mine, tuned, rateOf)),
		orNone(median(mine, boundOf)), seconds(median(mine, sample.p50)), seconds(median(mine, sample.p99)), seconds(median(mine, orderedOf)),
		orNone(median(mine, removedOf)), median(mine, binderOf), median(mine, sample.perClaim), len(mine), 100*median(mine, strangers))
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
