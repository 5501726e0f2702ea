package selinux

import (
	"errors"
	"os"
	"slices"
	"testing"
)

// born is what most volumes are born with.
var born = Label(DefaultType)

// A label is set before fn and taken back after it; if it cannot be set, fn is not called.
func TestCreatedAs(t *testing.T) {
	broken := errors.New("invalid argument")
	for name, c := range map[string]struct {
		refuse string
		fn     error
		want   error
		calls  []string
	}{
		"fine":          {"-", nil, nil, []string{born, "fn", ""}},
		"fn fails":      {"-", os.ErrExist, os.ErrExist, []string{born, "fn", ""}},
		"unknown label": {born, nil, broken, []string{born}},
		"stuck":         {"", nil, nil, []string{born, "fn", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			set := func(label string) error {
				calls = append(calls, label)
				if label == c.refuse {
					return broken
				}
				return nil
			}
			err := createdAs(set, born, func() error { calls = append(calls, "fn"); return c.fn })
			if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) || !slices.Equal(calls, c.calls) {
				t.Errorf("got %v, calls %q", err, calls)
			}
		})
	}
}

// Where SELinux is off nothing is written anywhere: the library's own check would leave a file.
func TestCreatedAsOff(t *testing.T) {
	if Enabled() {
		t.Skip("SELinux is on: the virtual machine's tests prove this part")
	}
	t.Chdir(t.TempDir())
	called := false
	if err := CreatedAs("no label at all", func() error { called = true; return nil }); err != nil || !called {
		t.Errorf("%v, called: %v", err, called)
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}
