package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// asked is how often something was requested, and how often the API server refused it.
type asked struct{ sent, refused int }

// account is the daemons' identity.
const account = "system:serviceaccount:hostpath-provisioner:hostpath-provisioner"

// requests counts what the daemons requested in the audit logs of a directory, by verb and
// resource.
func requests(dir string) (map[string]asked, error) {
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		return nil, fmt.Errorf("%s has no audit log: %w", dir, err)
	}
	all := map[string]asked{}
	for _, name := range logs {
		if err := count(name, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func count(name string, all map[string]asked) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event harness.AuditEvent
		if json.Unmarshal(lines.Bytes(), &event) != nil || event.User.Username != account {
			continue // a line that a killed API server left is cut short
		}
		right := event.Request()
		now := all[right]
		if now.sent++; event.ResponseStatus.Code == http.StatusForbidden {
			now.refused++
		}
		all[right] = now
	}
	return lines.Err()
}
