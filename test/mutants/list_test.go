package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// most is how many breakages there are at most: the whole list is run in an hour.
const most = 300

// What the list names is there: each old line once in its file, each proof in its package. A commit
// that changes a line that an entry breaks changes the entry, too.
func TestListFitsTheTree(t *testing.T) {
	all := hosttest.Need(readList(rig.Root()))(t)
	for _, m := range all {
		if _, err := m.mutate(rig.Root()); err != nil {
			t.Errorf("%s: %s: %v", m.Source, m.Name, err)
		}
		if why := m.Proof.missing(rig.Root()); why != "" {
			t.Errorf("%s: %s: %s", m.Source, m.Name, why)
		}
	}
	if len(all) > most {
		t.Errorf("%d breakages, want %d at the most", len(all), most)
	}
}

// Each promise of docs/dev/proofs.md that a Go test proves is broken, and each breakage is of a
// promise, of an invariant of the model or of a rule. Tests of real kubelets, and those of pages,
// are left out.
func TestEachPromiseIsBroken(t *testing.T) {
	all := hosttest.Need(readList(rig.Root()))(t)
	page := hosttest.Need(os.ReadFile(filepath.Join(rig.Root(), "docs/dev/proofs.md")))(t)
	tied := map[string]bool{}
	for row := range strings.Lines(string(page)) {
		if !strings.HasPrefix(row, "| ") {
			continue
		}
		broken, tests := false, 0
		for _, test := range provenBy.FindAllStringSubmatch(row, -1) {
			if test[2] == "test/nodes" || test[2] == "test/pages" {
				continue
			}
			tests++
			for _, m := range all {
				is, err := regexp.MatchString(m.Proof.top(), test[1])
				if err == nil && is && m.Proof.Package == test[2] {
					broken, tied[m.Name] = true, true
				}
			}
		}
		if tests > 0 && !broken {
			t.Errorf("no breakage of the promise %.80s", row)
		}
	}
	for _, m := range all {
		if !tied[m.Name] && m.Proof.Package != "test/model" && !ofRules.MatchString(m.File) {
			t.Errorf("%s: %s is of no promise: docs/dev/proofs.md names none of its tests", m.Source, m.Name)
		}
	}
}

var (
	provenBy = regexp.MustCompile("`(Test\\w+)` \\(([\\w/-]+)\\)")
	ofRules  = regexp.MustCompile(`^(daemon/(rules|controllers/(ownership|leadership))|hostcheck)/`)
)

func TestParse(t *testing.T) {
	all, err := parse("a.txt", "# about\n\none: a promise\nf.go\n  before\n- old\n+ new\n? daemon/rules/plan TestOne/sub\n\n\ntwo: another\ng.go\n- old\n? docs .\n")
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %+v", err, all)
	}
	m := all[0]
	if m.Name != "one" || m.Promise != "a promise" || m.File != "f.go" || m.Source != "a.txt:3" || m.Proof != (proof{"daemon/rules/plan", "TestOne/sub"}) {
		t.Errorf("%+v", m)
	}
	for _, wrong := range []string{
		"one: promise\nf.go\n- old\n",
		"no name\nf.go\n- old\n? docs .\n",
		"one: promise\nf.go\n+ new\n? docs .\n",
		"one: promise\nf.go\nold\n? docs .\n",
		"one: promise\nf.go\n- old\n? docs\n",
		"one: promise\nf.go\n- old\n? docs (\n",
	} {
		if _, err := parse("a.txt", wrong); err == nil {
			t.Errorf("%q is taken for an entry", wrong)
		}
	}
}

func TestApply(t *testing.T) {
	text := "func f() {\n\tif a {\n\t\treturn 1\n\t}\n\treturn 1\n}\n"
	p := hosttest.Need(parsePatch([]string{"  if a {", "- return 1", "+ return 2"}))(t)
	got, err := p.apply(text)
	if want := strings.Replace(text, "return 1", "return 2", 1); err != nil || strings.ReplaceAll(got, "\t", "") != strings.ReplaceAll(want, "\t", "") {
		t.Errorf("%v, got\n%s\nwant\n%s", err, got, want)
	}
	for _, old := range []string{"return 1", "return 3"} {
		if _, err := (patch{{'-', old}}).apply(text); err == nil {
			t.Errorf("%q is replaced", old)
		}
	}
}

func TestJudge(t *testing.T) {
	failed := errors.New("exit status 1")
	for _, c := range []struct {
		out  string
		err  error
		want verdict
	}{
		{"PASS\n", nil, green},
		{"testing: warning: no tests to run\nPASS\n", nil, absent},
		{"--- FAIL: TestA (0.00s)\n    a_test.go:1: got 1\nFAIL\n", failed, red},
		{"--- FAIL: TestA (0.00s)\npanic: nil [recovered]\n", failed, crashed},
		{"panic: test timed out after 1s\n", failed, hung},
		{"hosttest: this mounts filesystems and needs root\n", failed, broken},
	} {
		if got := judge(c.out, c.err); got != c.want {
			t.Errorf("%q: %s, want %s", c.out, got, c.want)
		}
	}
}

// A proof that is compiled under a build constraint only is found with it.
func TestFindsTags(t *testing.T) {
	for _, c := range []struct{ pkg, run, tag string }{
		{"test/model", "^TestLong$/^shared-older-lease", "modelreal"}, {"test/model", "^TestReal$", ""}, {"test/mutants", "TestFindsTags", ""},
	} {
		if tag, why := (proof{c.pkg, c.run}).find(rig.Root()); tag != c.tag || why != "" {
			t.Errorf("%s %s: %q, %s", c.pkg, c.run, tag, why)
		}
	}
	if _, why := (proof{"test/mutants", "^TestNone$"}).find(rig.Root()); why == "" {
		t.Error("a test that is not there is found")
	}
}
