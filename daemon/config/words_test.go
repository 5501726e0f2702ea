package config

import (
	"fmt"
	"strings"
	"testing"
)

// Each place that is refused is refused with everything below it, or alone; the reason is that of
// the nearest tree, and the same in each run.
func TestTrees(t *testing.T) {
	for dir, tree := range trees {
		if got := fmt.Sprint(checkPoolPath(dir)); got != fmt.Sprintf("%q %s", dir, tree.why) {
			t.Errorf("%s: %s", dir, got)
		}
		below := strings.TrimSuffix(dir, "/") + "/x/y"
		want := "<nil>"
		if tree.deep {
			want = fmt.Sprintf("%q is in %s, which %s", below, dir, tree.why)
		}
		for range 3 {
			if got := fmt.Sprint(checkPoolPath(below)); got != want {
				t.Errorf("%s: %s, want %s", below, got, want)
			}
		}
		if beside := dir + "-x"; tree.deep && checkPoolPath(beside) != nil {
			t.Errorf("%s is beside %s, and refused: %v", beside, dir, checkPoolPath(beside))
		}
	}
}

// A key with two letters exchanged or its last letter missing is recognized, wherever it stands.
func TestMisspelled(t *testing.T) {
	for _, path := range Keys() {
		table, key := "", path
		if name, of := strings.CutPrefix(path, "pool.NAME."); of {
			table, key = "[pool.p]\npath='/srv/p'\n", name
		}
		for _, wrong := range []string{key[:1] + key[2:3] + key[1:2] + key[3:], key[:len(key)-1]} {
			if wrong == key || wrong == "path" {
				continue // two equal letters, or another key
			}
			file := write(t, table+wrong+" = 1\n")
			_, err := Load(file)
			if want := fmt.Sprintf("%s: unknown key; did you mean %q?", wrong, key); !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}

// A mode has three to five octal digits, of which the setuid bit has no meaning for a directory.
func TestModeLimits(t *testing.T) {
	for text, want := range map[string]string{
		"000": "<nil>", "00777": "<nil>", "3777": "<nil>", "7777": `"7777" has the setuid bit, which means nothing on a directory`,
		"77": `"77" is not a mode: want octal digits such as "0777"`, "000777": `"000777" is not a mode: want octal digits such as "0777"`,
		"10000": `"10000" is not a mode: want octal digits such as "0777"`, "0787": `"0787" is not a mode: want octal digits such as "0777"`,
		"+777": `"+777" is not a mode: want octal digits such as "0777"`,
	} {
		t.Run(text, func(t *testing.T) {
			if got := fmt.Sprint(setMode(new(Pool), text)); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}
