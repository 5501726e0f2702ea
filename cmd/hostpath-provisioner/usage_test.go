package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	volumeusage "github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

// What a volume takes and may take is listed where a pool has limits, of the volumes that have one;
// a volume that takes nothing has that as a figure.
func TestUsageIsListed(t *testing.T) {
	d := disk{pool: "fast", usage: map[uint32]quota.Usage{
		0: {Bytes: 7 << 30}, 5: {ID: 5, Bytes: 1 << 20, Inodes: 3, Limit: quota.Limit{Bytes: 10 << 20, Inodes: 100}}, 6: {ID: 6, Limit: quota.Limit{Bytes: 1 << 20}},
	}, inventory: volume.Inventory{
		Volumes: []record.Record{
			{PV: "pvc-a", Namespace: "ns", Claim: "a", Requested: 10 << 20, ProjectID: 5, Place: record.InPool},
			{PV: "pvc-b", Namespace: "ns", Claim: "b", Requested: 1 << 20, Place: record.InPool},
		},
		Archived: []record.Record{{PV: "pvc-c", Namespace: "ns", Claim: "c", ProjectID: 6, Place: record.InArchive}},
	}}
	all := rows(d, objects{})
	var out bytes.Buffer
	p := &program{stdout: &out}
	limited, unlimited := config.DefaultPool("fast"), config.DefaultPool("slow")
	limited.Quota = plan.QuotaProject
	if err := p.writeVolumes(all, []config.Pool{unlimited, limited}); err != nil {
		t.Fatal(err)
	}
	want := `VOLUME  CLAIM  POOL  SIZE      USED     LIMIT     STATE
pvc-a   ns/a   fast  10.0 MiB  1.0 MiB  10.0 MiB  orphaned
pvc-b   ns/b   fast  1.0 MiB   -        -         orphaned
pvc-c   ns/c   fast  -         0 B      1.0 MiB   archive
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	out.Reset()
	if err := p.writeVolumes(all, []config.Pool{unlimited}); err != nil || strings.Contains(out.String(), "USED") {
		t.Errorf("without limits: %v\n%s", err, out.String())
	}
	text, err := json.Marshal(all)
	if err != nil || strings.Count(string(text), `"used":`) != 2 || !strings.Contains(string(text), `"used":1048576,"limit":10485760,"inodesUsed":3,"inodesLimit":100}`) {
		t.Errorf("%v: %s", err, text)
	}
}

// What a running daemon found in the directories of volumes is listed with its age, of those that
// no project tells of; an estimate is marked. A file that is none lists nothing.
func TestMeasuredIsListed(t *testing.T) {
	dir := t.TempDir()
	at := func(ago time.Duration) time.Time { return noon.Add(-ago) }
	type figures = map[string]volumeusage.Measured
	text, err := json.Marshal(daemon.UsageText{Schema: 1, Pools: map[string]figures{
		"fast": {"pvc-a": {Bytes: 1 << 20, Inodes: 3, At: at(5 * time.Minute)},
			"pvc-b": {Bytes: 2 << 30, Inodes: 70000, Estimate: true, At: at(time.Minute)},
			"pvc-c": {Bytes: 7 << 20, At: at(0)}, "pvc-d": {Bytes: 8 << 20, At: at(0)}},
		"other": {"pvc-e": {Bytes: 9 << 20, At: at(0)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	limited := quota.Usage{ID: 6, Bytes: 5, Limit: quota.Limit{Bytes: 9}}
	d := disk{pool: "fast", usage: map[uint32]quota.Usage{6: limited},
		inventory: volume.Inventory{
			Volumes: []record.Record{
				{PV: "pvc-a", Namespace: "ns", Claim: "a", Place: record.InPool},
				{PV: "pvc-b", Namespace: "ns", Claim: "b", Place: record.InPool},
				{PV: "pvc-c", Namespace: "ns", Claim: "c", ProjectID: 6, Place: record.InPool},
				{PV: "pvc-e", Namespace: "ns", Claim: "e", Place: record.InPool},
			},
			Archived: []record.Record{
				{PV: "pvc-d", Namespace: "ns", Claim: "d", Place: record.InArchive}},
		}}
	for content, want := range map[string]string{
		string(text): `VOLUME  CLAIM  POOL  SIZE  USED               STATE
pvc-a   ns/a   fast  -     1.0 MiB, 5m ago    orphaned
pvc-b   ns/b   fast  -     ~2.0 GiB, 60s ago  orphaned
pvc-c   ns/c   fast  -     5 B                orphaned
pvc-e   ns/e   fast  -     -                  orphaned
pvc-d   ns/d   fast  -     -                  archive
`,
		"{": `VOLUME  CLAIM  POOL  SIZE  STATE
pvc-a   ns/a   fast  -     orphaned
pvc-b   ns/b   fast  -     orphaned
pvc-c   ns/c   fast  -     orphaned
pvc-e   ns/e   fast  -     orphaned
pvc-d   ns/d   fast  -     archive
`,
	} {
		file := filepath.Join(dir, daemon.UsageFile)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		p := &program{stdout: &out, runtimeDir: dir, now: func() time.Time { return noon }}
		all := rows(p.measured([]disk{d})[0], objects{})
		if err := p.writeVolumes(all, []config.Pool{config.DefaultPool("fast")}); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("got\n%swant\n%s", out.String(), want)
		}
		b := all[1]
		if content != "{" && (b.Measured == nil || !b.Estimate || *b.InodesUsed != 70000) {
			t.Errorf("%+v", b)
		}
	}
}
