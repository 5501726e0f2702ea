package config

import "testing"

// Inline volumes are off, or have an amount, in a pool whose volumes kubelet has published.
func TestInlineVolumes(t *testing.T) {
	for text, want := range map[string]uint64{"off": 0, "10Gi": 10 << 30, "1": 1, "1.5Gi": 3 << 29} {
		if p := load(t, csiPool+"inline_volumes = '"+text+"'\n").Pools[0]; p.InlineVolumes != want || p.MakesInline() != (want > 0) {
			t.Errorf("%s: %d, %t", text, p.InlineVolumes, p.MakesInline())
		}
	}
	if p := load(t, csiPool).Pools[0]; p.MakesInline() {
		t.Error("a pool has inline volumes that does not say so")
	}
	const source = `config.toml:5: pool.p.inline_volumes: is for a pool with source "csi"`
	for _, c := range []struct{ name, file, want string }{
		{"source of the host", minimal + "source = 'hostPath'\ninline_volumes = '1Gi'\n", source},
		{"source not said", minimal + "\ninline_volumes = '1Gi'\n", source},
		{"scope shared", csiPool + "scope = 'shared'\ninline_volumes = '1Gi'\n", `config.toml:7: pool.p.inline_volumes: is for a pool of one node, and the pool's scope is "shared"`},
		{"nothing", csiPool + "inline_volumes = '0'\n", `config.toml:6: pool.p.inline_volumes: "0" has room for no volume; "off" makes none`},
		{"a word", csiPool + "inline_volumes = 'on'\n", `config.toml:6: pool.p.inline_volumes: "on" is neither "off" nor an amount ("10Gi")`},
		{"a part of a byte", csiPool + "inline_volumes = '100m'\n", `config.toml:6: pool.p.inline_volumes: "100m" is a fraction of a byte`},
		{"a truth", csiPool + "inline_volumes = true\n", "config.toml:6: pool.p.inline_volumes: want a string, got true"},
	} {
		file := write(t, c.file)
		if _, err := Load(file); err == nil || said(file, err.Error()) != c.want {
			t.Errorf("%s: got\n%v\nwant\n%s", c.name, err, c.want)
		}
	}
}
