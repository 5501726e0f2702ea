package config

import (
	"io/fs"
	"strings"
	"testing"
)

// long is a clean absolute path of exactly n bytes, of which no element is longer than a name may
// be.
func long(n int) string {
	p := strings.Repeat("/"+strings.Repeat("d", 99), n/100+1)
	return p[:n-2] + "zz"
}

// Each limit is shown at both sides: the last value that is accepted, and the first that is
// refused.
func TestLimits(t *testing.T) {
	top := func(key string) func(string) string {
		return func(v string) string { return key + " = '" + v + "'\n" + minimal }
	}
	pool := func(key string) func(string) string {
		return func(v string) string { return minimal + key + " = '" + v + "'\n" }
	}
	path := func(v string) string { return "node = 'n'\n[pool.p]\npath = '" + v + "'\n" }
	name := func(v string) string { return "node = 'n'\n[pool." + v + "]\npath = '/srv/p'\n" }
	for _, c := range []struct {
		name            string
		config          func(value string) string
		accepted, first string // first is the first value that is refused
		want            string // in the refusal
	}{
		{"highest port", top("metrics"), "127.0.0.1:65535", "127.0.0.1:65536", `port "65536" is not a number up to 65535`},
		{"lowest port", top("metrics"), "127.0.0.1:1", "127.0.0.1:0", `has port 0; want one from 1 to 65535`},
		{"namespace", top("namespace"), strings.Repeat("n", 63), strings.Repeat("n", 64), `cannot be a namespace`},
		{"name of a provisioner", top("provisioner"), strings.Repeat("p", 63), strings.Repeat("p", 64), `cannot be a StorageClass's provisioner`},
		{"name of a pool", name, strings.Repeat("p", 63), strings.Repeat("p", 64), `is not a pool's name`},
		{"one path element", path, "/srv/" + strings.Repeat("e", 255), "/srv/" + strings.Repeat("e", 256), `has 256 bytes, more than a file system takes for a name`},
		{"whole path", path, long(4095), long(4096), `has 4096 bytes, more than the kernel takes for a path`},
		{"bytes in an element, not letters", path, "/srv/" + strings.Repeat("é", 127), "/srv/" + strings.Repeat("é", 128), `has 256 bytes`},
		{"shortest mode", pool("mode"), "700", "77", `"77" is not a mode`},
		{"longest mode", pool("mode"), "00700", "000700", `"000700" is not a mode`},
		{"highest bits of a mode", pool("mode"), "3777", "4777", `has the setuid bit`},
		{"number of a user", pool("owner"), "4294967294", "4294967295", `"4294967295" is not the number of a user`},
		{"number of a group", pool("group"), "4294967294", "4294967295", `"4294967295" is not the number of a group`},
		{"number beyond 32 bits", pool("group"), "0", "4294967296", `"4294967296" is not the number of a group`},
		{"percentage kept free", pool("reserve"), "99.99%", "100%", `is not a percentage from 0 to below 100`},
		{"negative percentage", pool("reserve"), "0%", "-0.1%", `is not a percentage from 0 to below 100`},
		{"amount kept free", pool("reserve"), "9223372036854775806", "9223372036854775807", `is more than a filesystem can have`},
		{"SELinux type", pool("selinux_type"), strings.Repeat("t", 128), strings.Repeat("t", 129), `cannot be an SELinux type`},
		{"tag without a value", pool("device"), "PARTLABEL=a", "PARTLABEL=", `is not one of "UUID=.."`},
		{"tag that would leave its directory in /dev/disk", pool("device"), "LABEL=..", "LABEL=../../sda", `is not one of "UUID=.."`},
		{"file type", pool("filesystem"), "9p", "-9p", `is not a filesystem type as in /proc/filesystems`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Load(write(t, c.config(c.accepted))); err != nil {
				t.Errorf("refused the last that is allowed: %v", err)
			}
			_, err := Load(write(t, c.config(c.first)))
			if err == nil || len(err.(Errors)) != 1 || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want one error with %s", err, c.want)
			}
		})
	}
}

// The bits of a mode arrive as Go's, of which chmod(2) gets what the digits said.
func TestModeBits(t *testing.T) {
	for digits, want := range map[string]fs.FileMode{
		"0000": 0, "0750": 0o750, "1777": 0o777 | fs.ModeSticky, "2770": 0o770 | fs.ModeSetgid,
		"3770": 0o770 | fs.ModeSetgid | fs.ModeSticky,
	} {
		if p := load(t, minimal+"mode = '"+digits+"'\n").Pools[0]; p.Mode != want {
			t.Errorf("%s: %v, want %v", digits, p.Mode, want)
		}
	}
}

// A reserve is one of percentage and amount, also when a later file changes the kind: were the
// earlier kept beside it, a pool would keep both free.
func TestReserveIsOneKind(t *testing.T) {
	for _, c := range []struct {
		name, base, later string
		percent           float64
		bytes             uint64
	}{
		{"amount after percentage", "10%", "1Gi", 0, 1 << 30},
		{"percentage after amount", "1Gi", "10%", 10, 0},
		{"amount in place of the default's percentage", "", "1Gi", 0, 1 << 30},
		{"nothing kept", "10%", "0", 0, 0},
	} {
		base := minimal
		if c.base != "" {
			base += "reserve = '" + c.base + "'\n"
		}
		p := load(t, base, "conf.d/a.toml", "[pool.p]\nreserve = '"+c.later+"'\n").Pools[0]
		if p.ReservePercent != c.percent || p.ReserveBytes != c.bytes {
			t.Errorf("%s: %v %%, %d bytes", c.name, p.ReservePercent, p.ReserveBytes)
		}
	}
}

// The warning about a small amount ends where an amount is a plausible one.
func TestSmallReserve(t *testing.T) {
	for reserve, warned := range map[string]bool{"0": false, "1": true, "1048575": true, "1Mi": false, "1M": true, "1%": false} {
		if c := load(t, minimal+"reserve = '"+reserve+"'\n"); (len(c.Warnings) == 1) != warned {
			t.Errorf("%s: %q", reserve, c.Warnings)
		}
	}
}
