package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sources is a clone of nothing but what a version depends on.
type sources struct {
	t   *testing.T
	dir string
}

func newSources(t *testing.T) sources {
	s := sources{t, t.TempDir()}
	script, err := os.ReadFile("version.sh")
	if err != nil {
		t.Fatal(err)
	}
	s.write("packaging/version.sh", string(script))
	s.write("CHANGELOG.md", "# Changes\n\n## 0.2.0 (not released)\n\n## 0.1.0\n")
	s.run("git", "init", "-q")
	return s
}

func (s sources) write(name, text string) {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s sources) run(name string, args ...string) string {
	s.t.Helper()
	c := exec.Command(name, args...)
	c.Dir = s.dir
	// All commits in one second: what is left to tell them apart is their order.
	c.Env = append(os.Environ(), "GIT_AUTHOR_DATE=2026-01-01T00:00:00Z",
		"GIT_COMMITTER_DATE=2026-01-01T00:00:00Z",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(s.dir))
	out, err := c.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s sources) commit(text string) {
	s.t.Helper()
	s.write("file", text)
	s.run("git", "add", "-A")
	s.run("git", "commit", "-q", "-m", text)
}

func (s sources) versions() (version, ofPackage string) {
	version = s.run("sh", "packaging/version.sh")
	return version, s.run("sh", "packaging/version.sh", "--package", version)
}

// Each version is newer for dpkg and rpm than the one before it; sort -V orders as dpkg does
// (coreutils manual, "Version sort ordering"), and rpm's "~" means the same (rpm-version(7)).
func TestVersion(t *testing.T) {
	s := newSources(t)
	var packages []string
	add := func(want string) {
		t.Helper()
		version, ofPackage := s.versions()
		if !regexp.MustCompile("^" + want + "$").MatchString(version) {
			t.Errorf("%s, want %s", version, want)
		}
		packages = append(packages, ofPackage)
	}
	for n := range 11 {
		s.commit(strings.Repeat("x", n+1))
	}
	add(`v0\.2\.0-dev\.11\+g[0-9a-f]{12}`)
	s.commit("another")
	add(`v0\.2\.0-dev\.12\+g[0-9a-f]{12}`)
	packages = append(packages, s.run("sh", "-c",
		`sh packaging/version.sh --package "$(AFTER=1 sh packaging/version.sh)"`))
	s.commit("more")
	s.commit("the release")
	s.run("git", "tag", "v0.2.0")
	add(`v0\.2\.0`)
	s.write("CHANGELOG.md", "## 0.3.0 (not released)\n")
	add(`v0\.3\.0-dev\.14\+g[0-9a-f]{12}\.dirty`)
	s.commit("towards the next")
	add(`v0\.3\.0-dev\.15\+g[0-9a-f]{12}`)

	s.write("versions", strings.Join(packages, "\n")+"\n")
	if got := s.run("sort", "-V", "versions"); got != strings.Join(packages, "\n") {
		t.Errorf("sorted\n%s\nbuilt\n%s", got, strings.Join(packages, "\n"))
	}
}

// The version of the examples is the next one, as `version` will print it.
func TestExamplesHaveTheVersion(t *testing.T) {
	changes, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	next := regexp.MustCompile(`(?m)^## ([0-9.]+)`).FindSubmatch(changes)
	if next == nil {
		t.Fatal("CHANGELOG.md begins with no version")
	}
	for _, page := range []string{"../docs/install.md", "../docs/operation.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`hostpath-provisioner v([0-9][^, ]*), pid`).FindAllSubmatch(text,
			-1) {
			if string(m[1]) != string(next[1]) {
				t.Errorf("%s has version %s, CHANGELOG.md %s", page, m[1], next[1])
			}
		}
	}
}
