package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The list is the toolchain's own: every module that is linked into the program has its name and a
// text after it.
func TestEveryModule(t *testing.T) {
	program := filepath.Join(t.TempDir(), "hostpath-provisioner")
	compile := exec.Command("go", "build", "-trimpath", "-o", program, "../../cmd/hostpath-provisioner")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := write(&out, program); err != nil {
		t.Fatal(err)
	}
	if len(info.Deps) < 20 {
		t.Fatalf("the program is linked from %d modules", len(info.Deps))
	}
	for _, dep := range info.Deps {
		_, rest, found := strings.Cut(out.String(), "\n"+dep.Path+" "+dep.Version+": ")
		if text, _, _ := strings.Cut(rest, "\n====="); !found || len(text) < 500 {
			t.Errorf("%s: no licence, or a short one: %q", dep.Path, text)
		}
	}
	if !strings.Contains(out.String(), "\nGo go1.") {
		t.Error("Go's own licence is missing")
	}
}

func TestNoLicence(t *testing.T) {
	if texts, err := textsOf(module{Path: "example.com/bare", Dir: t.TempDir()}); err == nil {
		t.Errorf("%q", texts)
	}
	var out, errs bytes.Buffer
	if code := run([]string{"/nonexistent"}, &out, &errs); code != 1 || errs.Len() == 0 {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
}
