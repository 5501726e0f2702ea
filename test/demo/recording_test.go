package demo

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

const asDemo = "HOSTPATH_TEST_AS_DEMO"

func TestMain(m *testing.M) {
	if os.Getenv(asDemo) != "" {
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

// What README.md plays is what the demonstration prints today, but for times, numbers and names
// that are made by chance.
func TestRecording(t *testing.T) {
	kept := hosttest.Need(os.ReadFile("../../docs/pictures/demo.cast"))(t)
	var recorded strings.Builder
	events := strings.Split(strings.TrimSpace(string(kept)), "\n")
	for _, event := range events[1:] {
		var line string
		hosttest.Check(t, json.Unmarshal([]byte(event), &[]any{new(any), new(any), &line}))
		recorded.WriteString(strings.ReplaceAll(line, "\r", ""))
	}
	var out strings.Builder
	demo := process.Self(asDemo+"=1", "KEEP=", "KUBECONFIG=")
	demo.Stdout = &out
	if err := demo.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	want := strings.Split(stable(recorded.String()), "\n")
	got := strings.Split(stable(out.String()), "\n")
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			t.Fatalf("the recording differs from line %d on; run: make recording\n%s", i+1, out.String())
		}
	}
}

var (
	chance = regexp.MustCompile(`hostpath-demo-[0-9a-f]+(--[a-z0-9]+)?`)
	host   = regexp.MustCompile(`(?m)^ *(SELinux|Landlock) is .*\n`)
)

// stable is a text without what chance and the host's kernel have in it.
func stable(text string) string {
	return pages.Comparable(chance.ReplaceAllString(host.ReplaceAllString(text, ""), "*"))
}
