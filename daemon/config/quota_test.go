package config

import (
	"fmt"
	"strings"
	"testing"
)

// What the keys of quotas come to, also where a later file has another value, and what is warned
// of.
func TestQuota(t *testing.T) {
	const reserved = "off 1213202432-1213267967 0"
	for name, c := range map[string]struct {
		lines, later string // of the pool, in config.toml and in conf.d
		want, warns  string
	}{
		"nothing is given":            {"", "", reserved, ""},
		"off":                         {"quota = 'off'", "", reserved, ""},
		"projects":                    {"quota = 'project'", "", "project 1213202432-1213267967 0", ""},
		"projects of a range":         {"quota = 'project'\nquota_ids = [1, 2147483647]", "", "project 1-2147483647 0", ""},
		"a single project":            {"quota = 'project'\nquota_ids = [7, 7]", "", "project 7-7 0", ""},
		"inodes, the most":            {"quota = 'project'\ninodes_per_gib = 1048576", "", "project 1213202432-1213267967 1048576", ""},
		"inodes, none":                {"quota = 'project'\ninodes_per_gib = 0", "", "project 1213202432-1213267967 0", ""},
		"projects of every node":      {"quota = 'project'\nscope = 'every-node'", "", "project 1213202432-1213267967 0", ""},
		"CephFS":                      {"quota = 'ceph'\nscope = 'shared'", "", "ceph 1213202432-1213267967 0", ""},
		"a later file takes it back":  {"quota = 'ceph'", "quota = 'off'", reserved, ""},
		"a later file has another":    {"quota = 'ceph'", "quota = 'project'", "project 1213202432-1213267967 0", ""},
		"a range without quotas":      {"quota_ids = [1, 2]\ninodes_per_gib = 5", "", "off 1-2 5", "config.toml:4: pool.p.quota_ids: means nothing while quota is \"off\"\nconfig.toml:5: pool.p.inodes_per_gib: means nothing while quota is \"off\""},
		"a range beside CephFS":       {"quota = 'ceph'\nquota_ids = [1, 2]", "", "ceph 1-2 0", `config.toml:5: pool.p.quota_ids: means nothing while quota is "ceph"`},
		"a range whose quota is last": {"quota_ids = [1, 2]", "quota = 'project'", "project 1-2 0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			more := []string{}
			if c.later != "" {
				more = []string{"conf.d/a.toml", "[pool.p]\n" + c.later + "\n"}
			}
			file := write(t, minimal+c.lines+"\n", more...)
			got, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			p := got.Pools[0]
			if text := fmt.Sprintf("%s %d-%d %d", p.Quota, p.QuotaFirst, p.QuotaLast, p.InodesPerGiB); text != c.want {
				t.Errorf("%s, want %s", text, c.want)
			}
			if warns := said(file, strings.Join(got.Warnings, "\n")); warns != c.warns {
				t.Errorf("warned\n%s\nwant\n%s", warns, c.warns)
			}
		})
	}
}
