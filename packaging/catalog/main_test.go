package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
)

func catalog(t *testing.T) string {
	t.Helper()
	var out, complaints bytes.Buffer
	if code := run([]string{"../../docs/troubleshooting.md"}, &out, &complaints); code != 0 {
		t.Fatalf("exit %d: %s", code, complaints.String())
	}
	return out.String()
}

// journalctl takes the catalog as it is, and shows for the ID of a reason what the page says of it.
// That the page has each reason that a record can have is docs.TestReasons.
func TestCatalog(t *testing.T) {
	text, root := catalog(t), t.TempDir()
	dir := filepath.Join(root, "usr/lib/systemd/catalog")
	for _, made := range []string{dir, filepath.Join(root, "var/lib/systemd/catalog")} {
		if err := os.MkdirAll(made, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "hostpath-provisioner.catalog"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("journalctl", "--root="+root, "--update-catalog").CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("journalctl --update-catalog: %v\n%s", err, out)
	}
	for reason, want := range map[string]string{
		plan.ReasonProvisioningSucceeded: "\nThe claim got its volume. Nothing to do.\n",
		plan.ReasonAPIUnavailable:        "itself: see operation.md.\n",
		hostcheck.ReasonMarkerMissing:    "\n    cp /var/lib/hostpath-provisioner/state/pools/fast.json /srv/fast/.hostpath-provisioner/pool.json\n",
		hostcheck.ReasonUnitMasked:       "\nThe unit is masked. Run systemctl unmask hostpath-provisioner.\n",
		hostcheck.ReasonPlainDirectory:   "accept = [\"PlainDirectory\"].\n",
	} {
		out, err := exec.Command("journalctl", "--root="+root, "--dump-catalog", systemd.MessageID(reason)).CombinedOutput()
		if got := string(out); err != nil || !strings.Contains(got, "\nSubject: hostpath-provisioner: "+reason+"\n") || !strings.Contains(got, want) {
			t.Errorf("%s: %v\n%s\nwant in it %q", reason, err, got, want)
		}
	}
	if strings.ContainsAny(text, "`") || strings.Contains(text, "](") {
		t.Error("marks of Markdown are left")
	}
}
