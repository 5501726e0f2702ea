package words

import "fmt"

// Size writes a number of bytes for people, with a binary unit (IEC 80000-13) and rounded to the
// nearest as in "1023 KiB", "1.5 TiB" and "150 GiB": one decimal below 100, none from there on and
// none of bytes.
func Size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	value, unit := float64(n), 0
	for value >= 1023.5 && unit < len(units)-1 { // from there on it would be rounded to 1024
		value, unit = value/1024, unit+1
	}
	if unit == 0 || value >= 99.95 {
		return fmt.Sprintf("%.0f %s", value, units[unit])
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
