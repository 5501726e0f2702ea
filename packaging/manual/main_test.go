package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
)

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "hostpath-provisioner")
	compile := exec.Command("go", "build", "-trimpath", "-o", binary, "../../cmd/hostpath-provisioner")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// pages are all that are written of a program and a configuration.md, by their files' names.
func pages(t *testing.T, program, configuration string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	var stderr bytes.Buffer
	if code := run([]string{program, configuration, "2026-05-04", "v1", dir}, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr.String())
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[file.Name()] = string(text)
	}
	return all
}

// plain is a page without what only groff understands.
func plain(page string) string {
	return strings.NewReplacer(`\-`, "-", `\fB`, "", `\fI`, "", `\fR`, "", `\&`, "", `\e`, `\`, `\(aq`, "'").Replace(page)
}

// Each command has a page, which the program's page names, and in it each flag a tagged paragraph.
// man has nothing to complain about in any.
func TestProgramPages(t *testing.T) {
	binary := build(t)
	all := pages(t, binary, "../../docs/configuration.md")
	for name, text := range all {
		shows(t, name, text)
	}
	main := plain(all["hostpath-provisioner.8"])
	out, err := exec.Command(binary, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^  ([a-z-]+)   `).FindAllStringSubmatch(string(out), -1)
	if len(commands) < 8 {
		t.Fatalf("commands %q", commands)
	}
	for _, m := range commands {
		if m[1] == "help" {
			continue
		}
		name := "hostpath-provisioner-" + m[1]
		if !strings.Contains(main, "\n.BR "+name+" (8)\n") {
			t.Errorf("command %s is not named", m[1])
		}
		flagsOf(t, binary, main+plain(all[name+".8"]), m[1])
	}
	if left := regexp.MustCompile(`@[A-Z]+@`).FindString(main); left != "" {
		t.Errorf("%s is left", left)
	}
}

func flagsOf(t *testing.T, binary, text, command string) {
	t.Helper()
	help, err := exec.Command(binary, command, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z-]+)`).FindAllStringSubmatch(string(help), -1) {
		if f[1] != "--help" && !regexp.MustCompile(`(?m)^\.TP\n`+f[1]+`\b`).MatchString(text) {
			t.Errorf("flag %s of %s is not there", f[1], command)
		}
	}
}

// Each key has a tagged paragraph with its default.
func TestConfigurationPage(t *testing.T) {
	text := plain(pages(t, program(t, helps), "../../docs/configuration.md")["hostpath-provisioner.toml.5"])
	for _, key := range config.Keys() {
		if !regexp.MustCompile(`(?m)^\.TP\n` + regexp.QuoteMeta(key) + `\n.*\nDefault: `).MatchString(text) {
			t.Errorf("key %s is not there", key)
		}
	}
	if left := regexp.MustCompile("(?m)```|^\\||\\]\\(").FindString(text); left != "" {
		t.Errorf("Markdown is left: %q", left)
	}
}

// shows has groff show a page, which must have nothing to complain about.
func shows(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	show := exec.Command("man", "--warnings", "-E", "UTF-8", "-l", file)
	show.Env = append(os.Environ(), "MANWIDTH=100", "LC_ALL=C.UTF-8")
	var stdout, stderr bytes.Buffer
	show.Stdout, show.Stderr = &stdout, &stderr
	if err := show.Run(); err != nil || stderr.Len() > 0 {
		t.Errorf("man %s: %v\n%s", name, err, stderr.String())
	}
	if !strings.Contains(stdout.String(), "SEE ALSO") {
		t.Errorf("man shows\n%s", stdout.String())
	}
}
