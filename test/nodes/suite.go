package nodes

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tally is what became of the tests of one part of a suite.
type tally struct {
	passed  int
	failed  []string // each one's state, name and the begin of its message
	skipped []string // each one's reason
}

// and adds what became of the tests of the same part in another run.
func (t tally) and(other tally) tally {
	return tally{t.passed + other.passed, slices.Concat(t.failed, other.failed), slices.Concat(t.skipped, other.skipped)}
}

// spec is a test in ginkgo's JSON report (types.SpecReport of ginkgo/v2).
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string // It, or what stands around the tests, such as SynchronizedBeforeSuite
	LeafNodeText            string
	State                   string
	Failure                 struct{ Message string }
}

func (s spec) name() string {
	return strings.TrimSpace(strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " "))
}

var driver = regexp.MustCompile(`\[Driver: ([^\]]+)\]`)

// part is the driver that a test is of, "StatefulSet", or "suite" for what stands around the tests.
func (s spec) part() string {
	switch found := driver.FindStringSubmatch(s.name()); {
	case found != nil:
		return found[1]
	case s.LeafNodeType == "It":
		return "StatefulSet"
	default:
		return "suite"
	}
}

// messageLength is enough for what went wrong; the dumps of objects that follow are in the report.
const messageLength = 400

// readReport counts the tests of ginkgo's JSON report by their part. A test that was not selected is skipped
// there too, without a reason, and does not count.
func readReport(data []byte) (map[string]tally, error) {
	var suites []struct{ SpecReports []spec }
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("the suite's report: %w", err)
	}
	parts := map[string]tally{}
	for _, suite := range suites {
		for _, s := range suite.SpecReports {
			t, message := parts[s.part()], strings.TrimSpace(s.Failure.Message)
			switch {
			case s.State == "passed" && s.LeafNodeType == "It":
				t.passed++
			case s.State == "passed", s.State == "skipped" && message == "":
				continue
			case s.State == "skipped":
				t.skipped = append(t.skipped, message)
			default:
				t.failed = append(t.failed, fmt.Sprintf("%s: %s\n%.*s", s.State, s.name(), messageLength, message))
			}
			parts[s.part()] = t
		}
	}
	return parts, nil
}

// readExpected reads how many tests of each part pass, a line "PART COUNT" each.
func readExpected(file string) (map[string]int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	expected := map[string]int{}
	for line := range strings.Lines(string(data)) {
		part, count, _ := strings.Cut(strings.TrimSpace(line), " ")
		if expected[part], err = strconv.Atoi(count); err != nil || expected[part] < 1 {
			return nil, fmt.Errorf("%s: %q is no part and number", file, strings.TrimSpace(line))
		}
	}
	if len(expected) == 0 {
		return nil, fmt.Errorf("%s expects nothing", file)
	}
	return expected, nil
}

// judge returns an error for each test that failed, and for each part of which another number passed than is
// expected: a suite that selects no test does not fail by itself.
func judge(parts map[string]tally, expected map[string]int) error {
	var errs []error
	for _, part := range partsOf(parts, expected) {
		for _, f := range parts[part].failed {
			errs = append(errs, errors.New(f))
		}
		if got, want := parts[part].passed, expected[part]; got != want {
			errs = append(errs, fmt.Errorf("%s: %d tests passed, want %d", part, got, want))
		}
	}
	return errors.Join(errs...)
}

func partsOf(parts map[string]tally, expected map[string]int) []string {
	all := maps.Clone(expected)
	for part := range parts {
		all[part] += 0
	}
	return slices.Sorted(maps.Keys(all))
}

var driverSays = regexp.MustCompile(`^Driver "?[a-z-]+"?`)

// describe is a line for each part, and one for each reason to skip, the most frequent first.
func describe(parts map[string]tally) string {
	var b strings.Builder
	reasons := map[string]int{}
	for _, part := range partsOf(parts, map[string]int{}) {
		t := parts[part]
		fmt.Fprintf(&b, "%-20s %3d passed, %d failed, %d skipped\n", part, t.passed, len(t.failed), len(t.skipped))
		for _, reason := range t.skipped {
			reasons[driverSays.ReplaceAllString(reason, "the driver")]++
		}
	}
	order := slices.SortedFunc(maps.Keys(reasons), func(x, y string) int {
		if d := reasons[y] - reasons[x]; d != 0 {
			return d
		}
		return strings.Compare(x, y)
	})
	for _, reason := range order {
		fmt.Fprintf(&b, "skipped %12d: %s\n", reasons[reason], reason)
	}
	return b.String()
}
