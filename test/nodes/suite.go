package nodes

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// tally is what became of the tests of one part of a suite.
type tally struct {
	passed  []string // each one's name
	failed  []string // each one's state, name and the begin of its message
	skipped []string // each one's reason
}

// and adds what became of the tests of the same part in another run.
func (t tally) and(other tally) tally {
	return tally{slices.Concat(t.passed, other.passed), slices.Concat(t.failed, other.failed), slices.Concat(t.skipped, other.skipped)}
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

// readReport counts the tests of ginkgo's JSON report by their part. A test that was not selected
// is skipped there too, without a reason, and does not count.
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
				t.passed = append(t.passed, s.name())
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

// readExpected reads the names of the tests that pass, one a line.
func readExpected(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	names := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if slices.Contains(names, "") {
		return nil, fmt.Errorf("%s has a line without a name", file)
	}
	return names, nil
}

// namesOf are the names of all tests that passed, sorted.
func namesOf(parts map[string]tally) (names []string) {
	for _, t := range parts {
		names = append(names, t.passed...)
	}
	slices.Sort(names)
	return names
}

// judge returns an error for each test that failed, for each that is expected and did not pass, and
// for each that passed and is not expected: a suite that selects no test does not fail by itself.
func judge(parts map[string]tally, expected []string) error {
	var errs []error
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		for _, f := range parts[part].failed {
			errs = append(errs, errors.New(f))
		}
	}
	passed := namesOf(parts)
	errs = append(errs, without("did not pass", expected, passed)...)
	errs = append(errs, without("passed, and is not expected", passed, expected)...)
	return errors.Join(errs...)
}

// without returns an error for each name that is not among others as often as it is among names.
func without(what string, names, others []string) (errs []error) {
	count := map[string]int{}
	for _, name := range others {
		count[name]++
	}
	for _, name := range names {
		if count[name]--; count[name] < 0 {
			errs = append(errs, fmt.Errorf("%s: %s", what, name))
		}
	}
	return errs
}

var driverSays = regexp.MustCompile(`^Driver "?[a-z-]+"?`)

// describe is a line for each part, and one for each reason to skip, the most frequent first.
func describe(parts map[string]tally) string {
	var b strings.Builder
	reasons := map[string]int{}
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		t := parts[part]
		fmt.Fprintf(&b, "%-20s %3d passed, %d failed, %d skipped\n", part, len(t.passed), len(t.failed), len(t.skipped))
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
