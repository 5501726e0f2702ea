package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// document is one text, with its place below the repository's root.
type document struct{ name, text string }

func documents(t *testing.T) []document {
	t.Helper()
	forUsers, err := filepath.Glob("*.md")
	forUs, devErr := filepath.Glob("dev/*.md")
	names := slices.Concat(forUsers, forUs)
	if err != nil || devErr != nil || len(forUsers) < 4 || len(forUs) < 4 {
		t.Fatalf("documents %q, %v, %v", names, err, devErr)
	}
	all := []document{{"README.md", read(t, "../README.md")}}
	for _, name := range names {
		all = append(all, document{"docs/" + name, read(t, name)})
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block is a fenced piece of code: "sh", "text", "toml", "toml fragment", "yaml web configuration",
// "yaml", "json" or "ini".
type block struct{ in, language, text string }

var fence = regexp.MustCompile("(?ms)^```([a-z ]*)\n(.*?)^```$")

func blocks(t *testing.T, languages ...string) []block {
	t.Helper()
	var all []block
	for _, d := range documents(t) {
		if strings.Count(d.text, "\n```")%2 != 0 {
			t.Errorf("%s: a fence is not closed", d.name)
		}
		for _, m := range fence.FindAllStringSubmatch(d.text, -1) {
			if slices.Contains(languages, m[1]) {
				all = append(all, block{d.name, m[1], m[2]})
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("no document has a block of %q", languages)
	}
	return all
}

// Every block says what it is, or the tests here would pass it by.
func TestLanguages(t *testing.T) {
	known := []string{"sh", "text", "toml", "toml fragment", "yaml web configuration",
		"yaml playbook", "yaml", "json", "ini"}
	for _, d := range documents(t) {
		for _, m := range fence.FindAllStringSubmatch(d.text, -1) {
			if !slices.Contains(known, m[1]) {
				t.Errorf("%s: a block of %q", d.name, m[1])
			}
		}
	}
}

// inline are the pieces of code in a document's sentences and tables.
func (d document) inline() []string {
	var all []string
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(fence.ReplaceAllString(d.text, ""), -1) {
		all = append(all, m[1])
	}
	return all
}

var inRepository = regexp.MustCompile(`^(?:cmd|daemon|hostcheck|systemd|selinux|packaging|test|docs)(?:/[A-Za-z0-9._-]+)*$|^go\.mod$`)

// Every file and folder of the repository that is named exists.
func TestFiles(t *testing.T) {
	found := 0
	for _, d := range documents(t) {
		for _, code := range d.inline() {
			if !inRepository.MatchString(code) {
				continue
			}
			found++
			if _, err := os.Stat(filepath.Join("..", code)); err != nil {
				t.Errorf("%s: %v", d.name, err)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d files were looked for", found)
	}
}

// Every link leads to a file and, if it says so, to a heading in it.
func TestLinks(t *testing.T) {
	for _, d := range documents(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(fence.ReplaceAllString(d.text, ""), -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			to := filepath.Join("..", filepath.Dir(d.name), file)
			if file == "" {
				to = filepath.Join("..", d.name)
			}
			text, err := os.ReadFile(to)
			if err != nil {
				t.Errorf("%s: %v", d.name, err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(string(text)), anchor) {
				t.Errorf("%s: %s has no heading for #%s", d.name, file, anchor)
			}
		}
	}
}

// Each line of guarantees.md leads to its proofs, and each group of proofs has such a line.
func TestGuaranteesLeadToProofs(t *testing.T) {
	page, _, cut := strings.Cut(read(t, "guarantees.md"), "## What is not promised yet")
	_, proofs, begins := strings.Cut(read(t, "dev/proofs.md"), "\n## What holds\n")
	proofs, _, ends := strings.Cut(proofs, "\n## ")
	if !cut || !begins || !ends {
		t.Fatal("guarantees.md or dev/proofs.md has other headings")
	}
	for line := range strings.SplitSeq(page, "\n- ") {
		if promise := strings.Fields(line); promise[0] != "#" && !strings.Contains(line, "](dev/proofs.md#") {
			t.Errorf("guarantees.md: no proof of: %.60s", line)
		}
	}
	for _, group := range anchors(proofs) {
		if !strings.Contains(page, "](dev/proofs.md#"+group+")") {
			t.Errorf("guarantees.md: no line leads to dev/proofs.md#%s", group)
		}
	}
}

// anchors are what a forge makes of headings.
func anchors(text string) []string {
	var all []string
	for _, heading := range headings(text, 1, 6) {
		kept := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(heading), "")
		all = append(all, strings.ReplaceAll(kept, " ", "-"))
	}
	return all
}

// headings of these levels, in order.
func headings(text string, from, to int) []string {
	var all []string
	for line := range strings.Lines(fence.ReplaceAllString(text, "")) {
		level := len(line) - len(strings.TrimLeft(line, "#"))
		if level >= from && level <= to {
			all = append(all, strings.TrimSpace(line[level:]))
		}
	}
	return all
}

// Every test that is named stands in the package that is named with it, and every test's name
// stands with a package.
func TestTests(t *testing.T) {
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`(?: \\(([a-z0-9/-]+)\\))?")
	found := 0
	for _, d := range documents(t) {
		where := map[string]bool{}
		for _, m := range named.FindAllStringSubmatch(d.text, -1) {
			if found++; m[2] != "" {
				where[m[1]] = true
			}
		}
		for _, m := range named.FindAllStringSubmatch(d.text, -1) {
			if m[2] == "" && !where[m[1]] {
				t.Errorf("%s: %s without its package", d.name, m[1])
			}
			if m[2] != "" && !hasTest(t, m[2], m[1]) {
				t.Errorf("%s: %s has no %s", d.name, m[2], m[1])
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d tests were looked for", found)
	}
}

func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		return strings.Contains(read(t, file), "\nfunc "+name+"(")
	})
}

// commands are the lines that a reader would type: those of sh blocks, and inline code.
func commands(t *testing.T) []block {
	t.Helper()
	var all []block
	for _, b := range blocks(t, "sh") {
		for line := range strings.Lines(strings.ReplaceAll(b.text, "\\\n", " ")) {
			all = append(all, block{b.in, "sh", strings.TrimSpace(line)})
		}
	}
	for _, d := range documents(t) {
		for _, code := range d.inline() {
			all = append(all, block{d.name, "sh", code})
		}
	}
	return all
}

// Every make target that is named is one.
func TestTargets(t *testing.T) {
	makefiles := read(t, "../Makefile") + read(t, "../test/controlplane/build.mk")
	found := 0
	for _, c := range commands(t) {
		for _, m := range regexp.MustCompile(`(?:^|\s)make ([a-z][a-z0-9-]*)`).FindAllStringSubmatch(c.text, -1) {
			found++
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).MatchString(makefiles) {
				t.Errorf("%s: make %s is no target", c.in, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no target was looked for")
	}
}

// Every call of the daemon's binary is one that it takes: the subcommand exists and has the flags.
func TestCommands(t *testing.T) {
	binary := build(t)
	help := map[string]string{}
	found := 0
	for _, c := range commands(t) {
		for _, m := range regexp.MustCompile(`(?:^|[|(;]\s*)hostpath-provisioner((?: +[^|;)>\s]+)+)`).FindAllStringSubmatch(c.text, -1) {
			found++
			words := strings.Fields(m[1])
			if help[words[0]] == "" {
				out, err := exec.Command(binary, words[0], "--help").CombinedOutput()
				if err != nil || !strings.Contains(string(out), "hostpath-provisioner "+words[0]) {
					t.Errorf("%s: %s: %v\n%s", c.in, m[0], err, out)
				}
				help[words[0]] = string(out)
			}
			for _, word := range words[1:] {
				flag, _, _ := strings.Cut(word, "=")
				if strings.HasPrefix(flag, "-") && !regexp.MustCompile(`(?m)^\s+(?:-\w, )?`+flag+`\b`).MatchString(help[words[0]]) {
					t.Errorf("%s: %s: no flag %s", c.in, m[0], flag)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d calls were looked at", found)
	}
}

// Every global flag stands in configuration.md with its default, and no other does.
func TestFlags(t *testing.T) {
	out, err := exec.Command(build(t), "run", "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	_, global, _ := strings.Cut(string(out), "Global Flags:")
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^\s+(--[a-z-]+)`).FindAllStringSubmatch(global, -1) {
		want = append(want, m[1])
	}
	same(t, "flags", firstCells(t, "configuration.md", "Flags and directories"), want)
}

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "hostpath-provisioner")
	compile := exec.Command("go", "build", "-trimpath", "-o", binary, "../cmd/hostpath-provisioner")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// firstCells are the names in the first column of the tables under a heading.
func firstCells(t *testing.T, file, heading string) []string {
	t.Helper()
	_, section, ok := strings.Cut(read(t, file), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no heading %q", file, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var all []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(section, -1) {
		all = append(all, m[1])
	}
	return all
}

// same compares what is documented with what there is.
func same(t *testing.T, what string, documented, real []string) {
	t.Helper()
	if len(real) == 0 {
		t.Errorf("there are no %s", what)
	}
	for _, name := range real {
		if !slices.Contains(documented, name) {
			t.Errorf("%s: %s is not documented", what, name)
		}
	}
	for _, name := range documented {
		if !slices.Contains(real, name) {
			t.Errorf("%s: %s is documented and does not exist", what, name)
		}
	}
	if slices.Sort(documented); len(slices.Compact(documented)) != len(documented) {
		t.Errorf("%s: one is documented twice: %q", what, documented)
	}
}
