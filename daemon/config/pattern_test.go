package config

import (
	"strings"
	"testing"
)

const pv = "pvc-0a1b2c3d-1111-2222-3333-444455556666"

func TestParsePattern(t *testing.T) {
	for text, want := range map[string]string{
		"{{.PV}}":                            "",
		"{{ .PV }}":                          "",
		"{{.Namespace}}-{{.Claim}}-{{.PV}}":  "",
		"data {{.PV}}":                       "",
		strings.Repeat("x", 215) + "{{.PV}}": "",

		"":                                   `"" has no {{.PV}}: two volumes would share a directory`,
		"data":                               `"data" has no {{.PV}}: two volumes would share a directory`,
		"{{.Namespace}}-{{.Claim}}":          `"{{.Namespace}}-{{.Claim}}" has no {{.PV}}: two volumes would share a directory`,
		".{{.PV}}":                           `".{{.PV}}" begins with a dot: such names are reserved for the daemon`,
		".hostpath-provisioner{{.PV}}":       `".hostpath-provisioner{{.PV}}" begins with a dot: such names are reserved for the daemon`,
		"../{{.PV}}":                         `"../" has a '/': a directory is one path element`,
		"{{.PV}}/data":                       `"/data" has a '/': a directory is one path element`,
		"{{.PV}}\x00":                        `"\x00" has a '\x00': a directory is one path element`,
		"{{.PV}}\n":                          `"\n" has a '\n': a directory is one path element`,
		"{{.PV}}\xff":                        `"\xff" is not UTF-8`,
		"{{.PV":                              `{{ without }}`,
		".PV}}":                              `}} without {{`,
		"{{.PV}} }}":                         `}} without {{`,
		"{{.UID}}{{.PV}}":                    `{{.UID}} is not one of {{.PV}}, {{.Namespace}}, {{.Claim}}`,
		"{{PV}}":                             `{{PV}} is not one of {{.PV}}, {{.Namespace}}, {{.Claim}}`,
		"{{.PV | printf}}":                   `{{.PV | printf}} is not one of {{.PV}}, {{.Namespace}}, {{.Claim}}`,
		"{{{{.PV}}}}":                        `{{{{.PV}} is not one of {{.PV}}, {{.Namespace}}, {{.Claim}}`,
		strings.Repeat("x", 216) + "{{.PV}}": `"` + strings.Repeat("x", 216) + `{{.PV}}" leaves no room for a volume's name in 255 bytes`,
	} {
		p, err := ParsePattern(text)
		switch {
		case err == nil && want != "":
			t.Errorf("%q accepted, want %s", text, want)
		case err != nil && err.Error() != want:
			t.Errorf("%q: got\n%v\nwant\n%s", text, err, want)
		case err == nil && p.String() != text:
			t.Errorf("%q became %q", text, p)
		}
	}
}

func TestExpand(t *testing.T) {
	for _, c := range []struct{ pattern, pv, namespace, claim, want, err string }{
		{"{{.PV}}", pv, "", "", pv, ""},
		{"{{ .Namespace }}-{{.Claim}}-{{.PV}}", pv, "shop", "data", "shop-data-" + pv, ""},
		{"{{.Claim}}-{{.PV}}", pv, "shop", strings.Repeat("c", 215), "", `directory "` + strings.Repeat("c", 215) + "-" + pv + `" has 256 bytes, a name has at most 255`},
		{"{{.PV}}", "", "", "", "", "{{.PV}} is empty"},
		{"{{.Claim}}{{.PV}}", pv, "shop", "", "", "{{.Claim}} is empty"},
		{"{{.PV}}", "..", "", "", "", `directory ".." is hidden or no name`},
		{"{{.PV}}", ".hostpath-provisioner", "", "", "", `directory ".hostpath-provisioner" is hidden or no name`},
		{"{{.PV}}", "../../etc", "", "", "", `"../../etc" has a '/': a directory is one path element`},
		{"{{.Claim}}{{.PV}}", pv, "", "a\x00b", "", `"a\x00b" has a '\x00': a directory is one path element`},
	} {
		p, err := ParsePattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Expand(c.pv, c.namespace, c.claim)
		if text := errText(err); got != c.want || text != c.err {
			t.Errorf("%s of %q %q %q: %q, %s; want %q, %s", c.pattern, c.pv, c.namespace, c.claim, got, text, c.want, c.err)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
