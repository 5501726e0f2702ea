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

func page(t *testing.T, section, from string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run([]string{section, from, "2026-05-04", "v1"}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr.String())
	}
	return stdout.String()
}

// plain is a page without what only groff understands.
func plain(page string) string {
	return strings.NewReplacer(`\-`, "-", `\fB`, "", `\fI`, "", `\fR`, "", `\&`, "", `\e`, `\`, `\(aq`, "'").Replace(page)
}

// Each command and each flag has a tagged paragraph of its own.
func TestProgramPage(t *testing.T) {
	binary := build(t)
	source := page(t, "8", binary)
	shows(t, "8", source)
	text := plain(source)
	out, err := exec.Command(binary, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^  ([a-z-]+)   `).FindAllStringSubmatch(string(out), -1)
	if len(commands) < 8 {
		t.Fatalf("commands %q", commands)
	}
	for _, m := range commands {
		if m[1] != "help" && !regexp.MustCompile(`(?m)^\.TP\n`+m[1]+`\b`).MatchString(text) {
			t.Errorf("command %s is not there", m[1])
		}
		help, err := exec.Command(binary, m[1], "--help").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z-]+)`).FindAllStringSubmatch(string(help), -1) {
			if f[1] != "--help" && !regexp.MustCompile(`(?m)^\.TP\n`+f[1]+`\b`).MatchString(text) {
				t.Errorf("flag %s of %s is not there", f[1], m[1])
			}
		}
	}
	if left := regexp.MustCompile(`@[A-Z]+@`).FindString(text); left != "" {
		t.Errorf("%s is left", left)
	}
}

// Each key has a tagged paragraph with its default.
func TestConfigurationPage(t *testing.T) {
	source := page(t, "5", "../../docs/configuration.md")
	shows(t, "5", source)
	text := plain(source)
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
func shows(t *testing.T, section, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page."+section)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	show := exec.Command("man", "--warnings", "-E", "UTF-8", "-l", file)
	show.Env = append(os.Environ(), "MANWIDTH=100", "LC_ALL=C.UTF-8")
	var stdout, stderr bytes.Buffer
	show.Stdout, show.Stderr = &stdout, &stderr
	if err := show.Run(); err != nil || stderr.Len() > 0 {
		t.Errorf("man: %v\n%s", err, stderr.String())
	}
	if !strings.Contains(stdout.String(), "SEE ALSO") {
		t.Errorf("man shows\n%s", stdout.String())
	}
}
