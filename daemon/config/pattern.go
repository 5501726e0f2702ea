package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	nameMax = 255 // bytes of one path element, limits.h
	pvBytes = 40  // "pvc-" and a UID, which is how long every volume's name is
)

// Pattern makes the name of a volume's directory. It looks like a Go template and knows {{.PV}},
// {{.Namespace}} and {{.Claim}}; nothing in it is executed. Patterns compare with ==.
type Pattern struct{ text string }

func (p Pattern) String() string { return p.text }

// ParsePattern checks everything about a pattern that does not depend on a claim: it has {{.PV}},
// without which names were not unique, it makes one path element, and not a hidden one.
func ParsePattern(text string) (Pattern, error) {
	literal, hasPV, first := 0, false, ""
	err := walk(text, func(field, plain string) error {
		if first == "" {
			first = field + plain
		}
		literal += len(plain)
		hasPV = hasPV || field == "PV"
		if strings.ContainsAny(plain, "{}") {
			return fmt.Errorf("%q is not replaced: what is, is {{.PV}}, {{.Namespace}} and {{.Claim}}", plain)
		}
		return checkPlain(plain)
	})
	switch {
	case err != nil:
		return Pattern{}, err
	case !hasPV:
		return Pattern{}, fmt.Errorf("%q has no {{.PV}}: two volumes would share a directory", text)
	case strings.HasPrefix(first, "."):
		return Pattern{}, fmt.Errorf("%q begins with a dot: such names are reserved for the daemon", text)
	case literal+pvBytes > nameMax:
		return Pattern{}, fmt.Errorf("%q leaves no room for a volume's name in %d bytes", text, nameMax)
	}
	return Pattern{text}, nil
}

// Expand makes the directory's name for one volume. The values come from the API, so each is
// checked again, however valid the API server found it: the result is always one visible path
// element of at most 255 bytes.
func (p Pattern) Expand(pv, namespace, claim string) (string, error) {
	values := map[string]string{"PV": pv, "Namespace": namespace, "Claim": claim}
	var name strings.Builder
	err := walk(p.text, func(field, plain string) error {
		value := plain
		if field != "" {
			value = values[field]
			if value == "" {
				return fmt.Errorf("{{.%s}} is empty", field)
			}
		}
		name.WriteString(value)
		return checkPlain(value)
	})
	switch made := name.String(); {
	case err != nil:
		return "", err
	case made == "" || strings.HasPrefix(made, "."):
		return "", fmt.Errorf("directory %q is hidden or no name", made)
	case len(made) > nameMax:
		return "", fmt.Errorf("directory %q has %d bytes, a name has at most %d", made, len(made), nameMax)
	default:
		return made, nil
	}
}

// walk calls visit for every piece in turn: with a field's name or with plain text, the other
// empty.
func walk(text string, visit func(field, plain string) error) error {
	for text != "" {
		plain, rest, found := strings.Cut(text, "{{")
		if strings.Contains(plain, "}}") {
			return errors.New("}} without {{")
		}
		if plain != "" {
			if err := visit("", plain); err != nil {
				return err
			}
		}
		if !found {
			return nil
		}
		inner, after, closed := strings.Cut(rest, "}}")
		if !closed {
			return errors.New("{{ without }}")
		}
		field := strings.TrimSpace(inner)
		switch field {
		case ".PV", ".Namespace", ".Claim":
		default:
			return fmt.Errorf("{{%s}} is not one of {{.PV}}, {{.Namespace}}, {{.Claim}}", inner)
		}
		if err := visit(field[1:], ""); err != nil {
			return err
		}
		text = after
	}
	return nil
}

// checkPlain refuses what would leave the directory or make a name that no terminal can show.
func checkPlain(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%q is not UTF-8", s)
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return r == '/' || !unicode.IsPrint(r) }); i >= 0 {
		return fmt.Errorf("%q has a %q: a directory is one path element", s, []rune(s[i:])[0])
	}
	return nil
}
