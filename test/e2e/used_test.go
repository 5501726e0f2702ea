package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// usedRow is a line of volumes --json.
type usedRow struct {
	Volume     string
	Used       uint64
	InodesUsed uint64
	Measured   *time.Time
	Estimate   bool
}

func (h *host) usedRows() map[string]usedRow {
	h.w.Helper()
	text, _ := h.Call("volumes", "--json")
	var all struct{ Volumes []usedRow }
	h.w.Must(json.Unmarshal([]byte(text), &all))
	rows := map[string]usedRow{}
	for _, r := range all.Volumes {
		rows[r.Volume] = r
	}
	return rows
}

// Two volumes without quotas, on a filesystem that is not the pool's alone: what they take is in
// the metrics, the volumes command, the status and the cluster's overview. While the pool is closed
// nobody tells it, and once it is open nothing is read again within the hour.
func TestUsedWithoutQuotas(t *testing.T) {
	w := newEnvironment(t)
	admin := w.killer().kubeconfig()
	image := hosttest.Mkfs(t, "ext4", 200)
	mount := hosttest.PoolMount(t, image)
	w.Must(os.Mkdir(filepath.Join(mount, "one"), 0o700))
	h := w.hostAt(filepath.Join(mount, "one"), "a", fmt.Sprintf("mount_point = %q", mount))
	w.Must(w.AddNode(w.Ctx, h.node, nil))
	h.serving().run()
	class := w.Class("c", immediate)
	small, large := h.made("small", class), h.made("large", class)
	fill := func(pv, name string, mib int) string {
		path := filepath.Join(h.mount, pv, name)
		w.Must(os.WriteFile(path, []byte(strings.Repeat("data", mib<<18)), 0o600))
		return path
	}
	fill(small.Name, "file", 1)
	file := fill(large.Name, "file", 8)
	w.Must(os.Link(file, file+"-2"))
	w.Must(os.Symlink(filepath.Join(h.mount, small.Name, "file"), file+"-3"))
	hosttest.Run(t, "sync")
	h.again()

	var rows map[string]usedRow
	w.Eventually("the volumes are measured", func() bool {
		rows = h.usedRows()
		return rows[small.Name].Measured != nil && rows[large.Name].Measured != nil
	})
	for pv, want := range map[string]struct{ bytes, inodes uint64 }{
		small.Name: {1 << 20, 3}, large.Name: {8 << 20, 4}, // the directory, and a file of before
	} {
		got := rows[pv]
		if got.Estimate || got.InodesUsed != want.inodes || got.Used < want.bytes ||
			got.Used > want.bytes+64<<10 || time.Since(*got.Measured) > limit {
			t.Errorf("%s: %+v, want %+v", pv, got, want)
		}
	}
	h.call("volumes").Says("USED", "s ago")
	sum := rows[small.Name].Used + rows[large.Name].Used
	w.Eventually("the status has the sum", func() bool {
		return known(h.status().Pools[0].Used) == sum
	})
	series := func(name, pv string, value any) string {
		claim := map[string]string{small.Name: "small", large.Name: "large"}[pv]
		return fmt.Sprintf("hostpath_provisioner_volume_%s{namespace=%q,persistentvolumeclaim=%q,"+
			"pool=\"fast\",volume=%q} %v\n", name, w.Namespace, claim, pv, value)
	}
	_, scraped, _ := strings.Cut(h.scraped(), "\n# HELP hostpath_provisioner_pool_used")
	for _, want := range []string{
		series("inodes_used", small.Name, 3), series("inodes_used", large.Name, 4),
		series("used_estimate", small.Name, 0), series("used_estimate", large.Name, 0),
		"hostpath_provisioner_pool_used_estimate{pool=\"fast\"} 0\n",
		fmt.Sprintf("hostpath_provisioner_pool_used_bytes{pool=\"fast\"} %v\n", float64(sum)),
	} {
		if !strings.Contains(scraped, want) {
			t.Errorf("no %s in\n%s", want, scraped)
		}
	}
	for _, pv := range []string{small.Name, large.Name} {
		want := series("used_bytes", pv, "")
		if !strings.Contains(scraped, strings.TrimSpace(want)) {
			t.Errorf("no %s in\n%s", want, scraped)
		}
	}
	h.shows(admin, "pools", "9.0 MiB")

	hosttest.Unmount(t, mount)
	w.Eventually("nobody tells it of a closed pool", func() bool {
		return !strings.Contains(need(h.page("/metrics"))(w), "volume_used_bytes{")
	})
	image.Mount(t, mount)
	w.Eventually("it is told again", func() bool {
		return h.usedRows()[large.Name].Measured != nil
	})
	for pv, now := range h.usedRows() {
		if now.Measured == nil || !now.Measured.Equal(*rows[pv].Measured) {
			t.Errorf("read again: %+v, before %+v", now, rows[pv])
		}
	}
}
