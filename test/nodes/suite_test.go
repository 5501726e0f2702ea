package nodes

import (
	"testing"
)

// A report as ginkgo writes it, with every state that it has.
const report = `[{"SpecReports": [
 {"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
 {"ContainerHierarchyTexts": ["External Storage [Driver: a]", "subPath"], "LeafNodeType": "It", "LeafNodeText": "one", "State": "passed"},
 {"ContainerHierarchyTexts": ["External Storage [Driver: a]"], "LeafNodeType": "It", "LeafNodeText": "two", "State": "skipped",
  "Failure": {"Message": "Driver \"a\" does not provide raw block - skipping"}},
 {"ContainerHierarchyTexts": ["External Storage [Driver: a]"], "LeafNodeType": "It", "LeafNodeText": "deselected", "State": "skipped"},
 {"ContainerHierarchyTexts": ["External Storage [Driver: b]"], "LeafNodeType": "It", "LeafNodeText": "three", "State": "timedout",
  "Failure": {"Message": "no pod"}},
 {"ContainerHierarchyTexts": ["[sig-apps] StatefulSet"], "LeafNodeType": "It", "LeafNodeText": "four", "State": "passed"},
 {"LeafNodeType": "SynchronizedAfterSuite", "State": "panicked", "Failure": {"Message": "nil map"}}
]}]`

func TestReadReport(t *testing.T) {
	parts, err := readReport([]byte(report))
	if err != nil {
		t.Fatal(err)
	}
	want := `StatefulSet            1 passed, 0 failed, 0 skipped
a                      1 passed, 0 failed, 1 skipped
b                      0 passed, 1 failed, 0 skipped
suite                  0 passed, 1 failed, 0 skipped
skipped            1: the driver does not provide raw block - skipping
`
	if got := describe(parts); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got, want := parts["b"].failed[0], "timedout: External Storage [Driver: b] three\nno pod"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := readReport([]byte("[")); err == nil {
		t.Error("half a report was read")
	}
}

func TestJudge(t *testing.T) {
	expected, whole := []string{"a 1", "a 2", "b 1"}, tally{passed: []string{"a 2", "a 1"}}
	b := tally{passed: []string{"b 1"}}
	for name, c := range map[string]struct {
		parts map[string]tally
		want  string // none: it holds
	}{
		"as expected":             {map[string]tally{"a": {passed: whole.passed, skipped: []string{"x"}}, "b": b}, ""},
		"nothing ran":             {map[string]tally{}, "did not pass: a 1\ndid not pass: a 2\ndid not pass: b 1"},
		"one was skipped":         {map[string]tally{"a": {passed: []string{"a 1"}, skipped: []string{"x"}}, "b": b}, "did not pass: a 2"},
		"another one passed":      {map[string]tally{"a": {passed: []string{"a 1", "a 3"}}, "b": b}, "did not pass: a 2\npassed, and is not expected: a 3"},
		"one passed twice":        {map[string]tally{"a": whole, "b": {passed: []string{"b 1", "b 1"}}}, "passed, and is not expected: b 1"},
		"one failed":              {map[string]tally{"a": {passed: whole.passed, failed: []string{"x"}}, "b": b}, "x"},
		"the suite itself failed": {map[string]tally{"a": whole, "b": b, "suite": {failed: []string{"x"}}}, "x"},
	} {
		got := ""
		if err := judge(c.parts, expected); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
