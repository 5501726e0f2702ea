package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
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
	limited.Quota = config.QuotaProject
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
