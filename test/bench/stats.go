package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// sample is one measured case of one run.
type sample struct {
	contender, kase string
	repeat          int
	err             error // it failed; nothing else is known

	claims   int
	rate     float64         // volumes a second, from the case's begin to the last volume
	first    time.Duration   // from the case's begin to the first volume
	latency  []time.Duration // annotation seen -> volume seen, of each claim, in ascending order
	requests requests
	cpu      time.Duration // of the process since its start
	rss      int64         // the most it had, in bytes
	others   float64       // part of the machine that strangers used meanwhile

	// Of the case cluster alone, in which the rate is of pods, and the latency that of a pod, from
	// its creation to its node.
	bound    float64       // claims a second, from the first pod's creation to the last claim's being bound
	ordered  time.Duration // from a StatefulSet's creation to the node of its last pod
	removed  float64       // volumes a second, from the first claim's deletion to the last volume's end
	byBinder requests      // of the controller that binds claims, while the pods came
}

// newSample is what the observer saw of a case that began at start.
func newSample(all []sighting, start time.Time) sample {
	s := sample{claims: len(all)}
	for _, one := range all {
		s.latency = append(s.latency, one.created.Sub(one.annotated))
	}
	slices.Sort(s.latency)
	first := slices.MinFunc(all, func(a, b sighting) int { return a.created.Compare(b.created) })
	s.first = first.created.Sub(start)
	s.rate = rateUntil(start, all, func(one sighting) time.Time { return one.created })
	return s
}

func (s sample) p50() time.Duration { return quantile(s.latency, 0.50) }
func (s sample) p99() time.Duration { return quantile(s.latency, 0.99) }

// perClaim is the API requests per claim.
func (s sample) perClaim() float64 { return float64(s.requests.Total()) / float64(s.claims) }

// line is for the eyes of who waits.
func (s sample) line() string {
	return fmt.Sprintf("%-24s %-8s #%d  %7.1f PVs/s  p50 %s  p99 %s  first %s  %.2f requests/claim  others used %2.0f%%",
		titles[s.contender], s.kase, s.repeat+1, s.rate, ms(s.p50()), ms(s.p99()), ms(s.first), s.perClaim(), 100*s.others)
}

type samples []sample

func (all samples) failed() bool {
	return slices.ContainsFunc(all, func(s sample) bool { return s.err != nil })
}

// failure is why a contender failed, if it did, in whatever case: it is out of all tables.
func (all samples) failure(contender string) error {
	for _, s := range all {
		if s.contender == contender && s.err != nil {
			return s.err
		}
	}
	return nil
}

// of are the samples of a contender in a case, by repeat.
func (all samples) of(contender, kase string) (some samples) {
	for _, s := range all {
		if s.contender == contender && s.kase == kase && s.err == nil {
			some = append(some, s)
		}
	}
	return some
}

// median of a value over the samples; 0 of none.
func median[N numeric](all samples, value func(sample) N) N {
	var values []N
	for _, s := range all {
		values = append(values, value(s))
	}
	return middle(values)
}

type numeric interface {
	~int | ~int64 | ~uint64 | ~float64
}

// middle is the median: of an even number of values the mean of the two in the middle, for either
// of them alone favours one side. It returns 0 for none.
func middle[N numeric](values []N) N {
	slices.Sort(values)
	n := len(values)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return values[n/2]
	default:
		return (values[n/2-1] + values[n/2]) / 2
	}
}

// quantile of ascending values, by nearest rank; 0 of none.
func quantile[N any](sorted []N, q float64) (zero N) {
	if len(sorted) == 0 {
		return zero
	}
	i := int(q * float64(len(sorted)))
	return sorted[min(i, len(sorted)-1)]
}

// estimate is a ratio with its 90 % confidence interval; without one low and high are 0.
type estimate struct{ value, low, high float64 }

// ratio compares mine with theirs in the same repeat, which had about the same noise. Repeats that
// only one of them has do not count; without any it is 0.
//
// It is the pseudomedian of Hodges and Lehmann: the median of the means of all pairs of repeats, of
// each with itself, too. As the plain median it does not mind a few repeats that went wrong, and it
// needs a third fewer of them. The limits are those of Wilcoxon's signed-rank test, by its normal
// approximation (Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3.1 to 3.3). Means
// and distances are those of the logarithms, for twice as fast and half as fast are as far from
// equal. Fewer than five repeats cannot be 90 % sure of anything, and have no interval.
func ratio(mine, theirs samples, value func(sample) float64) estimate {
	var ratios, means []float64
	for _, m := range mine {
		for _, t := range theirs {
			if m.repeat == t.repeat && value(t) > 0 {
				ratios = append(ratios, value(m)/value(t))
			}
		}
	}
	for i, a := range ratios {
		means = append(means, a)
		for _, b := range ratios[:i] {
			means = append(means, math.Sqrt(a*b))
		}
	}
	if means == nil {
		return estimate{}
	}
	e, n := estimate{value: middle(means)}, float64(len(ratios)) // middle sorts them
	if len(ratios) < 5 {
		return e
	}
	const nineOfTen = 1.645 // standard deviations
	cut := max(0, int(n*(n+1)/4-nineOfTen*math.Sqrt(n*(n+1)*(2*n+1)/24))-1)
	e.low, e.high = means[cut], means[len(means)-1-cut]
	return e
}

func rateOf(s sample) float64            { return s.rate }
func p50Of(s sample) float64             { return float64(s.p50()) }
func strangers(s sample) float64         { return s.others }
func first(s sample) time.Duration       { return s.first }
func memory(s sample) int64              { return s.rss >> 20 }
func cpuPerClaim(s sample) time.Duration { return s.cpu / time.Duration(s.claims) }

// ms writes a duration in milliseconds, with as many digits as mean something.
func ms(d time.Duration) string {
	value := float64(d) / float64(time.Millisecond)
	if value < 100 {
		return fmt.Sprintf("%.1f ms", value)
	}
	return fmt.Sprintf("%.0f ms", value)
}
