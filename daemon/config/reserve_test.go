package config

import (
	"path/filepath"
	"testing"
)

// A number that Go would read and a reader would not is refused: a reserve that is a billion times
// smaller than it was meant is noticed when the filesystem is full.
func TestReserveRefusals(t *testing.T) {
	const fraction, percentage = ` is a fraction of a byte`, ` is not a percentage from 0 to below 100`
	for _, c := range []struct{ name, reserve, want string }{
		{"fraction below one byte", "0.5", fraction},
		{"fraction above one byte", "1.5", fraction},
		{"negative exponent", "1e-3", fraction},
		{"exponent that leaves a fraction", "1.2345e3", fraction},
		{"smallest fraction that a Quantity has", "1.000000001", fraction},
		{"fraction that a Quantity rounds up", "0.0000000000001", fraction},
		{"millionth", "5u", fraction},
		{"billionth", "5n", fraction},
		{"thousandths that are whole bytes", "2000m", fraction},
		{"hexadecimal percentage", "0x1p2%", percentage},
		{"percentage with a sign", "+5%", percentage},
		{"percentage with an exponent", "1e1%", percentage},
		{"percentage with two points", "1.2.3%", percentage},
		{"percentage without a number", "%", percentage},
		{"percentage of only a point", ".%", percentage},
		{"infinite percentage", "Inf%", percentage},
		{"percentage after a space", " 5%", percentage},
		{"percentage before a space", "5 %", percentage},
		{"two percent signs", "5%%", percentage},
		{"percentage with underscores", "1_0%", percentage},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(write(t, minimal+"reserve = '"+c.reserve+"'\n"))
			if want := `config.toml:4: pool.p.reserve: "` + c.reserve + `"` + c.want; err == nil || filepath.Base(err.Error()) != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

// What is refused beside these would be a pool that worked before.
func TestReserveAmounts(t *testing.T) {
	for _, c := range []struct {
		name, reserve string
		percent       float64
		bytes         uint64
	}{
		{"part of a unit that is no whole number of bytes", "1.1Gi", 0, 1181116007},
		{"part of a unit that is one", "0.5Gi", 0, 1 << 29},
		{"exponent", "1e9", 0, 1e9},
		{"exponent that leaves no fraction", "1.25e9", 0, 1.25e9},
		{"whole number with a point", "2000000.0", 0, 2e6},
		{"decimal unit", "3G", 0, 3e9},
		{"part of a percentage", "0.25%", 0.25, 0},
		{"percentage that begins with a point", ".5%", 0.5, 0},
		{"percentage with leading zeros", "05%", 5, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := load(t, minimal+"reserve = '"+c.reserve+"'\n").Pools[0]
			if p.ReservePercent != c.percent || p.ReserveBytes != c.bytes {
				t.Errorf("%v %%, %d bytes", p.ReservePercent, p.ReserveBytes)
			}
		})
	}
}
