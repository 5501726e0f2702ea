package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// module is a module with tests, each of which counts its runs in the file "runs".
const module = `package flaky

import (
	"os"
	"strings"
	"testing"
)

func count(name string) int {
	f, _ := os.OpenFile("runs", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	f.WriteString(" " + name + "\n")
	f.Close()
	text, _ := os.ReadFile("runs")
	return strings.Count(string(text), " "+name+"\n")
}

func TestSteady(t *testing.T) { t.Parallel(); count("steady") }
func TestNightly(t *testing.T) { t.Fatal("it is skipped in each try") }
`

// call skips one test, which fails, in each try.
var call = []string{"-count=1", "-timeout", "1m", "-skip", "^(TestNightly)$", "."}

func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		tests string
		pass  bool
		says  []string // in this order
		never string
		runs  string // of the steady test
	}{
		"all pass": {"", true, []string{"ok  \tflaky"}, "again", "steady\n"},
		"one fails once": {
			`func TestOnce(t *testing.T) { t.Parallel(); t.Run("sub", func(t *testing.T) { if count("once") == 1 { t.Fatal("the first time") } }) }`,
			true, []string{"the first time", "FAIL\tflaky", "again: flaky TestOnce\n", "ok  \tflaky", "UNSTABLE: failed once, then passed: flaky TestOnce\n"}, "", "steady\n",
		},
		"one fails twice": {
			`func TestTwice(t *testing.T) { t.Fatal("each time", count("twice")) }`,
			false, []string{"each time 1", "again: flaky TestTwice\n", "each time 2"}, "UNSTABLE", "steady\n",
		},
		"many fail once": {
			`func TestA(t *testing.T) { if count("a") == 1 { t.Fail() } }
			func TestB(t *testing.T) { if count("b") == 1 { t.Fail() } }
			func TestC(t *testing.T) { if count("c") == 1 { t.Fail() } }
			func TestD(t *testing.T) { if count("d") == 1 { t.Fail() } }`,
			false, []string{"FAIL: TestA", "FAIL: TestD"}, "again", "steady\n",
		},
		"the process ends": {
			`func TestEnds(t *testing.T) { if count("ends") == 1 { println("stuck here"); os.Exit(2) } }`,
			true, []string{"stuck here", "again: flaky TestEnds\n", "UNSTABLE: failed once, then passed: flaky TestEnds\n"}, "", "steady\n",
		},
		"it does not compile": {`var x int = "text"`, false, []string{"cannot use"}, "again", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"go.mod": "module flaky\n\ngo 1.26\n", "x_test.go": module + c.tests} {
				hosttest.Check(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}
			t.Chdir(dir)
			kept := filepath.Join(t.TempDir(), "unstable")
			t.Setenv("UNSTABLE", kept)
			var out strings.Builder
			if pass := run(&out, call); pass != c.pass {
				t.Errorf("it reports %v", pass)
			}
			wantInOrder(t, out.String(), c.says)
			text, _ := os.ReadFile(kept)
			if unstable := c.pass && strings.Contains(out.String(), "again: "); unstable != (len(text) > 0) ||
				!strings.HasSuffix(out.String(), string(text)) {
				t.Errorf("the end of the whole run has %q, after\n%s", text, out.String())
			}
			if c.never != "" && strings.Contains(out.String(), c.never) {
				t.Errorf("it prints %q:\n%s", c.never, out.String())
			}
			if text, _ := os.ReadFile("runs"); strings.Count(string(text), "steady\n") != strings.Count(c.runs, "steady\n") {
				t.Errorf("the steady test ran otherwise: %q", text)
			}
		})
	}
}

func wantInOrder(t *testing.T, text string, parts []string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("it does not print %q after what comes before it:\n%s", part, text)
			return
		}
		rest = after
	}
}

// How each test ended is noted, also that one was skipped and why, and each try.
func TestResultsAreNoted(t *testing.T) {
	t.Chdir(t.TempDir())
	tests := `
func TestNotHere(t *testing.T) { t.Skip("it is of another version") }
func TestOnce(t *testing.T) { if count("once") == 1 { t.Fatal("the first time") } }`
	files := map[string]string{"go.mod": "module flaky\n\ngo 1.26\n", "x_test.go": module + tests}
	for file, text := range files {
		hosttest.Check(t, os.WriteFile(file, []byte(text), 0o600))
	}
	t.Setenv("RESULTS", "results")
	t.Setenv("UNSTABLE", "")
	if !run(io.Discard, call) {
		t.Error("it does not pass")
	}
	const want = "skip\tflaky\tTestNotHere\tit is of another version\nfail\tflaky\tTestOnce\t\n" +
		"pass\tflaky\tTestSteady\t\npass\tflaky\tTestOnce\t\n"
	if got, err := os.ReadFile("results"); err != nil || string(got) != want {
		t.Errorf("%v, noted:\n%s", err, got)
	}
}
