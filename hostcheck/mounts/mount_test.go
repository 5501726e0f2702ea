package mounts

import (
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

const simple = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []Mount
	}{
		{"empty", "", []Mount{}},
		{"of the manual page", simple, []Mount{{
			ID: 36, Parent: 35, Major: 98, Root: "/mnt1", Point: "/mnt2", Options: "rw,noatime", Optional: "master:1",
			FSType: "ext3", Source: "/dev/root", SuperOptions: "rw,errors=continue",
		}}},
		{"no propagation", "1 0 0:2 / / rw - rootfs rootfs rw\n", []Mount{{
			ID: 1, Minor: 2, Root: "/", Point: "/", Options: "rw", FSType: "rootfs", Source: "rootfs", SuperOptions: "rw",
		}}},
		{"much propagation", "1 0 0:2 / / rw shared:1 master:2 propagate_from:3 - t s rw", []Mount{{
			ID: 1, Minor: 2, Root: "/", Point: "/", Options: "rw", Optional: "shared:1 master:2 propagate_from:3",
			FSType: "t", Source: "s", SuperOptions: "rw",
		}}},
		{"escapes", `1 0 0:2 / /a\040b\011c\012d\134e rw - t \134040 rw` + "\n", []Mount{{
			ID: 1, Minor: 2, Root: "/", Point: "/a b\tc\nd\\e", Options: "rw", FSType: "t", Source: `\040`, SuperOptions: "rw",
		}}},
		{"empty source", "1 0 0:2 / /p rw - tmpfs  rw,size=4k\n", []Mount{{
			ID: 1, Minor: 2, Root: "/", Point: "/p", Options: "rw", FSType: "tmpfs", SuperOptions: "rw,size=4k",
		}}},
		{"a dash in a name", "1 0 0:2 / /- rw - t - rw\n", []Mount{{
			ID: 1, Minor: 2, Root: "/", Point: "/-", Options: "rw", FSType: "t", Source: "-", SuperOptions: "rw",
		}}},
		{"spaces in the last field", "1 0 0:2 / /p rw - t s rw,a b\n", []Mount{{
			ID: 1, Minor: 2, Root: "/", Point: "/p", Options: "rw", FSType: "t", Source: "s", SuperOptions: "rw,a b",
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse(strings.NewReader(c.text))
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, c.want)
			}
		})
	}
}

// One line that cannot be understood refuses the table, and is named.
func TestParseRefuses(t *testing.T) {
	for name, line := range map[string]string{
		"empty line":      "",
		"short head":      "36 35 98:0 /mnt1 /mnt2 - ext3 /dev/root rw",
		"no separator":    "36 35 98:0 /mnt1 /mnt2 rw master:1 ext3 /dev/root rw",
		"short tail":      "36 35 98:0 /mnt1 /mnt2 rw - ext3 /dev/root",
		"letters as ID":   "x 35 98:0 / /mnt2 rw - ext3 /dev/root rw",
		"huge ID":         "99999999999999999999 35 98:0 / /mnt2 rw - ext3 /dev/root rw",
		"letters parent":  "36 x 98:0 / /mnt2 rw - ext3 /dev/root rw",
		"no device":       "36 35 98 / /mnt2 rw - ext3 /dev/root rw",
		"negative device": "36 35 -1:0 / /mnt2 rw - ext3 /dev/root rw",
		"relative point":  "36 35 98:0 / mnt2 rw - ext3 /dev/root rw",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(strings.NewReader(simple + line + "\n"))
			if err == nil || got != nil || !strings.HasPrefix(err.Error(), "mount table: line 2: ") {
				t.Fatalf("got %+v, error %v", got, err)
			}
		})
	}
	broken := errors.New("broken")
	if _, err := Parse(io.MultiReader(strings.NewReader(simple), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Fatalf("a table that breaks off: %v", err)
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		`\040`: " ", `a\040`: "a ", `\04`: `\04`, `\`: `\`, `\\040`: `\ `, `\999`: `\999`, `\777`: `\777`, `\1340`: `\0`, `\+12`: `\+12`,
	} {
		if got := unescape(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestReadOnly(t *testing.T) {
	for _, c := range []struct {
		options, super string
		want           bool
	}{
		{"rw", "rw", false}, {"ro", "rw", true}, {"rw", "ro", true}, {"rw,relatime", "rw,errors=remount-ro", false},
		{"nosuid,ro,nodev", "rw", true}, {"rw", "rw,lowerdir=/ro", false}, {"", "", false},
	} {
		if got := (Mount{Options: c.options, SuperOptions: c.super}).ReadOnly(); got != c.want {
			t.Errorf("%q %q: got %v", c.options, c.super, got)
		}
	}
}

// FuzzParse: no text makes Parse panic; what it accepts has sense, can be written as the kernel
// would, and then means the same; and no table makes the walks panic or run for ever.
func FuzzParse(f *testing.F) {
	f.Add(simple)
	f.Fuzz(func(t *testing.T, text string) {
		table, err := Parse(strings.NewReader(text))
		if err != nil || len(table) > 100 { // the checks below are cubic, the fuzzer's time is limited
			return
		}
		var again strings.Builder
		for _, m := range table {
			again.WriteString(line(m))
			m.ReadOnly()
			if on, ok := Covering(table, m.Point); ok && !beneath(m.Point, on.Point) {
				t.Fatalf("%q lies on %+v", m.Point, on)
			}
			if stack, parent, ok := At(table, m.Point); ok && (len(stack) == 0 || stack[0].Parent != parent.ID) {
				t.Fatalf("at %q: %+v on %+v", m.Point, stack, parent)
			}
		}
		twice, err := Parse(strings.NewReader(again.String()))
		if err != nil || !slices.Equal(table, twice) {
			t.Fatalf("%v\nfirst %+v\nagain %+v", err, table, twice)
		}
	})
}
