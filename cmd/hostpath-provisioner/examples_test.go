package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

// Each example is a command line that the program takes, with the flags that it has, and each command
// that a user calls has one.
func TestExamples(t *testing.T) {
	without := []string{"completion", "help", "run", "version"}
	root := (&program{}).root()
	for _, c := range root.Commands() {
		if !c.Hidden && !slices.Contains(without, c.Name()) && c.Example == "" {
			t.Errorf("%s has no example", c.Name())
		}
		for line := range strings.Lines(c.Example) {
			called, _, _ := strings.Cut(line, "|")
			called, _, _ = strings.Cut(called, ">")
			plugin := strings.HasPrefix(strings.TrimSpace(called), "kubectl hostpath ")
			called = strings.Replace(called, "kubectl hostpath", "hostpath-provisioner", 1)
			takes(t, strings.Fields(called), c.Name(), plugin)
		}
	}
}

func takes(t *testing.T, line []string, command string, plugin bool) {
	t.Helper()
	p := &program{}
	if plugin {
		p.called = pluginName
	}
	root := p.root()
	found, rest, err := root.Find(line[1:])
	if err == nil {
		err = found.ParseFlags(rest)
	}
	if err == nil {
		err = found.ValidateArgs(found.Flags().Args())
	}
	if err != nil || found.Name() != command && found.Parent().Name() != command {
		t.Errorf("%s: %q is %s's: %v", command, line, found.Name(), err)
	}
}

// Who calls the program as kubectl's plugin is told to call that.
func TestPluginNamesItself(t *testing.T) {
	for args, hint := range map[string]string{
		"nods": "did you mean: kubectl hostpath nodes", "x --help": "run: kubectl hostpath --help",
		"pools -A": "run: kubectl hostpath pools --help",
	} {
		var said bytes.Buffer
		p := &program{stdout: &said, stderr: &said, now: time.Now, called: pluginName}
		code := p.run(strings.Fields(args), strings.NewReader(""))
		if code != exitUsage || !strings.HasSuffix(said.String(), "hint: "+hint+"\n") {
			t.Errorf("%s: exit code %d\n%s", args, code, said.String())
		}
	}
}
