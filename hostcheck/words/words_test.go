package words

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	cases := []struct {
		text  string
		limit int
		want  string
	}{
		{"plain", 10, "plain"},
		{"größe", 10, "größe"},
		{"two\nlines\tand \x1b[31m", 100, `two\nlines\tand \x1b[31m`},
		{"not \xff UTF-8", 100, `not \xff UTF-8`},
		{"\u202eright to left", 100, `\u202eright to left`},
		{`quoted "name" and \ stay`, 100, `quoted "name" and \ stay`},
		{"0123456789", 10, "0123456789"},
		{"0123456789A", 10, "0123456..."},
		{"äöüäö", 8, "äö..."},
		{"\x00\x00\x00", 10, `\x00...`},
	}
	for _, c := range cases {
		if got := Line(c.text, c.limit); got != c.want {
			t.Errorf("%q in %d bytes is %q, want %q", c.text, c.limit, got, c.want)
		}
	}
}

func TestQuoted(t *testing.T) {
	if got, want := Quoted("a\n\"b\""), `"a\n\"b\""`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if long := Quoted(strings.Repeat("x", 1000)); len(long) != NameMax+2 || !strings.HasSuffix(long, `..."`) {
		t.Errorf("%d bytes: %s", len(long), long)
	}
}

func TestEnds(t *testing.T) {
	if got, want := Ends("a/b", 20), "a/b"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := Ends("head"+strings.Repeat("/d", 1000)+"/tail", 21), "head/d/d/.../d/d/tail"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSame(t *testing.T) {
	cases := []struct {
		a, b string
		same bool
	}{
		{"requests 1Ti, and 427 MiB is available", "requests 1Ti, and 1.2 GiB is available", true},
		{"no response for 30s", "no response for 2m30s", true},
		{"5 removed, 1 left", "50 removed, 2 left", true},
		{"(1023 B)", "(5 KiB)", true},
		{"volume pvc-1 has", "volume pvc-2 has", false},
		{`"7f": mounted`, `"8f": mounted`, false},
		{"a B", "a C", false},
	}
	for _, c := range cases {
		if got := Same(c.a) == Same(c.b); got != c.same {
			t.Errorf("%q and %q: %v, want %v (%q)", c.a, c.b, got, c.same, Same(c.a))
		}
	}
}

// FuzzLine: whatever a tenant writes is one line of printable UTF-8, and not longer than said.
func FuzzLine(f *testing.F) {
	f.Add("a\nb\xff\u202e", 12)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 16 || limit > 4096 {
			return
		}
		for _, line := range []string{Line(s, limit), Ends(s, limit)} {
			if len(line) > limit {
				t.Errorf("%q is longer than %d", line, limit)
			}
			if !utf8.ValidString(line) || strings.ContainsAny(line, "\n\r\t\x1b\x00") {
				t.Errorf("%q", line)
			}
		}
	})
}
