package harness

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// A line is counted once, when it is whole.
func TestAuditLog(t *testing.T) {
	dir := t.TempDir()
	l, args, err := NewAuditLog(dir, "policy")
	if err != nil || !strings.Contains(strings.Join(args, " "), "audit-log-path="+filepath.Join(dir, "audit.log")) {
		t.Fatalf("%q, %v", args, err)
	}
	if got, err := l.Take(); got != nil || err != nil {
		t.Errorf("before the log exists: %v, %v", got, err)
	}
	const (
		create   = `{"verb":"create","user":{"extra":{"authentication.kubernetes.io/node-name":["a"]}},"objectRef":{"resource":"events"},"responseStatus":{"code":201}}` + "\n"
		conflict = `{"verb":"patch","objectRef":{"resource":"persistentvolumeclaims","subresource":"status"},"responseStatus":{"code":409}}` + "\n"
	)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "audit.log"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(create + conflict + "\n" + create[:20])
	got, err := l.Take()
	if want := (map[string]Requests{"a": {"create events": 1}, "": {"patch persistentvolumeclaims/status (409)": 1}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	write(create + conflict + "\n" + create)
	later, err := l.Take()
	if want := (map[string]Requests{"a": {"create events": 1}}); err != nil || !reflect.DeepEqual(later, want) {
		t.Errorf("the rest of the line: %v, %v, want %v", later, err, want)
	}
	sum := SumRequests(got)
	if sum.Total() != 2 || sum.Of("patch ", "(409)") != 1 || sum.String() != "1 create events, 1 patch persistentvolumeclaims/status (409)" || (Requests{}).String() != "no requests" {
		t.Errorf("%s", sum)
	}
	write(create + conflict + "\n" + create + "{\n")
	if got, err := l.Take(); err == nil {
		t.Errorf("of a line that is no JSON: %v", got)
	}
}
