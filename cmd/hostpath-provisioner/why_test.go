package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/why"
	"github.com/hostpath-provisioner/hostpath-provisioner/docs"
)

// Whatever reason an object has, why names it and how it is explained, and explain does.
func TestWhyNamesEveryReason(t *testing.T) {
	at := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	for _, r := range docs.Reasons(docs.Troubleshooting) {
		var out bytes.Buffer
		p := &program{stdout: &out, now: func() time.Time { return at.Add(time.Minute) }}
		p.tellWhy(why.Page{Object: "claim shop/data", Waits: "x", Events: []why.Event{
			{At: at, Type: "Normal", Reason: "Other", Message: "m"},
			{At: at, Type: "Warning", Reason: r.Name, Message: "it is so\nand so"},
		}})
		for _, want := range []string{
			"    60s ago, Warning " + r.Name + ": it is so",
			"what it means: hostpath-provisioner explain " + r.Name,
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in\n%s", want, out.String())
			}
		}
		if code, text := runWith(t, "explain", strings.ToLower(r.Name)); code != 0 ||
			!strings.HasPrefix(text, r.Name+"\n\n") || len(text) < len(r.Name)+20 {
			t.Errorf("explain %s: exit code %d\n%s", r.Name, code, text)
		}
	}
}

func TestWhyRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"why", "data"}, {"why", "node", "a"}, {"why", "pvc", ""}, {"why", "pvc", "a/b"}, {"why"},
		{"why", "pvc/"}, {"why", "pvc", "a?b"}, {"explain", "NoSuchReason"}, {"explain"},
	} {
		if code, text := runWith(t, args...); code != exitUsage {
			t.Errorf("%q: exit code %d\n%s", args, code, text)
		}
	}
}

func runWith(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	var out bytes.Buffer
	code = run(args, strings.NewReader(""), &out, &out)
	return code, out.String()
}
