package config

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// Stamp returns a text that is another one when a file that Load would read was changed, came or
// went, and when the last of them was changed, as far as the files say. No file is read.
func Stamp(file string) (stamp string, changed time.Time) {
	files := []string{file}
	more, err := dropIns(file)
	var b strings.Builder
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	for _, name := range append(files, more...) {
		info, err := os.Stat(name)
		if err != nil {
			fmt.Fprintln(&b, err)
			continue
		}
		if info.ModTime().After(changed) {
			changed = info.ModTime()
		}
		fmt.Fprintln(&b, name, info.Size(), info.ModTime().UnixNano())
		if st, known := info.Sys().(*syscall.Stat_t); known {
			fmt.Fprintln(&b, st.Ino, st.Ctim) // its owner or mode may have changed
		}
	}
	return b.String(), changed
}
