package config

import (
	"fmt"
	"strings"
	"testing"
)

// A value of the wrong kind is refused, also where TOML's own notation comes near the right one; so
// is the first number beyond each bound. The last number within is in TestNumbers.
func TestNumberRefusals(t *testing.T) {
	const two = "want two numbers, the first and the last project, got "
	for _, c := range []struct{ key, value, want string }{
		{"quota_ids", "[]", two + "an array"},
		{"quota_ids", "[[1, 2], [3, 4]]", two + "an array"},
		{"quota_ids", "[1.0, 2.0]", two + "the number 1"},
		{"quota_ids", "[1, true]", two + "true"},
		{"quota_ids", "'1-2'", two + `the string "1-2"`},
		{"quota_ids", "{ first = 1, last = 2 }", two + "a table"},
		{"quota_ids", "[-1, 5]", "-1 is not a project from 1 to 2147483647"},
		{"quota_ids", "[0, 0]", "0 is not a project from 1 to 2147483647"},
		{"quota_ids", "[4294967297, 4294967298]", "4294967297 is not a project from 1 to 2147483647"},
		{"inodes_per_gib", "1048577", "want a number from 0 to 1048576, got the number 1048577"},
		{"inodes_per_gib", "5.0", "want a number from 0 to 1048576, got the number 5"},
		{"inodes_per_gib", "true", "want a number from 0 to 1048576, got true"},
		{"inodes_per_gib", "9223372036854775807", "want a number from 0 to 1048576, got the number 9223372036854775807"},
		{"overcommit", "1001", "1001 is not a number above 0 and up to 1000"},
		{"overcommit", "-1", "-1 is not a number above 0 and up to 1000"},
		{"overcommit", "-0.0", "-0 is not a number above 0 and up to 1000"},
		{"overcommit", "-inf", "-Inf is not a number above 0 and up to 1000"},
		{"overcommit", "true", "want a number, got true"},
		{"overcommit", "[2]", "want a number, got an array"},
		{"volume_metrics", "100001", "want a number from 0 to 100000, got the number 100001"},
		{"volume_metrics", "'50'", `want a number from 0 to 100000, got the string "50"`},
		{"publish_capacity", "'true'", `want true or false, got the string "true"`},
		{"publish_capacity", "1", "want true or false, got the number 1"},
		{"confine", "0", "want true or false, got the number 0"},
	} {
		t.Run(c.key+" "+c.value, func(t *testing.T) {
			line, text, place := c.key+" = "+c.value+"\n", "", ""
			if _, top := rootKeys[c.key]; top {
				text, place = line+minimal, "config.toml:1: "
			} else {
				text, place = minimal+line, "config.toml:4: pool.p."
			}
			file := write(t, text)
			_, err := Load(file)
			if err == nil {
				t.Fatal("accepted")
			}
			if got, want := said(file, err.Error()), place+c.key+": "+c.want; got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// The numbers that are in force, with those of a later file in place of an earlier one's.
func TestNumbers(t *testing.T) {
	for name, c := range map[string]struct{ top, pool, laterTop, laterPool, want string }{
		"defaults":          {want: "true true 1000 1213202432-1213267967 0 1"},
		"the most":          {"volume_metrics = 100000", "overcommit = 1000\ninodes_per_gib = 1048576\nquota_ids = [2147483647, 2147483647]", "", "", "true true 100000 2147483647-2147483647 1048576 1000"},
		"the least":         {"volume_metrics = 0", "overcommit = 1e-9\ninodes_per_gib = 0\nquota_ids = [1, 1]", "", "", "true true 0 1-1 0 1e-09"},
		"switched off":      {"publish_capacity = false", "", "", "", "false true 1000 1213202432-1213267967 0 1"},
		"switched on later": {"publish_capacity = false", "", "publish_capacity = true", "", "true true 1000 1213202432-1213267967 0 1"},
		"node switched off": {"act_on_selected_node = false", "", "", "", "true false 1000 1213202432-1213267967 0 1"},
		"others later":      {"volume_metrics = 5", "overcommit = 2.5\ninodes_per_gib = 7\nquota_ids = [1, 9]", "volume_metrics = 6", "overcommit = 3\ninodes_per_gib = 0\nquota_ids = [20, 30]", "true true 6 20-30 0 3"},
		"one of them later": {"volume_metrics = 5", "overcommit = 2.5\nquota_ids = [1, 9]", "", "quota_ids = [20, 30]", "true true 5 20-30 0 2.5"},
	} {
		t.Run(name, func(t *testing.T) {
			got := load(t, c.top+"\n"+minimal+"quota = 'project'\n"+c.pool+"\n", "conf.d/a.toml", c.laterTop+"\n[pool.p]\n"+c.laterPool+"\n")
			p := got.Pools[0]
			if text := fmt.Sprintf("%t %t %d %d-%d %d %v", got.PublishCapacity, got.ActOnSelectedNode, got.VolumeMetrics, p.QuotaFirst, p.QuotaLast, p.InodesPerGiB, p.Overcommit); text != c.want {
				t.Errorf("%s, want %s", text, c.want)
			}
		})
	}
}

// A later file's good number does not hide an earlier file's bad one, and all bad ones are told.
func TestBadNumbersOfAllFiles(t *testing.T) {
	file := write(t, minimal+"quota = 'project'\nquota_ids = [9, 2]\novercommit = 0\n",
		"conf.d/a.toml", "publish_capacity = 'no'\n[pool.p]\nquota_ids = [2, 9]\ninodes_per_gib = -5\n")
	_, err := Load(file)
	if err == nil {
		t.Fatal("accepted")
	}
	want := strings.Join([]string{
		"config.toml:5: pool.p.quota_ids: the first project, 9, is above the last, 2",
		"config.toml:6: pool.p.overcommit: 0 is not a number above 0 and up to 1000",
		`conf.d/a.toml:1: publish_capacity: want true or false, got the string "no"`,
		"conf.d/a.toml:4: pool.p.inodes_per_gib: want a number from 0 to 1048576, got the number -5",
	}, "\n")
	if got := said(file, err.Error()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
